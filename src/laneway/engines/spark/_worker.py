"""What a worker process keeps from task to task: the app, clients and the event loop."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from laneway.kafka import KafkaSender, RangeReader

if TYPE_CHECKING:
    from laneway._app import App
    from laneway.engines.spark._stream import Stream

__all__ = ["AppHost", "Worker", "load_app", "worker_of"]

_apps: dict[str, App] = {}
_hosts: dict[str, AppHost] = {}
_workers: dict[str, Worker] = {}


def load_app(stream: Stream) -> App:
    """The app of a stream, unpickled once per process."""
    app = _apps.get(stream.digest)
    if app is None:
        # Appended, never put first: a user's folder must not shadow an installed package.
        sys.path.extend(path for path in stream.paths if path not in sys.path)
        app = _apps[stream.digest] = cloudpickle.loads(stream.payload)
    return app


class AppHost:
    """One app in one process: its setup, its event loop, its cleanup. Topics share it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.routes = {route.name: route for route in app.routes}
        self.is_busy = False
        """A task runs: an end that comes now is not in good order."""
        self.paces: dict[str, float] = {}
        """Seconds a call of each handler takes, learnt by earlier tasks."""
        self._loop: asyncio.AbstractEventLoop | None = None
        for setup in app.setups:
            self._call(setup)
        if app.cleanups:
            # Spark ends its workers with SIGHUP and never lets them return from main, so atexit would not run.
            signal.signal(signal.SIGHUP, self._leave)
        # A worker makes and drops records by the hundred thousand; looking at them for cycles every 700 is a waste.
        gc.set_threshold(50_000, 20, 100)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of async handlers; it outlives the task, so a user's connection pool does too."""
        if self._loop is None:
            self._loop = _new_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop

    def _call(self, function: Any) -> None:
        result = function()
        if inspect.isawaitable(result):
            self.loop.run_until_complete(result)

    def _leave(self, *_: object) -> None:
        if not self.is_busy:
            for cleanup in self.app.cleanups:
                self._call(cleanup)
        os._exit(0)


class Worker:
    """One topic's clients in one process. Made after the fork; used by one task at a time."""

    def __init__(self, stream: Stream) -> None:
        self.host = _hosts.get(stream.digest) or _hosts.setdefault(stream.digest, AppHost(load_app(stream)))
        self.reader = RangeReader(stream.consumer, skip_lost=stream.skip_lost)
        # Made now and not at the first message: an idempotent producer needs half a second to get its id.
        self.sender = KafkaSender(stream.producer)


def worker_of(stream: Stream) -> Worker:
    """The process's worker for a stream."""
    name = f"{stream.app}/{stream.topic}/{stream.digest}"
    worker = _workers.get(name)
    if worker is None:
        worker = _workers[name] = Worker(stream)
    return worker


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()  # type: ignore[no-any-return]
