"""Runs over an app's error topics on Spark."""

from __future__ import annotations

import hashlib
import shutil
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from laneway._engines.spark.from_settings import stream_of
from laneway._engines.spark.query import Query
from laneway._engines.spark.query_spec import ErrorPart, QuerySpec
from laneway._runtime.error_runs import ErrorSchedule, error_plans

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from laneway._declare.app import App
    from laneway._declare.cron import Cron
    from laneway._declare.error_consumer import ErrorRuns
    from laneway._engines.spark.control_server import ControlServer
    from laneway.observe import Event, Tally
    from laneway.settings import Settings

__all__ = ["SparkErrorSchedule", "error_streams"]

_LOOK = 0.05  # seconds between looks at a run


def error_streams(
    app: App,
    settings: Settings,
    *,
    payload: bytes | None = None,
    topic: str | None = None,
    refresh: bool = True,
    is_stopping: Callable[[], bool] = lambda: False,
) -> list[QuerySpec]:
    """What a run that begins now reads: a stream for each plan of `error_plans`, which has the other arguments too.

    Args:
        app: whose error topics, as the configuration has it.
        settings: the configuration.
        payload: the app, pickled, when that is at hand.
        topic: only this error topic.
        refresh: see there.
        is_stopping: see there.
    """
    payload = payload or QuerySpec.pickled(app)
    plans = error_plans(app, settings, topic=topic, refresh=refresh, is_stopping=is_stopping)
    streams = []
    for plan in plans:
        stream = stream_of(plan.app.name, plan.routes, settings, payload)
        part = ErrorPart(plan.ends, plan.partitions)
        # What retention has taken from an error topic is gone, and counted; it must not keep the rest from being run.
        streams.append(replace(stream, tasks=1, start="earliest", skip_lost=True, errors=part))
    return streams


class SparkErrorSchedule(ErrorSchedule):
    """Runs are queries beside those of the app.

    Args:
        app: whose error topics, as the configuration has it.
        cron: when.
        settings: the configuration.
        payload: the app, pickled.
        folder: where runs keep what they need.
        batch_done: called after each batch, as for the app's own.
        control: to the processes of a run.
        note: told in words what went wrong; an empty text when that is over.
        runs: where runs are counted.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        app: App,
        cron: Cron,
        *,
        settings: Settings,
        payload: bytes,
        folder: Path,
        batch_done: Callable[[str, int, Tally, list[Event]], None],
        control: ControlServer,
        note: Callable[[str], None],
        runs: ErrorRuns,
    ) -> None:
        super().__init__(app, cron, note=note, runs=runs)
        self._settings = settings
        self._payload = payload
        self._folder = folder
        self._batch_done = batch_done
        self._control = control
        self._number = 0
        self.spark: Any = None
        """The session; given before `start`."""

    def _run(self, *, refresh: bool) -> None:
        self._number += 1
        folder = self._folder / str(self._number)
        try:
            streams = error_streams(
                self._app,
                self._settings,
                payload=self._payload,
                refresh=refresh,
                is_stopping=self._stopping.is_set,
            )
            self._planned(refresh=refresh)
            if not self._stopping.is_set():
                self._run_all(streams, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run_all(self, streams: list[QuerySpec], folder: Path) -> None:
        queries = [Query(stream, self._batch_done, self._control.channel()) for stream in streams]
        started: list[Query] = []
        try:
            for number, (stream, query) in enumerate(zip(streams, queries, strict=True)):
                query.start(
                    self.spark,
                    folder=folder / f"{number}-{stream.place}",
                    trigger=timedelta(0),
                    once=True,
                    name=f"laneway_{hashlib.sha256(stream.name.encode()).hexdigest()[:16]}",
                )
                started.append(query)
            self._await(started)
        finally:
            for query in started:
                query.end()
        self._succeeded()

    def _await(self, queries: list[Query]) -> None:
        is_asked = False
        while any(query.is_active for query in queries) and not self._is_ending:
            if not is_asked and self._is_interrupted:
                is_asked = True
                for query in queries:
                    query.ask_to_stop()
            if is_asked and all(query.is_drained for query in queries):
                return
            time.sleep(_LOOK)
        for query in queries:
            query.raise_if_failed()
