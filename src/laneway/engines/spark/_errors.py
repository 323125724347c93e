"""Runs over an app's error topics: what a run reads, and when runs begin."""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laneway._error_app import ErrorApp
from laneway._error_consumer import ErrorConsumer
from laneway.engines._configured import cluster_of
from laneway.engines.spark._query import TopicQuery
from laneway.engines.spark._setting import stream_of
from laneway.engines.spark._stream import ErrorPart, Stream
from laneway.errors import EngineError, LanewayError
from laneway.parked import ErrorLog, error_topics_of
from laneway.retry import is_new

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laneway._app import App
    from laneway._cron import Cron
    from laneway._error_consumer import ErrorRuns
    from laneway.instrumentation import Tally
    from laneway.parked import ErrorTopic, Extent
    from laneway.settings import Settings

__all__ = ["ErrorSchedule", "error_streams", "only_run"]

_LOOK = 0.05  # seconds between looks at a run
_LONGEST_WAIT = 20.0  # seconds of one wait for the next run: a clock that is set shall not put it off for longer
_REFRESH = 6 * 3600.0  # seconds between commits of a group that has nothing to do; Kafka forgets it after some days
_MOST_LEFT_OUT = 10_000  # runs that are counted as left out behind one; a laptop that slept for a year has more
_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)

_running: set[str] = set()
_lock = threading.Lock()


class _UnderWayError(EngineError):
    """Another run holds the app's error topics."""


@contextmanager
def only_run(app: str) -> Iterator[None]:
    """Hold off other runs of an app in this process.

    Raises:
        EngineError: one is under way.
    """
    with _lock:
        if app in _running:
            raise _UnderWayError(f"a run over the error topics of app {app!r} is under way; wait until it is over")
        _running.add(app)
    try:
        yield
    finally:
        with _lock:
            _running.discard(app)


def error_streams(
    app: App,
    settings: Settings,
    folder: Path,
    *,
    payload: bytes | None = None,
    topic: str | None = None,
    refresh: bool = True,
    is_stopping: Callable[[], bool] = lambda: False,
) -> list[Stream]:
    """What a run that begins now reads: a stream for each error topic on which something waits.

    A record that is parked while the run is under way lies past the ends that are looked at here, so it waits for the
    next run.

    Args:
        app: whose error topics, as the configuration has it.
        settings: the configuration.
        folder: for the run alone.
        payload: the app, pickled, when that is at hand.
        topic: only this error topic.
        refresh: commit the offsets of topics on which nothing waits anew, before Kafka forgets them: everything that
            was ever parked would be run again.
        is_stopping: asked often; the streams are worth nothing once it said yes.

    Raises:
        BrokerAbsentError: no broker answers.
    """
    started = time.time() * 1000
    within = (app.errors or ErrorConsumer()).new / _MILLISECOND
    payload = payload or Stream.pickled(app)
    streams = []
    for number, found in enumerate(_topics(app, settings)):
        if topic not in (None, found.name) or is_stopping():
            continue
        with ErrorLog(found) as log:
            partitions = {name: count for name, count in log.partitions().items() if name in found.sources}
            extents = log.extents()
            ends = {
                part: _end(log, part, extent, started, within, is_stopping)
                for part, extent in extents.items()
                if not extent.is_settled
            }
            is_idle = not any(end > extents[part].open for part, end in ends.items())
            if is_idle and refresh:
                _commit_anew(log, extents)
        if is_idle:
            continue
        errors = ErrorApp(app, partitions)
        routes = [
            route
            for route in errors.routes
            if (route.topic.name, settings.cluster(cluster_of(route, settings))) == (found.name, found.cluster)
        ]
        stream = stream_of(errors.name, routes, settings, folder / f"{number}-{found.name}", payload)
        part = ErrorPart({each: ends.get(each, extent.open) for each, extent in extents.items()}, partitions)
        # What retention has taken from an error topic is gone, and counted; it must not keep the rest from being run.
        streams.append(replace(stream, tasks=1, start="earliest", skip_lost=True, errors=part))
    return streams


def _commit_anew(log: ErrorLog, extents: dict[int, Extent]) -> None:
    for part, extent in extents.items():
        if extent.committed is not None and extent.committed <= extent.end:
            log.commit(part, extent.committed)


def _topics(app: App, settings: Settings) -> list[ErrorTopic]:
    return error_topics_of(app, lambda route: settings.cluster(cluster_of(route, settings)))


def _end(
    log: ErrorLog, partition: int, extent: Extent, started: float, within: float, is_stopping: Callable[[], bool]
) -> int:
    """Where a run ends in a partition: before the first record that is new, else at the end of the log."""
    if within:
        for parked in log.read(partition, extent.open, extent.end):
            at = None if parked.parked_at is None else (parked.parked_at - _EPOCH) / _MILLISECOND
            if is_new(at, started, within) or is_stopping():
                return parked.place.offset
    return extent.end


class ErrorSchedule:
    """Starts runs over the error topics when they fall due, on a thread of its own, beside the queries of the app.

    The engine's thread calls `ask_to_stop`, `pause` and `end`. A run that fails is told of and ends nothing else: the
    next one begins where it stopped.

    Args:
        app: whose error topics, as the configuration has it.
        cron: when.
        settings: the configuration.
        payload: the app, pickled.
        folder: where runs keep what they need.
        batch_done: called after each batch, as for the app's own.
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
        batch_done: Callable[[str, int, Tally], None],
        note: Callable[[str], None],
        runs: ErrorRuns,
    ) -> None:
        self._app = app
        self._cron = cron
        self._settings = settings
        self._payload = payload
        self._folder = folder
        self._batch_done = batch_done
        self._note = note
        self._runs = runs
        self._number = 0
        self._refreshed = -_REFRESH
        self._queries: list[TopicQuery] = []
        self._stopping = threading.Event()
        self._is_paused = False
        self._is_ending = False
        self._is_noted = False
        self._thread: threading.Thread | None = None

    @property
    def is_drained(self) -> bool:
        """Whether no run is under way and none will begin."""
        return self._stopping.is_set() and (self._thread is None or not self._thread.is_alive())

    def start(self, spark: Any) -> None:
        """Begin to wait for the first run."""
        self._thread = threading.Thread(target=self._work, args=(spark,), name="laneway-errors", daemon=True)
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Let the running batch end, and begin nothing more."""
        self._stopping.set()

    def pause(self, *, on: bool) -> None:
        """Begin nothing more, or go on. A run that is under way ends after its batch; the next takes up the rest."""
        self._is_paused = on

    def end(self) -> None:
        """Stop now, whatever runs."""
        self._stopping.set()
        self._is_ending = True
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _work(self, spark: Any) -> None:
        due = self._cron.next_after(_now())
        while not self._stopping.is_set():
            now = _now()
            # A clock that was set back brings an earlier time; one that was set forward brings it at once.
            due = min(due, self._cron.next_after(now))
            if now < due:
                self._stopping.wait(min((due - now).total_seconds(), _LONGEST_WAIT))
                continue
            if not self._is_paused:
                self._try_run(spark)
            due = self._next(after=due)

    def _next(self, after: datetime) -> datetime:
        """When the next run falls due; those that did meanwhile are left out."""
        now = _now()
        due = self._cron.next_after(after)
        left_out = 0
        while due <= now and left_out < _MOST_LEFT_OUT:
            left_out += 1
            due = self._cron.next_after(due)
        if left_out and not self._stopping.is_set():
            self._runs.left_out += left_out
            self._say(f"{left_out} error runs fell due during another one and were left out")
        return self._cron.next_after(now) if due <= now else due

    def _try_run(self, spark: Any) -> None:
        self._number += 1
        folder = self._folder / str(self._number)
        try:
            with only_run(self._app.name):
                self._run(spark, folder)
        except _UnderWayError:
            self._runs.left_out += 1
            self._say("an error run fell due while one by hand is under way and was left out")
        except Exception as error:  # noqa: BLE001 - py4j raises its own kinds; none may end the app's own queries
            if not self._is_ending:
                self._runs.failed += 1
                reason = str(error) if isinstance(error, LanewayError) else f"{type(error).__name__}: {error}"
                self._say(f"an error run failed: {reason.partition(chr(10))[0]}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, spark: Any, folder: Path) -> None:
        is_old = time.monotonic() - self._refreshed >= _REFRESH
        streams = error_streams(
            self._app,
            self._settings,
            folder,
            payload=self._payload,
            refresh=is_old,
            is_stopping=self._stopping.is_set,
        )
        if is_old:
            self._refreshed = time.monotonic()
        if self._stopping.is_set():
            return
        self._queries = [TopicQuery(stream, self._batch_done) for stream in streams]
        started: list[TopicQuery] = []
        try:
            for stream, query in zip(streams, self._queries, strict=True):
                query.start(
                    spark,
                    checkpoint=(folder / "checkpoint" / Path(stream.control).name).as_uri(),
                    trigger=timedelta(0),
                    once=True,
                    name=f"laneway_{hashlib.sha256(f'{stream.app}/{stream.topic}'.encode()).hexdigest()[:16]}",
                )
                started.append(query)
            self._await(started)
        finally:
            for query in started:
                query.end()
        self._runs.runs += 1
        if self._is_noted:
            self._is_noted = False
            self._note("")

    def _await(self, queries: list[TopicQuery]) -> None:
        is_asked = False
        while any(query.is_active for query in queries) and not self._is_ending:
            if not is_asked and (self._stopping.is_set() or self._is_paused):
                is_asked = True
                for query in queries:
                    query.ask_to_stop()
            if is_asked and all(query.is_drained for query in queries):
                return
            time.sleep(_LOOK)
        for query in queries:
            query.raise_if_failed()

    def _say(self, text: str) -> None:
        self._is_noted = True
        self._note(text)


def _now() -> datetime:
    return datetime.now(UTC)
