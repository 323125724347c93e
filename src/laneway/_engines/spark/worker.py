"""What a worker process keeps from task to task: the app, clients and the event loop."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
import time
import traceback
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark import cloudpickle

from laneway._clock import SystemClock
from laneway._core.breaker import BreakerState
from laneway._engines.spark.control_link import ControlLine, send_log_lines
from laneway._garbage import collect_rarely
from laneway._kafka import Admin, AssignedConsumer, sender_of
from laneway._runtime.clients import new_loop
from laneway._runtime.error_app import ErrorApp
from laneway._runtime.monitor import BrokerMonitor
from laneway._runtime.runners import ProcessRunner

if TYPE_CHECKING:
    from laneway._core.processor import Processor
    from laneway._declare.app import App
    from laneway._declare.handler import HandlerSpec
    from laneway._engines.spark.control import ControlAddress
    from laneway._engines.spark.control_link import ControlLink
    from laneway._engines.spark.query_spec import QuerySpec

__all__ = ["AppHost", "Worker", "leave", "load_app", "routes_of", "worker_of"]

_KEPT = 300.0  # seconds without a task for which clients are kept: to make them anew takes half a second

_apps: dict[str, App] = {}
_hosts: dict[str, AppHost] = {}
_workers: dict[str, Worker] = {}
_leaving = threading.Lock()
"""Held by the thread that ends the process; never given back."""


def load_app(stream: QuerySpec) -> App:
    """The app of a stream, unpickled once per process."""
    app = _apps.get(stream.digest)
    if app is None:
        # Appended, never put first: a user's folder must not shadow an installed package.
        sys.path.extend(path for path in stream.paths if path not in sys.path)
        app = _apps[stream.digest] = cloudpickle.loads(stream.payload)
    return app


def routes_of(stream: QuerySpec) -> dict[str, HandlerSpec]:
    """The handlers of a stream by name."""
    app = load_app(stream)
    if stream.errors is not None:
        # Made here, so that the payload, and with it the host and its setup, is the one of the app itself.
        app = ErrorApp(app, stream.errors.partitions)
    return {route.name: route for route in app.routes if route.name in stream.routes}


class AppHost:
    """One app in one process: its setup, its event loop, its cleanup. Topics share it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.is_busy = False
        """A task runs: an end that comes now is not in good order."""
        self.paces: dict[tuple[str, str], float] = {}
        """Seconds a call of each handler takes, learnt by earlier tasks."""
        self.breakers: defaultdict[tuple[str, str], BreakerState] = defaultdict(BreakerState)
        """Whether each handler is called at all, as earlier tasks found."""
        self._loop: asyncio.AbstractEventLoop | None = None
        for setup in app.setups:
            self._call(setup)
        collect_rarely()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of async handlers; it outlives the task, so a user's connection pool does too."""
        if self._loop is None:
            self._loop = new_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop

    def _call(self, function: Any) -> None:
        result = function()
        if inspect.isawaitable(result):
            self.loop.run_until_complete(result)

    def clean_up(self) -> None:
        """Run the cleanup hooks; one that fails is told of, and the others run all the same."""
        for cleanup in self.app.cleanups:
            try:
                self._call(cleanup)
            except Exception:  # noqa: BLE001 - the user's own code, at the very end of a process
                traceback.print_exc()


class Worker:
    """One topic's clients in one process. Made after the fork; used by one task at a time."""

    def __init__(self, stream: QuerySpec) -> None:
        self.host = _hosts.get(stream.digest) or _hosts.setdefault(stream.digest, AppHost(load_app(stream)))
        self.app = stream.app
        self.used = time.monotonic()
        """When a task last asked for it."""
        self._stream = stream
        self._routes = routes_of(stream)
        self._readers = {stream.topic: AssignedConsumer(stream.consumer, skip_lost=stream.skip_lost)}
        self._admin: Admin | None = None
        self._steps: dict[tuple[str, int], HandlerSpec] = {}
        routes = self._routes.values()
        errors = {route.error_topic_of(self.app): route.topic.name for route in routes if route.rerun is None}
        self.monitor = BrokerMonitor(self, {}, errors=errors, may_create=stream.may_create)
        self._link: ControlLink | None = None
        self._processes: dict[str, tuple[Any, ProcessRunner]] = {}
        """For each handler with processes of its own the function that they run, and what runs them."""
        # Made now and not at the first message: an idempotent producer needs half a second to get its id.
        self.sender = sender_of(stream.producer, stream.elsewhere)

    def line_to(self, address: ControlAddress | None) -> ControlLine:
        """The line to the driver of the run whose task this is; the first of a run sends its log lines there, too."""
        line = ControlLine(address)
        if line.link is not self._link and line.link is not None:
            self._link = line.link
            send_log_lines(line.link)
            line.link.wait()
        return line

    def route_of(self, name: str, step: int) -> HandlerSpec:
        """A handler, as it runs on a step of its ladder."""
        route = self._steps.get((name, step))
        if route is None:
            route = self._steps[name, step] = self._routes[name].at_step(self.app, step)
        return route

    def reader_of(self, topic: str) -> AssignedConsumer:
        """A reader for each topic."""
        if topic not in self._readers:
            self._readers[topic] = AssignedConsumer(self._stream.consumer, skip_lost=self._stream.skip_lost)
        return self._readers[topic]

    def processes_of(self, route: HandlerSpec, processor: Processor) -> ProcessRunner:
        """A runner for a handler with processes of its own, which live on after the task: their setup may take long.

        The steps of a ladder share them. A step with a function of its own has its own ones, in their place.
        """
        function, runner = self._processes.pop(route.name, (None, None))
        if runner is not None and function is route.function:
            runner.take_on(processor)
        else:
            if runner is not None:
                runner.close()
            runner = ProcessRunner(
                processor,
                route,
                SystemClock(),
                processes=route.processes,
                setups=self.host.app.setups,
                cleanups=self.host.app.cleanups,
                is_kept=True,
                dumps=cloudpickle.dumps,
            )
        return runner

    def keep(self, route: HandlerSpec, runner: ProcessRunner) -> None:
        """A run went to its end: its processes wait for the next task."""
        if self._stream.errors is not None:  # the next run over the error topics may be far away
            runner.close()
        else:
            self._processes[route.name] = (route.function, runner)

    def end_processes(self) -> None:
        """Let the processes of handlers clean up and end."""
        while self._processes:
            self._processes.popitem()[1][1].close()

    def close(self) -> None:
        """Let go of connections and processes. What was sent is acknowledged: no task ends before that."""
        self.end_processes()
        self.monitor.end()
        for reader in self._readers.values():
            reader.end()

    @property
    def admin(self) -> Admin:
        """Asks for the ends of logs; made when first needed."""
        if self._admin is None:
            self._admin = Admin(self._stream.client)
        return self._admin


def leave() -> NoReturn:
    """End this process, after the cleanup hooks when no task is under way. Any thread may call it; one does it."""
    with _leaving:
        if not any(host.is_busy for host in _hosts.values()):
            for worker in _workers.values():
                worker.end_processes()
            for host in _hosts.values():
                host.clean_up()
        sys.stderr.flush()
        # Spark's workers never return from main, so atexit would not run either.
        os._exit(0)


def worker_of(stream: QuerySpec) -> Worker:
    """The process's worker for a stream."""
    name = f"{stream.name}/{stream.digest}/{stream.errors and stream.errors.partitions}"
    worker = _workers.get(name)
    if worker is None:
        _let_go()
        worker = _workers[name] = Worker(stream)
    worker.used = time.monotonic()
    return worker


def _let_go() -> None:
    """Close the clients of streams that are probably over: a notebook's session outlives many of them."""
    since = time.monotonic() - _KEPT
    for name, worker in list(_workers.items()):
        if worker.used < since:
            worker.close()
            del _workers[name]
