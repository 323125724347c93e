"""DirectEngine: runs an app in this process, as a member of its consumer group."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter, deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from laneway._declare.handler import check_together
from laneway._declare.units import as_duration
from laneway._engines.direct.check import HealthCheck
from laneway._engines.direct.crew import Crew
from laneway._engines.direct.errors import DirectErrorSchedule, ErrorRun
from laneway._engines.direct.hold import Hold
from laneway._engines.direct.watch import Watch
from laneway._garbage import collecting_rarely
from laneway._runtime.configure import cluster_of, configured, effective, warn_unused_topics
from laneway._runtime.error_runs import error_plans, only_run
from laneway._runtime.host import AppHost
from laneway._runtime.lifecycle import Lifecycle, State
from laneway._runtime.report import RunReport
from laneway._runtime.signals import stop_signals
from laneway._runtime.status_file import StatusFile
from laneway._runtime.topics import prepare_topics, until_ready
from laneway.errors import DeclarationError
from laneway.events import BatchHandled, RecordEvent, StateChanged
from laneway.observe import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway._declare.app import App
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.health import Health, Stall
    from laneway._declare.units import Duration
    from laneway._kafka import Place
    from laneway.events import Event
    from laneway.settings import Settings

__all__ = ["DirectEngine"]

_LOOK = 0.02  # seconds between looks at what runs
_REPORT = 0.25  # seconds between two tallies
_MOST_EVENTS = 10_000  # events that wait to be told; they are examples


class DirectEngine:
    """Runs an app's handlers in this process: milliseconds from a record to its handler, no Spark.

    Start as many processes as you like: the consumer group shares the partitions out.

    Args:
        settings: the configuration; read from ``laneway.yaml`` and the environment by default.
        once: handle what there is and stop.
        healthy: called about once a second, sync or async. While it gives False, raises or does not answer for five
            seconds, nothing is read; what was read is finished, and the process stays in its group.
        minimum_brokers: how many brokers there should be; with fewer the health is a warning. Wins over the settings.
        stalled_after: for how long a partition with work may stand still before that is a warning. Wins over them too.
        batch_done: called a few times a second with topic, a number and the tally of what was done since.
        state_changed: called with each new state and a detail in words.

    Example::

        app.run(DirectEngine())
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        once: bool = False,
        healthy: Callable[[], Any] | None = None,
        minimum_brokers: int | None = None,
        stalled_after: Duration | None = None,
        batch_done: Callable[[str, int, Tally], None] | None = None,
        state_changed: Callable[[State, str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._once = once
        self._healthy = healthy
        self._batch_done = batch_done
        self._state_changed = state_changed
        self._app: App | None = None
        self.life = Lifecycle(self._entered)
        self._watch = Watch(self.life)
        self._minimum_brokers = minimum_brokers
        self._stalled_after = None if stalled_after is None else as_duration(stalled_after)
        self._hold = Hold(self.life)
        self._stops = 0
        self._is_deaf = self._is_closed = False
        self._wake = threading.Event()
        self._crews: list[Crew] = []
        self._errors: DirectErrorSchedule | None = None
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self._kept: Counter[type] = Counter()
        self._reported = 0.0
        self._number = 0
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Ask to stop. The first time what was begun is finished and committed; the second time it is not.

        While nothing runs it ends the next run at once. Any thread may call it.
        """
        self._stops += 1
        self._wake.set()

    def stop_listening(self) -> None:
        """Ask to read nothing more. What was begun is finished and committed, however long it takes.

        When the state is ``stopped``, nothing runs any more; the process is still in its group, and its partitions are
        read by nobody, until `close` or `stop`. Any thread may call it.
        """
        self._is_deaf = True
        self._wake.set()

    def close(self) -> None:
        """Ask to leave, as `stop` does, but never by force; at the end the state is ``closed``.

        Any thread may call it.
        """
        self._is_closed = True
        self._stops = max(1, self._stops)
        self._wake.set()

    def health(self) -> Health:
        """How it is doing now, and why. Any thread may call it, whether it runs or not and whoever answers."""
        return self._watch.health()

    def why(self, after: Duration = "1s") -> list[Stall]:
        """What stands still for at least so long, and what it waits for; the longest first. Any thread may call it."""
        return self._watch.why(as_duration(after).total_seconds())

    def _signalled(self) -> None:
        """As `stop`, by a signal: it may have come while this very thread held the event's lock, so only a count."""
        self._stops += 1

    def pause(self) -> None:
        """Read nothing until `resume`; what was read is finished. The process stays in its group."""
        self._hold.ask(on=True)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._hold.ask(on=False)

    def run(self, app: App) -> RunReport:
        """Run until stopped, or with *once* until everything that waits is handled; it may run again after that."""
        if not app.routes:
            raise DeclarationError(f"app {app.name!r} has no handlers; declare one with @app.handler(topic)")
        settings = effective(self._settings, {})
        warn_unused_topics(app, settings)
        given, app = app, configured(app, settings)
        check_together(app.name, app.routes)
        self._app = app
        report = RunReport(app.name)
        with ExitStack() as stack:
            stack.callback(self._ended)
            stack.enter_context(stop_signals(self._signalled))
            self.life.enter(State.INITIALISING)
            given.engine = weakref.ref(self)
            stack.callback(setattr, given, "engine", None)
            self._watch.minimum_brokers = self._minimum_brokers or settings.health.minimum_brokers
            self._watch.stalled_after = (self._stalled_after or settings.health.stalled_after).total_seconds()
            self._watch.begin(StatusFile(app.name))
            stack.callback(self._watch.end)
            if not prepare_topics(app, settings, self.life, self._is_stopping, self._wake):
                return report
            self.life.enter(State.STARTING)
            host = AppHost(app)
            stack.callback(host.close)
            host.open()
            crews = until_ready(
                lambda: self._crews_of(app, settings, host), settings, self.life, self._is_stopping, self._wake
            )
            if not crews:
                return report
            self._crews = crews
            self._errors = self._scheduled(app, settings, host, report)
            stack.enter_context(collecting_rarely())
            self._work(report, settings, host)
        return report

    def _work(self, report: RunReport, settings: Settings, host: AppHost) -> None:
        crews = self._crews
        check = None if self._healthy is None else HealthCheck(self._healthy, lambda: host.loop)
        self._watch.attend(crews, check)
        self._hold.attend(crews, self._errors, check)
        try:
            if check is not None:
                check.start()
            self._consume(report, settings)
        finally:
            self.life.enter(State.CLOSING, "leaving the group")
            asked = self._stops
            if check is not None:
                check.end()
            if self._errors is not None:
                self._errors.end()
            for crew in crews:
                report.was_forced |= not crew.end(lambda: self._stops > max(1, asked))
            self._report(report, is_last=True)
            for crew in crews:
                report.tally.gaps += crew.worker_loop.status().gaps
            self._watch.attend((), None)
            self._hold.attend((), None, None)
            self._crews = []  # clients live as long as somebody holds them

    def run_errors(self, app: App, *, topic: str | None = None) -> RunReport:
        """Run once over the error topics of an app, now, as its `ErrorConsumer` and the configuration say.

        Args:
            app: whose parked records to take up.
            topic: only this error topic.

        Raises:
            EngineError: a run of this process is under way already.
        """
        settings = effective(self._settings, {})
        app = configured(app, settings)
        self._app = app
        report = RunReport(app.name)
        with ExitStack() as stack:
            stack.enter_context(only_run(app.name))
            stack.callback(self._ended)
            stack.enter_context(stop_signals(self._signalled))
            self.life.enter(State.INITIALISING)
            plans = until_ready(
                lambda: error_plans(app, settings, topic=topic, is_stopping=self._is_stopping),
                settings, self.life, self._is_stopping, self._wake,
            )  # fmt: skip
            if not plans:
                return report
            self.life.enter(State.STARTING)
            host = AppHost(app)
            stack.callback(host.close)
            host.open()
            run = self._error_run(settings, host, report, report.tally)
            self.life.enter(State.CONSUMING)
            for plan in plans:
                report.was_forced |= not run.run(plan, self._is_stopping, lambda: self._stops > 1)
                if self._stops:
                    break
            self._tell_events()
        return report

    def _error_run(self, settings: Settings, host: AppHost, report: RunReport, total: Tally) -> ErrorRun:
        def done(topic: str, tally: Tally) -> None:
            total.add(tally)
            self._told(report, topic, tally)

        return ErrorRun(settings, loop=lambda: host.loop, tell=self._tell, note=self.life.note, done=done)

    def _scheduled(self, app: App, settings: Settings, host: AppHost, report: RunReport) -> DirectErrorSchedule | None:
        """The schedule of runs over the error topics, if there is one."""
        cron = None if app.errors is None or self._once else app.errors.due
        if cron is None:
            return None
        run = self._error_run(settings, host, report, report.errors.tally)
        return DirectErrorSchedule(app, cron, settings=settings, run=run, note=self.life.note, runs=report.errors)

    def _crews_of(self, app: App, settings: Settings, host: AppHost) -> list[Crew]:
        by_cluster: dict[str, list[HandlerSpec]] = {}
        for route in app.routes:
            by_cluster.setdefault(cluster_of(route, settings), []).append(route)
        return [
            Crew(
                app.name,
                routes,
                settings.cluster(name),
                settings,
                loop=lambda: host.loop,
                tell=self._tell,
                note=self._watch.note,
                hooks=(app.setups, app.cleanups),
            )
            for name, routes in by_cluster.items()
        ]

    def _consume(self, report: RunReport, settings: Settings) -> None:
        ends = self._ends(settings) if self._once else None
        if self._once and ends is None:
            return
        self._hold.apply()  # before anything can be read
        for crew in self._crews:
            crew.start()
        self.life.enter(State.CONSUMING)
        if self._errors is not None:
            self._errors.start()
        while not (self._stops or self._is_deaf):
            self._hold.apply()
            self._look(report)
            if ends is not None and all(crew.is_past(ends[number]) for number, crew in enumerate(self._crews)):
                break
            self._wake.wait(_LOOK)
        self.life.enter(State.STOPPING, "finishing what was begun")
        report.was_forced = self._drain(report, settings.drain.total_seconds())
        if self._is_deaf and not self._stops:
            self.life.enter(State.STOPPED, "nothing more is read; it is still in its group")
            while not self._stops:
                self._look(report)
                self._wake.wait(_LOOK)

    def _ends(self, settings: Settings) -> list[dict[Place, int]] | None:
        return until_ready(
            lambda: [crew.monitor.ends() for crew in self._crews], settings, self.life, self._is_stopping, self._wake
        )

    def _drain(self, report: RunReport, limit: float) -> bool:
        """Finish what was begun; True when there was no time for it."""
        deadline, asked = None, self._stops
        for crew in self._crews:
            crew.stop()
        if self._errors is not None:
            self._errors.ask_to_stop()
        self._wake.clear()
        while not self._is_drained:
            self._look(report)
            if deadline is None and (self._stops or not self._is_deaf):
                deadline = time.monotonic() + limit
            if self._stops > max(1, asked) or (deadline is not None and time.monotonic() > deadline):
                return True
            if self._wake.wait(_LOOK):
                self._wake.clear()
        self._look(report)
        return False

    @property
    def _is_drained(self) -> bool:
        errors = self._errors is None or self._errors.is_drained
        return errors and all(crew.is_finished for crew in self._crews)

    def _look(self, report: RunReport) -> None:
        for crew in self._crews:
            crew.raise_if_failed()
        self._report(report)

    def _report(self, report: RunReport, *, is_last: bool = False) -> None:
        """Tell what happened since the last time."""
        now = time.monotonic()
        self._tell_events()
        if now - self._reported < _REPORT and not is_last:
            return
        self._reported = now
        self._kept.clear()
        for topic, tally in self._news().items():
            report.tally.add(tally)
            self._told(report, topic, tally)

    def _told(self, report: RunReport, topic: str, tally: Tally) -> None:
        if not (tally.read or tally.finished or tally.retried or tally.undelivered or tally.lost):
            return
        with self._lock:
            self._number += 1
            number = self._number
            report.batches += 1
        if self._batch_done is not None:
            self._batch_done(topic, number, tally)
        if self._app is not None:
            self._app.tell(BatchHandled(topic, number, tally))

    def _tell_events(self) -> None:
        if self._events and self._app is not None:
            self._app.tell(*[self._events.popleft() for _ in range(len(self._events))])

    def _news(self) -> dict[str, Tally]:
        found: dict[str, Tally] = {}
        for crew in self._crews:
            for topic, news in crew.news().items():
                found.setdefault(topic, Tally()).add(news)
        return found

    def _tell(self, event: Event) -> None:
        """Keep an event until it is told; of each kind of record events a few at a time. Any thread may call it."""
        self._watch.hear(event)
        if isinstance(event, RecordEvent):
            self._kept[type(event)] += 1
            if self._kept[type(event)] > event.most:
                return
        self._events.append(event)

    def _is_stopping(self) -> bool:
        return self._stops > 0 or self._is_deaf

    def _entered(self, state: State, detail: str) -> None:
        if self._state_changed is not None:
            self._state_changed(state, detail)
        if self._app is not None:
            self._app.tell(StateChanged(state.value, detail))

    def _ended(self) -> None:
        state = State.CLOSED if self._is_closed else State.STOPPED
        # What ended this run must not end the next one. Before the state: who waits for it may start the next run.
        self._stops, self._is_deaf, self._is_closed = 0, False, False
        self._wake.clear()
        self.life.enter(state)
