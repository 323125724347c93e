"""SparkEngine: runs an app on Spark Structured Streaming."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laneway._declare.handler import check_together
from laneway._engines.spark.control_server import ControlServer
from laneway._runtime.lifecycle import Lifecycle, State
from laneway._runtime.report import RunReport
from laneway._runtime.signals import listen, stop_signals
from laneway.errors import DeclarationError, EngineError, LanewayError
from laneway.events import BatchHandled, StateChanged
from laneway.observe import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laneway._declare.app import App
    from laneway._engines.spark.errors import SparkErrorSchedule
    from laneway._engines.spark.query import Query
    from laneway.observe import Event
    from laneway.settings import Settings

__all__ = ["SparkEngine"]

_LOOK = 0.05  # seconds between looks at the queries
_COUNT = 1.0  # seconds between looks at the executors


class SparkEngine:
    """Runs an app's handlers inside Spark tasks.

    Args:
        settings: the configuration; read from ``laneway.yaml`` and the environment by default.
        master: Spark master; over the configuration.
        trigger: how often a batch may start; ``0s`` is as soon as there are records.
        once: handle what there is and stop.
        batch_done: called after each batch with topic, batch number and tally.
        state_changed: called with each new state and a detail in words.

    Example::

        app.run(SparkEngine(master="local[*]"))
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        master: str | None = None,
        trigger: str | None = None,
        once: bool = False,
        batch_done: Callable[[str, int, Tally], None] | None = None,
        state_changed: Callable[[State, str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._overrides = {"spark.master": master, "spark.trigger": trigger}
        self._once = once
        self._batch_done = batch_done
        self._state_changed = state_changed
        self._app: App | None = None
        self.life = Lifecycle(self._entered)
        self._stops = 0
        self._is_paused = False
        self._queries: list[Query] = []
        self._errors: SparkErrorSchedule | None = None
        self._wake = threading.Event()
        self._total = Tally()
        self._counting_lock = threading.Lock()
        self.was_stopped = False
        """Whether the last run ended because it was asked to stop."""
        self._slots: Callable[[], int | None] | None = None
        """Counts the tasks that the executors can run at once; None when the number of tasks is given."""
        self._counted = 0.0

    def stop(self) -> None:
        """Ask to stop. The first time the calls that have begun are finished and committed, the second time not.

        While nothing runs it ends the next run at once. Any thread may call it.
        """
        self._stops += 1
        self._wake.set()

    def _signalled(self) -> None:
        """As `stop`, by a signal: it may have come while this very thread held the event's lock, so only a count."""
        self._stops += 1

    def pause(self) -> None:
        """Begin no further call until `resume`, also within a running batch. Any thread may call it.

        The state is ``pausing`` until what has begun is finished and committed, then ``paused``. Records that are tried
        again in place are finished first.
        """
        self._set_paused(on=True)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._set_paused(on=False)

    def _entered(self, state: State, detail: str) -> None:
        if self._state_changed is not None:
            self._state_changed(state, detail)
        if self._app is not None:
            self._app.tell(StateChanged(state.value, detail))

    def _set_paused(self, *, on: bool) -> None:
        self._is_paused = on
        for query in self._queries:
            query.pause(on=on)
        if self._errors is not None:
            self._errors.pause(on=on)
        if on:
            self.life.move((State.CONSUMING,), State.PAUSING, "finishing the running batch")
        else:
            self.life.move((State.PAUSING, State.PAUSED), State.CONSUMING)

    def run(self, app: App) -> RunReport:
        """Run until stopped, or with *once* until everything that waits is handled; it may run again after that."""
        from laneway._engines.spark.from_settings import streams_of
        from laneway._engines.spark.query import Query
        from laneway._runtime.configure import configured, effective, warn_unused_topics
        from laneway._runtime.topics import prepare_topics

        if not app.routes:
            raise DeclarationError(f"app {app.name!r} has no handlers; declare one with @app.handler(topic)")
        settings = effective(self._settings, self._overrides)
        warn_unused_topics(app, settings)
        app = configured(app, settings)
        check_together(app.name, app.routes)
        self._app = app
        report = RunReport(app.name)
        self._total = report.tally
        batch_done = self._counting(app, report, report.tally)
        with ExitStack() as stack:
            folder = self._begun(stack)
            if not prepare_topics(app, settings, self.life, lambda: self._stops > 0, self._wake):
                return report
            self.life.enter(State.STARTING)
            streams = streams_of(app, settings)
            self._queries = [Query(stream, batch_done, self._control.channel()) for stream in streams]
            if self._stops:
                return report
            self._errors = None if self._once else self._scheduled(app, streams, settings, folder, report)
            self._consume(app, streams, settings, folder, stack, report, once=self._once)
        return report

    def run_errors(self, app: App, *, topic: str | None = None) -> RunReport:
        """Run once over the error topics of an app, now, as its `ErrorConsumer` and the configuration say.

        Args:
            app: whose parked records to take up.
            topic: only this error topic.

        Raises:
            EngineError: a run of this process is under way already.
        """
        from laneway._engines.spark.errors import error_streams
        from laneway._engines.spark.query import Query
        from laneway._runtime.configure import configured, effective
        from laneway._runtime.error_runs import only_run
        from laneway._runtime.topics import until_ready

        settings = effective(self._settings, self._overrides)
        app = configured(app, settings)
        self._app, self._errors = app, None
        report = RunReport(app.name)
        self._total = report.tally
        batch_done = self._counting(app, report, report.tally)

        def is_stopping() -> bool:
            return self._stops > 0

        with ExitStack() as stack:
            stack.enter_context(only_run(app.name))
            folder = self._begun(stack)
            planned = until_ready(
                lambda: error_streams(app, settings, topic=topic, is_stopping=is_stopping),
                settings, self.life, is_stopping, self._wake,
            )  # fmt: skip
            if not planned or self._stops:
                return report
            self.life.enter(State.STARTING)
            self._queries = [Query(stream, batch_done, self._control.channel()) for stream in planned]
            self._consume(app, planned, settings, folder, stack, report, once=True)
        return report

    def _begun(self, stack: ExitStack) -> Path:
        """Take over signals and a folder until the end."""
        stack.callback(self._ended)
        stack.enter_context(stop_signals(self._signalled))
        folder = Path(stack.enter_context(_scratch()))
        self._control = ControlServer()
        stack.callback(self._control.close)
        self.life.enter(State.INITIALISING)
        return folder

    def _ended(self) -> None:
        # What ended this run must not end the next one. Before the state: who waits for it may start the next run.
        self.was_stopped = self._stops > 0
        self._stops, self._queries, self._errors = 0, [], None
        self._wake.clear()
        self.life.enter(State.STOPPED)

    def counts(self) -> Tally:
        """What this run has done so far, the running batch included as of a moment ago. Any thread may call it."""
        total = Tally()
        with self._counting_lock:
            total.add(self._total)
            for query in tuple(self._queries):
                total.add(query.live)
        return total

    def _counting(self, app: App, report: RunReport, total: Tally) -> Callable[[str, int, Tally, list[Event]], None]:
        """What is called after each batch; threads of several queries call it."""

        def batch_done(topic: str, batch: int, tally: Tally, events: list[Event]) -> None:
            with self._counting_lock:
                report.batches += 1
                total.add(tally)
            if self._batch_done is not None:
                self._batch_done(topic, batch, tally)
            app.tell(*events, BatchHandled(topic, batch, tally))

        return batch_done

    def _scheduled(
        self, app: App, streams: list[Any], settings: Settings, folder: Path, report: RunReport
    ) -> SparkErrorSchedule | None:
        """The schedule of runs over the error topics, if there is one."""
        from laneway._engines.spark.errors import SparkErrorSchedule

        cron = None if app.errors is None else app.errors.due
        if cron is None:
            return None
        return SparkErrorSchedule(
            app,
            cron,
            settings=settings,
            payload=streams[0].payload,
            folder=folder / "errors",
            batch_done=self._counting(app, report, report.errors.tally),
            control=self._control,
            note=self.life.note,
            runs=report.errors,
        )

    def _consume(
        self,
        app: App,
        streams: list[Any],
        settings: Settings,
        folder: Path,
        stack: ExitStack,
        report: RunReport,
        *,
        once: bool,
    ) -> None:
        """Start the queries and wait for their end."""
        try:
            self._start(app, streams, settings, folder, stack, once=once)
        except Exception as error:  # py4j raises its own kinds, and a cluster may refuse in many ways
            raise _as_start_error(error, settings.spark.master) from error
        self.life.enter(State.CONSUMING)
        self._set_paused(on=self._is_paused)
        report.was_forced = self._watch(app, self._queries, settings.drain.total_seconds())

    def _start(
        self, app: App, streams: list[Any], settings: Settings, folder: Path, stack: ExitStack, *, once: bool
    ) -> None:
        from laneway._engines.spark.checkpoint import require_writable
        from laneway._engines.spark.from_settings import control_host, master_of, slots_of
        from laneway._engines.spark.output_filter import OutputFilter
        from laneway._engines.spark.session import open_session, session_conf

        spark_settings = settings.spark
        require_writable(folder)
        conf = session_conf(spark_settings.master, ui=spark_settings.ui, extra=spark_settings.conf)
        spill = OutputFilter()
        beside = 0 if self._errors is None else len(app.routes)
        spark, is_ours = open_session(app.name, master_of(spark_settings.master, streams, beside), conf, spill)
        if is_ours:
            stack.callback(_stop_session, spark, spill)
            # Spark has put its own handler of Ctrl-C in, which cancels jobs; ours finishes them.
            listen(self._signalled)
        is_fixed = spark_settings.tasks or any(stream.errors is not None for stream in streams)
        self._slots, self._counted = None if is_fixed else partial(slots_of, spark), -_COUNT
        self._follow_executors()
        self._control.listen(*control_host(spark))
        for stream, query in zip(streams, self._queries, strict=True):
            query.start(spark, folder=folder / stream.place, trigger=spark_settings.trigger, once=once)
            stack.callback(query.end)
        if self._errors is not None:
            self._errors.spark = spark
            self._errors.start()
            stack.callback(self._errors.end)
        if is_ours:
            # Unwound before the queries end: their helper processes print tracebacks when they do.
            stack.callback(spill.mute)

    def _show(self, app: App, query: Query) -> None:
        """Tell what happens in the running batch, and let the state say what it waits for until it is over."""
        app.tell(*query.new_events())
        if self.life.state is not State.CONSUMING:
            return
        if query.is_batch_over.is_set():
            query.is_batch_over.clear()
            query.notices()
            self.life.move((State.CONSUMING,), State.CONSUMING)
        for text in query.notices()[-1:]:
            self.life.move((State.CONSUMING,), State.CONSUMING, text)

    def _confirm_pause(self) -> None:
        """Say that it is paused once no batch runs, and no run over the error topics."""
        if self.life.state is not State.PAUSING or (self._errors is not None and self._errors.is_at_work):
            return
        if all(query.is_paused for query in self._queries):
            self.life.move((State.PAUSING,), State.PAUSED)

    def _follow_executors(self) -> None:
        """Cut batches into as many tasks as the executors of a cluster can run: they come and go while it runs."""
        if self._slots is None or time.monotonic() < self._counted + _COUNT:
            return
        self._counted = time.monotonic()
        count = self._slots()
        if count is not None:
            for query in self._queries:
                query.spread_over(count)

    def _watch(self, app: App, queries: list[Query], drain: float) -> bool:
        """Wait for the end; True when it was forced."""
        deadline = None
        beside = () if self._errors is None else (self._errors,)
        while any(query.is_active for query in queries):
            for query in queries:
                query.raise_if_failed()
                self._show(app, query)
            self._follow_executors()
            self._confirm_pause()
            if self._stops and deadline is None:
                self.life.enter(State.STOPPING, "finishing the running batch")
                deadline = time.monotonic() + drain
                for query in (*queries, *beside):
                    query.ask_to_stop()
            if deadline is not None:
                if all(query.is_drained for query in (*queries, *beside)):
                    return False
                if self._stops > 1 or time.monotonic() > deadline:
                    return True
            self._wake.wait(_LOOK)
            if self._stops:
                self._wake.clear()
                time.sleep(_LOOK / 5)
        for query in queries:
            query.raise_if_failed()
        return False


@contextmanager
def _scratch() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="laneway-")
    owner = os.getpid()
    try:
        yield folder
    finally:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)


def _stop_session(spark: Any, spill: Any) -> None:
    spill.mute()
    try:
        spark.stop()
    except Exception as error:  # py4j raises its own kinds when the JVM is already gone
        raise EngineError(f"Spark did not stop in good order: {error}") from error


def _as_start_error(error: Exception, master: str) -> LanewayError:
    """Why Spark did not start, in one line; the rest of Spark's pages stays in the cause."""
    if isinstance(error, LanewayError):
        return error
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    reason = next((line for line in lines if "Exception" in line), next(iter(lines), type(error).__name__))
    return EngineError(f"Spark did not start on {master}: {reason}")
