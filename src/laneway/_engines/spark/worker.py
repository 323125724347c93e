"""What a worker process keeps from task to task: the app, clients, the event loop and processes of handlers."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, NoReturn

from pyspark import cloudpickle

from laneway._engines.spark.control_link import ControlLine, send_log_lines
from laneway._garbage import collect_rarely
from laneway._kafka import Admin, AssignedConsumer, sender_of
from laneway._runtime.broker_monitor import BrokerMonitor
from laneway._runtime.error_app import ErrorApp
from laneway._runtime.handler_state import HandlerState
from laneway._runtime.handler_worker import HandlerWorker
from laneway._runtime.host import AppHost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laneway._declare.app import App
    from laneway._declare.handler import HandlerSpec
    from laneway._engines.spark.control import ControlAddress
    from laneway._engines.spark.control_link import ControlLink
    from laneway._engines.spark.query_spec import QuerySpec

__all__ = ["Worker", "leave", "load_app", "routes_of", "worker_of"]

_KEPT = 300.0  # seconds that idle clients are kept, because new ones take half a second

_apps: dict[str, App] = {}
_hosts: dict[str, AppHost] = {}
_workers: dict[str, Worker] = {}
_leaving = threading.Lock()
"""Held by the thread that ends the process; never released."""


def load_app(stream: QuerySpec) -> App:
    """The app of a query, unpickled once per process."""
    app = _apps.get(stream.digest)
    if app is None:
        # Appended, never put first: a user's folder must not shadow an installed package.
        sys.path.extend(path for path in stream.paths if path not in sys.path)
        app = _apps[stream.digest] = cloudpickle.loads(stream.payload)
    return app


def routes_of(stream: QuerySpec) -> dict[str, HandlerSpec]:
    app = load_app(stream)
    if stream.errors is not None:
        # Derived here, so that payload, host and setup are those of the app itself.
        app = ErrorApp(app, stream.errors.partitions)
    return {route.name: route for route in app.routes if route.name in stream.routes}


class Worker:
    """One topic's clients in one process. Created after the fork; used by one task at a time."""

    def __init__(self, stream: QuerySpec) -> None:
        self.host = _host_of(stream)
        self.app = stream.app
        self.used = time.monotonic()
        """When a task last used it."""
        self.is_busy = False
        """Whether a task runs: then the process cannot end cleanly."""
        self._stream = stream
        routes = routes_of(stream)
        self.readers = {stream.topic: AssignedConsumer(stream.consumer, skip_lost=stream.skip_lost)}
        self._admin: Admin | None = None
        # The processes of a run over an error topic end with their task: the next run may be far away.
        self._states = {
            name: HandlerState(route, self.app, pickler=cloudpickle, keeps_processes=stream.errors is None)
            for name, route in routes.items()
        }
        errors = {route.error_topic_of(self.app): route.topic.name for route in routes.values() if route.rerun is None}
        self.monitor = BrokerMonitor(self, {}, errors=errors, may_create=stream.may_create)
        self._link: ControlLink | None = None
        # Made now and not at the first message: an idempotent producer needs half a second to get its id.
        self.sender = sender_of(stream.producer, stream.elsewhere)

    def line_to(self, address: ControlAddress | None) -> ControlLine:
        """The connection to the driver of the task's run; the first one of a run forwards log records, too."""
        line = ControlLine(address)
        if line.link is not self._link and line.link is not None:
            self._link = line.link
            send_log_lines(line.link)
            line.link.wait()
        return line

    def handlers(self, lanes: Mapping[str, int], stream: QuerySpec) -> list[HandlerWorker]:
        """The handlers, each with a number of lanes."""
        line, app = self.line_to(stream.control), load_app(stream)
        found = []
        for name, state in self._states.items():
            handler = HandlerWorker(
                state.spec,
                self.app,
                lanes=state.spec.processes or lanes.get(name, 1),
                sender=self.sender,
                host=self.host,
                listener=line,
                hooks=(app.setups, app.cleanups),
                state=state,
            )
            if state.spec.breaker is not None and line.link is not None:
                line.link.watch_breaker(self.app, name, state.breaker)
            handler.processor.outbox.diagnose = self.monitor.trouble
            found.append(handler)
        return found

    def reader_of(self, topic: str) -> AssignedConsumer:
        if topic not in self.readers:
            self.readers[topic] = AssignedConsumer(self._stream.consumer, skip_lost=self._stream.skip_lost)
        return self.readers[topic]

    def end_processes(self) -> None:
        """Let child processes of handlers run their cleanup hooks and end."""
        for state in self._states.values():
            state.close()

    def close(self) -> None:
        """Close connections and child processes. Everything sent is acknowledged, because no task ends before that."""
        self.end_processes()
        self.monitor.end()
        for reader in self.readers.values():
            reader.end()

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(self._stream.client)
        return self._admin


def leave() -> NoReturn:
    """End this process, with the cleanup hooks if no task runs. Any thread may call it; only one ends the process."""
    with _leaving:
        if not any(worker.is_busy for worker in _workers.values()):
            for worker in _workers.values():
                worker.end_processes()
            for host in _hosts.values():
                try:
                    host.close()
                except Exception:  # noqa: BLE001 - the user's own code, at the very end of a process
                    traceback.print_exc()
        sys.stderr.flush()
        # Spark's workers never return from main, so atexit would not run either.
        os._exit(0)


def _host_of(stream: QuerySpec) -> AppHost:
    """The app's host in this process, after its setup hooks; topics share it."""
    host = _hosts.get(stream.digest)
    if host is None:
        host = AppHost(load_app(stream))
        host.open()
        collect_rarely()
        _hosts[stream.digest] = host
    return host


def worker_of(stream: QuerySpec) -> Worker:
    """The process's worker for a query."""
    name = f"{stream.name}/{stream.digest}/{stream.errors and stream.errors.partitions}"
    worker = _workers.get(name)
    if worker is None:
        _close_unused()
        worker = _workers[name] = Worker(stream)
    worker.used = time.monotonic()
    return worker


def _close_unused() -> None:
    """Close the clients of queries that are probably over: a notebook's session outlives many of them."""
    since = time.monotonic() - _KEPT
    for name, worker in list(_workers.items()):
        if worker.used < since:
            worker.close()
            del _workers[name]
