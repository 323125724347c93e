"""DirectEngine: runs an app in this process, as a member of its consumer group."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from contextlib import ExitStack
from typing import TYPE_CHECKING

from laneway._life import Life, State
from laneway._route import check_together
from laneway.engines._configured import cluster_of, configured, effective
from laneway.engines._error_runs import error_plans, only_run
from laneway.engines._report import RunReport
from laneway.engines._signals import stop_signals
from laneway.engines._topics import prepare_topics, until_ready
from laneway.engines.direct._crew import Crew
from laneway.engines.direct._errors import DirectErrorSchedule, ErrorRun
from laneway.engines.direct._host import AppHost
from laneway.errors import DeclarationError
from laneway.events import BatchHandled, RecordEvent, StateChanged
from laneway.instrumentation import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway._app import App
    from laneway._route import Route
    from laneway.events import Event
    from laneway.kafka import Place
    from laneway.settings import Settings

__all__ = ["DirectEngine"]

_LOOK = 0.02  # seconds between looks at what runs
_REPORT = 0.25  # seconds between two tallies
_LEAVE = 15.0  # seconds that the last commit and leaving the group may take
_MOST_EVENTS = 10_000  # events that wait to be told; they are examples


class DirectEngine:
    """Runs an app's handlers in this process: milliseconds from a record to its handler, no Spark.

    Start as many processes as you like: the consumer group shares the partitions out.

    Args:
        settings: the configuration; read from ``laneway.yaml`` and the environment by default.
        once: handle what there is and stop.
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
        batch_done: Callable[[str, int, Tally], None] | None = None,
        state_changed: Callable[[State, str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._once = once
        self._batch_done = batch_done
        self._state_changed = state_changed
        self._app: App | None = None
        self.life = Life(self._entered)
        self._stops = 0
        self._is_paused = False
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

        Any thread may call it; a signal handler too.
        """
        self._stops += 1
        self._wake.set()

    def pause(self) -> None:
        """Read nothing until `resume`; what was read is finished. The process stays in its group."""
        self._set_paused(on=True)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._set_paused(on=False)

    def run(self, app: App) -> RunReport:
        """Run until stopped, or with *once* until everything that waits is handled."""
        if not app.routes:
            raise DeclarationError(f"app {app.name!r} has no handlers; declare one with @app.handler(topic)")
        settings = effective(self._settings, {})
        app = configured(app, settings)
        check_together(app.name, app.routes)
        self._app = app
        report = RunReport(app.name)
        with ExitStack() as stack:
            stack.callback(self.life.enter, State.STOPPED)
            stack.enter_context(stop_signals(self.stop))
            self.life.enter(State.INITIALISING)
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
            try:
                self._consume(report, settings)
            finally:
                if self._errors is not None:
                    self._errors.end()
                for crew in crews:
                    crew.end(_LEAVE)
                self._report(report, is_last=True)
                for crew in crews:
                    report.tally.gaps += crew.member.gaps
                    report.tally.lost += crew.member.gone
                self._crews = []  # clients live as long as somebody holds them
        return report

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
            stack.callback(self.life.enter, State.STOPPED)
            stack.enter_context(stop_signals(self.stop))
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
                report.was_forced = not run.run(plan, self._is_stopping)
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
        by_cluster: dict[str, list[Route]] = {}
        for route in app.routes:
            name = cluster_of(route, settings) or settings.default_cluster
            by_cluster.setdefault(name, []).append(route)
        return [
            Crew(
                app.name,
                routes,
                settings.cluster(name),
                settings,
                loop=lambda: host.loop,
                tell=self._tell,
                note=self.life.note,
                hooks=(app.setups, app.cleanups),
            )
            for name, routes in by_cluster.items()
        ]

    def _consume(self, report: RunReport, settings: Settings) -> None:
        ends = self._ends(settings) if self._once else None
        if self._once and ends is None:
            return
        for crew in self._crews:
            crew.start()
        self.life.enter(State.CONSUMING)
        self._set_paused(on=self._is_paused)
        if self._errors is not None:
            self._errors.start()
        while not self._stops:
            self._look(report)
            if ends is not None and all(crew.member.is_past(ends[number]) for number, crew in enumerate(self._crews)):
                break
            self._wake.wait(_LOOK)
        self.life.enter(State.STOPPING, "finishing what was begun")
        report.was_forced = self._drain(report, settings.drain.total_seconds())

    def _ends(self, settings: Settings) -> list[dict[Place, int]] | None:
        return until_ready(
            lambda: [crew.ends() for crew in self._crews], settings, self.life, self._is_stopping, self._wake
        )

    def _drain(self, report: RunReport, limit: float) -> bool:
        """Finish what was begun; True when there was no time for it."""
        deadline, asked = time.monotonic() + limit, self._stops
        for crew in self._crews:
            crew.stop()
        if self._errors is not None:
            self._errors.ask_to_stop()
        self._wake.clear()
        while not self._is_drained:
            self._look(report)
            if self._stops > max(1, asked) or time.monotonic() > deadline:
                return True
            self._wake.wait(_LOOK)
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
        if not (tally.read or tally.finished or tally.retried or tally.undelivered):
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
            for station in crew.stations:
                news = station.news()
                found.setdefault(station.route.source or station.route.topic.name, Tally()).add(news)
        return found

    def _tell(self, event: Event) -> None:
        """Keep an event until it is told; of each kind of record events a few at a time. Any thread may call it."""
        if isinstance(event, RecordEvent):
            self._kept[type(event)] += 1
            if self._kept[type(event)] > event.most:
                return
        self._events.append(event)

    def _is_stopping(self) -> bool:
        return self._stops > 0

    def _entered(self, state: State, detail: str) -> None:
        if self._state_changed is not None:
            self._state_changed(state, detail)
        if self._app is not None:
            self._app.tell(StateChanged(state.value, detail))

    def _set_paused(self, *, on: bool) -> None:
        self._is_paused = on
        for crew in self._crews:
            crew.member.pause(on=on)
        if self._errors is not None:
            self._errors.pause(on=on)
        if self.life.state in (State.CONSUMING, State.PAUSED):
            self.life.enter(State.PAUSED if on else State.CONSUMING)
