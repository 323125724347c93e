"""Runs over an app's error topics: what a run reads, and when runs begin."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from laneway._core.error_run_filter import end_of_run, next_run
from laneway._declare.error_consumer import ErrorConsumer
from laneway._runtime.configure import cluster_of
from laneway._runtime.error_app import ErrorApp
from laneway.admin import ErrorLog, error_topics_of
from laneway.errors import EngineError, LanewayError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from laneway._declare.app import App
    from laneway._declare.cron import Cron
    from laneway._declare.error_consumer import ErrorRuns
    from laneway._declare.handler import HandlerSpec
    from laneway._runtime.driver import Driver, StopRequests
    from laneway._runtime.lifecycle import Lifecycle
    from laneway._runtime.report import Reporter
    from laneway._runtime.run import AppEngine
    from laneway.admin import ErrorTopic, OpenRange
    from laneway.settings import Settings

__all__ = ["ErrorPlan", "ErrorSchedule", "error_plans", "only_run", "run_plans"]

_LOOK = 0.02  # seconds between checks of a run
_LONGEST_WAIT = 20.0  # seconds of one wait, so that a changed clock delays a run no longer
_REFRESH = 6 * 3600.0  # seconds between commits of an idle group, before Kafka expires them
_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)

_running: set[str] = set()
_lock = threading.Lock()


class _UnderWayError(EngineError): ...


@contextmanager
def only_run(app: str) -> Iterator[None]:
    """Prevent concurrent runs over an app's error topics in this process.

    Raises:
        EngineError: one is running.
    """
    with _lock:
        if app in _running:
            raise _UnderWayError(f"a run over the error topics of app {app!r} is active; wait for its end")
        _running.add(app)
    try:
        yield
    finally:
        with _lock:
            _running.discard(app)


@dataclass(frozen=True, slots=True)
class ErrorPlan:
    """The part of a run on one error topic."""

    topic: ErrorTopic
    app: ErrorApp
    routes: list[HandlerSpec]
    """The app's handlers that park there."""
    ends: dict[int, int]
    """Where the run ends in each partition."""
    partitions: dict[str, int]
    """Partition counts of the topics that records may be replayed to."""
    idle: timedelta
    """How long to wait for a record before the run ends."""


def error_plans(
    app: App,
    settings: Settings,
    *,
    topic: str | None = None,
    refresh: bool = True,
    is_stopping: Callable[[], bool] = lambda: False,
) -> list[ErrorPlan]:
    """The plans of a run that starts now: one for each error topic with open records.

    The ends are fixed here, so a record parked during the run waits for the next one.

    With *refresh* it also commits the offsets of topics without open records, before Kafka expires them: otherwise
    everything ever parked would be run again.

    Raises:
        BrokerUnavailableError: no broker answers.
    """
    started = time.time() * 1000
    consumer = app.errors or ErrorConsumer()
    within = consumer.new / _MILLISECOND
    plans = []
    for found in _topics(app, settings):
        if topic not in (None, found.name) or is_stopping():
            continue
        with ErrorLog(found) as log:
            partitions = {name: count for name, count in log.partitions().items() if name in found.sources}
            extents = log.extents()
            ends = {
                part: end_of_run(_parked(log, part, extent, is_stopping), extent.end, started=started, within=within)
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
        all_ends = {each: ends.get(each, extent.open) for each, extent in extents.items()}
        plans.append(ErrorPlan(found, errors, routes, all_ends, partitions, consumer.idle))
    return plans


def _commit_anew(log: ErrorLog, extents: dict[int, OpenRange]) -> None:
    for part, extent in extents.items():
        if extent.committed is not None and extent.committed <= extent.end:
            log.commit(part, extent.committed)


def _topics(app: App, settings: Settings) -> list[ErrorTopic]:
    return error_topics_of(app, lambda route: settings.cluster(cluster_of(route, settings)))


def _parked(
    log: ErrorLog, partition: int, extent: OpenRange, is_stopping: Callable[[], bool]
) -> Iterator[tuple[int, float | None]]:
    """Offset and parking time, in milliseconds, of the open records of a partition."""
    for parked in log.read(partition, extent.open, extent.end):
        if is_stopping():
            return
        yield parked.place.offset, None if parked.parked_at is None else (parked.parked_at - _EPOCH) / _MILLISECOND


def run_plans(
    source: AppEngine, plans: Sequence[ErrorPlan], reporter: Reporter, until: StopRequests, settings: Settings
) -> bool:
    """Run plans to their ends, or until interrupted; False when records in flight were not finished and committed."""
    is_good = True
    for driver in source.drivers(plans, reporter):
        is_good &= _run_to_end(driver, until, settings.drain.total_seconds())
        if until.is_interrupted:
            break
    reporter.flush()
    return is_good


def _run_to_end(driver: Driver, until: StopRequests, drain: float) -> bool:
    try:
        driver.start()
        while not (driver.is_over or until.is_interrupted):
            driver.look()
            time.sleep(_LOOK)
        driver.stop()
        deadline = time.monotonic() + drain
        while not (driver.is_finished or until.is_forced) and time.monotonic() < deadline:
            driver.look()
            time.sleep(_LOOK)
        is_finished = driver.is_finished
        driver.look()  # it may have failed
    finally:
        is_committed = driver.end(until)
    return is_finished and is_committed


class ErrorSchedule:
    """Starts error runs on their schedule, on its own thread.

    The engine's thread calls `ask_to_stop`, `pause` and `end`. A failed run is logged; the next one continues where it
    stopped.
    """

    def __init__(
        self,
        app: App,
        cron: Cron,
        *,
        settings: Settings,
        source: AppEngine,
        reporter: Reporter,
        life: Lifecycle,
        runs: ErrorRuns,
    ) -> None:
        self._app = app
        self._cron = cron
        self._settings = settings
        self._source = source
        self._reporter = reporter
        self._life = life
        self._runs = runs
        self._refreshed = -_REFRESH
        self._stopping = threading.Event()
        self._is_paused = False
        self._is_ending = False
        self._has_detail = False
        self._is_at_work = False
        self._thread: threading.Thread | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether no run is active."""
        return not self._is_at_work

    @property
    def is_interrupted(self) -> bool:
        return self._stopping.is_set() or self._is_paused or self._is_ending

    @property
    def is_forced(self) -> bool:
        return self._is_ending

    @property
    def is_drained(self) -> bool:
        """Whether no run is active and none will start."""
        return self._stopping.is_set() and (self._thread is None or not self._thread.is_alive())

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="laneway-errors", daemon=True)
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Finish the running batch, and start nothing more."""
        self._stopping.set()

    def pause(self, *, on: bool) -> None:
        """Start no run for now, or continue. An active run ends after its batch; the next one continues from there."""
        self._is_paused = on

    def end(self) -> None:
        """Stop now."""
        self._stopping.set()
        self._is_ending = True
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _work(self) -> None:
        due = self._cron.next_after(_now())
        while not self._stopping.is_set():
            now = _now()
            # A clock that was set back brings an earlier time; one that was set forward brings it at once.
            due = min(due, self._cron.next_after(now))
            if now < due:
                self._stopping.wait(min((due - now).total_seconds(), _LONGEST_WAIT))
                continue
            if not self._is_paused:
                self._try_run()
            due = self._next(after=due)

    def _next(self, after: datetime) -> datetime:
        """The next due time; runs that were due meanwhile are counted as left out."""
        due, left_out = next_run(self._cron, after, _now())
        if left_out and not self._stopping.is_set():
            self._runs.left_out += left_out
            self._say(f"{left_out} error runs were due during another one and were skipped")
        return due

    def _try_run(self) -> None:
        is_old = time.monotonic() - self._refreshed >= _REFRESH
        self._is_at_work = True
        try:
            with only_run(self._app.name):
                self._run(refresh=is_old)
        except _UnderWayError:
            self._runs.left_out += 1
            self._say("a scheduled error run was skipped, because a manual one is active")
        except Exception as error:  # noqa: BLE001 - py4j raises its own kinds; none may end the app's own work
            if not self._is_ending:
                self._runs.failed += 1
                reason = str(error) if isinstance(error, LanewayError) else f"{type(error).__name__}: {error}"
                self._say(f"an error run failed: {reason.partition(chr(10))[0]}")
        finally:
            self._is_at_work = False

    def _run(self, *, refresh: bool) -> None:
        """Run once over the error topics, until interrupted.

        With *refresh* it also commits the offsets of topics without open records.
        """
        plans = error_plans(self._app, self._settings, refresh=refresh, is_stopping=self._stopping.is_set)
        if refresh:
            self._refreshed = time.monotonic()
        if self._stopping.is_set() or not run_plans(self._source, plans, self._reporter, self, self._settings):
            return
        self._runs.runs += 1
        if self._has_detail:
            self._has_detail = False
            self._life.note("")

    def _say(self, text: str) -> None:
        self._has_detail = True
        self._life.note(text)


def _now() -> datetime:
    return datetime.now(UTC)
