"""AppEngine: what all engines do to run an app: settings, topics, states, stops, pauses, health, error runs, report."""

from __future__ import annotations

import time
import weakref
from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from laneway._declare.handler import check_together
from laneway._declare.state import State
from laneway._declare.units import as_duration
from laneway._runtime.configure import configured, warn_unused_topics
from laneway._runtime.controls import EngineControls
from laneway._runtime.dedup_stores import check_stores
from laneway._runtime.driver import Run
from laneway._runtime.error_runs import ErrorSchedule, error_plans, only_run, run_plans
from laneway._runtime.health.check import HealthCheck, check_function
from laneway._runtime.lifecycle import stop_signals
from laneway._runtime.report import Reporter, RunReport
from laneway._runtime.status_file import StatusFile
from laneway._runtime.topics import prepare_topics, until_ready
from laneway.errors import DeclarationError
from laneway.settings import effective

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from laneway._declare.app import App
    from laneway._declare.units import Duration
    from laneway._runtime.driver import Driver
    from laneway._runtime.error_runs import ErrorPlan
    from laneway._runtime.health.monitor import HealthMonitor
    from laneway._runtime.host import LoopOwner
    from laneway.observe import Event, Listener
    from laneway.settings import Settings

__all__ = ["AppEngine", "EngineOptions"]


@dataclass(slots=True)
class _StateListener:
    """Passes changes of the state to the app's subscribers and to the engine's listener, at once."""

    listener: Listener | None
    app: App | None = None

    def event(self, event: Event) -> None:
        if self.app is not None:
            self.app.tell(event)
        if self.listener is not None:
            self.listener.event(event)

    def note(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class _WorkListener:
    """Takes events and warnings from the worker threads."""

    reporter: Reporter
    health: HealthMonitor

    def event(self, event: Event) -> None:
        self.reporter.keep(event)

    def note(self, text: str) -> None:
        self.health.note(text)


class EngineOptions(TypedDict, total=False):
    """The options that every engine has; see `AppEngine`."""

    once: bool
    healthy: Callable[[], Any] | None
    minimum_brokers: int | None
    stalled_after: Duration | None
    listener: Listener | None


class AppEngine(EngineControls, ABC):
    """Runs an app until it is stopped. An engine implements `_open`, `_driver` and `drivers`.

    Args:
        settings: the configuration; read from ``laneway.yaml`` and the environment by default.
        overrides: settings by dotted key; None values are ignored.
        once: handle the records present at the start, then stop.
        healthy: called about once a second; while it fails, no call is started.
        minimum_brokers: with fewer brokers the health is a warning.
        stalled_after: how long a partition with work may make no progress.
        listener: receives states, batches and events.
    """

    _look = 0.02
    is_one_process = True
    """Whether all handlers of a run are in this process."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        overrides: Mapping[str, Any] | None = None,
        once: bool = False,
        healthy: Callable[[], Any] | None = None,
        minimum_brokers: int | None = None,
        stalled_after: Duration | None = None,
        listener: Listener | None = None,
    ) -> None:
        self._settings = settings
        self._overrides = dict(overrides or {})
        self._once = once
        self._healthy = healthy
        self._minimum_brokers = minimum_brokers
        self._stalled_after: timedelta | None = None if stalled_after is None else as_duration(stalled_after)
        self._listener = listener
        self._states = _StateListener(listener)
        super().__init__(self._states)
        self._driver_now: Driver | None = None

    def run(self, app: App) -> RunReport:
        """Run until stopped, or with *once* until all present records are handled. It can run again afterwards."""
        if not app.routes:
            raise DeclarationError(f"app {app.name!r} has no handlers; declare one with @app.handler(topic)")
        settings = effective(self._settings, self._overrides)
        warn_unused_topics(app, settings)
        given, app = app, configured(app, settings)
        check_together(app.name, app.routes)
        check_stores(app, is_one_process=self.is_one_process)
        check = self._healthy or check_function(settings)
        with ExitStack() as stack:
            run = self._begin_run(app, settings, stack)
            given.engine = weakref.ref(self)
            stack.callback(setattr, given, "engine", None)
            self._health.begin(
                StatusFile(app.name),
                stalled_after=self._stalled_after or settings.health.stalled_after,
                minimum_brokers=self._minimum_brokers or settings.health.minimum_brokers,
            )
            stack.callback(self._health.end)
            if not prepare_topics(app, settings, self.life, self._is_stopping, self._wake):
                return run.report
            self.life.enter(State.STARTING)
            self._open(run, stack)
            while self._run_driver(run, check):
                self.life.enter(State.STARTING)
        return run.report

    def run_errors(self, app: App, *, topic: str | None = None) -> RunReport:
        """Run once over an app's error topics, as its `ErrorConsumer` and the configuration say.

        Args:
            app: the app.
            topic: only this error topic.

        Raises:
            EngineError: such a run is active in this process.
        """
        settings = effective(self._settings, self._overrides)
        app = configured(app, settings)
        with ExitStack() as stack:
            stack.enter_context(only_run(app.name))
            run = self._begin_run(app, settings, stack)
            plans = until_ready(
                lambda: error_plans(app, settings, topic=topic, is_stopping=self._is_stopping),
                settings, self.life, self._is_stopping, self._wake,
            )  # fmt: skip
            if not plans or self._stops:
                return run.report
            self.life.enter(State.STARTING)
            self._open(run, stack)
            self.life.enter(State.CONSUMING)
            run.report.was_forced = not run_plans(self, plans, run.reporter, self, settings)
        return run.report

    @abstractmethod
    def _open(self, run: Run, stack: ExitStack) -> None:
        """Open the resources of a run; the stack closes them."""

    @abstractmethod
    def _driver(self, run: Run) -> Driver:
        """A driver for one round of reading; it is not used again after `stop`.

        Raises:
            BrokerUnavailableError: no broker answers; call it again.
        """

    @abstractmethod
    def drivers(self, plans: Sequence[ErrorPlan], reporter: Reporter) -> Iterable[Driver]:
        """Drivers of error runs during a run, for one after the other; each ends at the ends of its plans."""

    @property
    def _loops(self) -> LoopOwner | None:
        """Has the loop that an async health check runs on; None for its own loop."""
        return None

    def _begin_run(self, app: App, settings: Settings, stack: ExitStack) -> Run:
        """Set up signals, state and report of a run."""
        report = RunReport(app.name)
        self._states.app = app
        reporter = Reporter(app, report, report.tally, self._listener)
        self._began()
        stack.callback(self._ended)
        stack.enter_context(stop_signals(self._signalled))
        self.life.enter(State.INITIALISING)
        return Run(app, settings, report, reporter, _WorkListener(reporter, self._health), self._once)

    def _run_driver(self, run: Run, healthy: Callable[[], Any] | None) -> bool:
        """Read and handle records until stopped; True if `start` requests another round."""
        driver = until_ready(lambda: self._driver(run), run.settings, self.life, self._is_stopping, self._wake)
        if driver is None:
            return self._is_restarted()
        errors = self._error_schedule(run)
        check = None if healthy is None else HealthCheck(healthy, self._loops)
        self._driver_now = driver
        with self._monitored(driver, errors, check):
            try:
                self._consume(run, driver, errors)
            finally:
                self.life.enter(State.CLOSING, "closing")
                self._seen_stops = self._stops
                if errors is not None:
                    errors.end()
                run.report.was_forced |= not driver.end(self)
                run.reporter.flush()
        return self._is_restarted()

    def _is_restarted(self) -> bool:
        """Whether `start` was the last call after `stop_listening`."""
        if self._stops or not self._start_requested:
            return False
        self._is_not_listening = self._start_requested = False
        return True

    @contextmanager
    def _monitored(self, driver: Driver, errors: ErrorSchedule | None, check: HealthCheck | None) -> Iterator[None]:
        """Apply health checks and pauses to the driver in this block."""
        self._health.watch(driver.watched(), check)
        self._pause.watch([driver] if errors is None else [driver, errors], check)
        if check is not None:
            check.start()
        try:
            yield
        finally:
            if check is not None:
                check.end()
            self._health.watch((), None)
            self._pause.watch((), None)
            self._driver_now = None

    def _error_schedule(self, run: Run) -> ErrorSchedule | None:
        """The schedule of error runs, if there is one."""
        cron = None if run.app.errors is None or run.is_once else run.app.errors.due
        if cron is None:
            return None
        reporter = Reporter(run.app, run.report, run.report.errors.tally, self._listener)
        return ErrorSchedule(
            run.app,
            cron,
            settings=run.settings,
            source=self,
            reporter=reporter,
            life=self.life,
            runs=run.report.errors,
        )

    def _consume(self, run: Run, driver: Driver, errors: ErrorSchedule | None) -> None:
        if not until_ready(driver.prepare, run.settings, self.life, self._is_stopping, self._wake):
            return
        self._pause.apply()  # before anything can be read
        driver.start()
        self.life.enter(State.CONSUMING)
        if errors is not None:
            errors.start()
        while not (self._stops or self._is_not_listening or driver.is_over):
            self._pause.apply()
            driver.look()
            if self._wake.wait(self._look):
                self._wake.clear()
        self.life.enter(State.STOPPING, "finishing records in flight")
        run.report.was_forced |= self._drain(run, driver, errors)
        while self._is_not_listening and not self.is_interrupted and not driver.is_committed:
            driver.look()
            self._wake.wait(self._look)
        if self._is_not_listening and not self._stops:
            self.life.enter(State.STOPPED, "not reading; call start() to continue")
            while not (self.is_interrupted or self._start_requested):
                driver.look()
                if self._wake.wait(self._look):
                    self._wake.clear()

    def _drain(self, run: Run, driver: Driver, errors: ErrorSchedule | None) -> bool:
        """Finish the records in flight; True when time ran out."""
        deadline, self._seen_stops = None, self._stops
        driver.stop()
        if errors is not None:
            errors.ask_to_stop()
        self._wake.clear()
        while not (driver.is_finished and (errors is None or errors.is_drained)):
            driver.look()
            if deadline is None and (self._stops or not self._is_not_listening):
                deadline = time.monotonic() + run.settings.drain.total_seconds()
            if self.is_forced or (deadline is not None and time.monotonic() > deadline):
                return True
            if self._wake.wait(self._look):
                self._wake.clear()
        driver.look()
        return False
