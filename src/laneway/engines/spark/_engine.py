"""SparkEngine: runs an app on Spark Structured Streaming."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laneway._life import Life, State
from laneway.errors import DeclarationError, EngineError, LanewayError
from laneway.instrumentation import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laneway._app import App
    from laneway.engines.spark._query import TopicQuery
    from laneway.settings import Settings

__all__ = ["RunReport", "SparkEngine"]

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOK = 0.05  # seconds between looks at the queries


@dataclass(slots=True)
class RunReport:
    """What a run did."""

    app: str
    tally: Tally = field(default_factory=Tally)
    batches: int = 0
    was_forced: bool = False
    """Stopped before the running batch was over, by a second signal or because `drain` ran out."""


class SparkEngine:
    """Runs an app's handlers inside Spark tasks.

    Args:
        settings: the configuration; read from ``laneway.yaml`` and the environment by default.
        master: Spark master; over the configuration.
        checkpoint: where Spark keeps its offsets, a folder or URL; over the configuration. Without one the consumer
            group's offsets are the truth, so an app can move between engines.
        trigger: how often a batch may start; ``0s`` is as soon as there are records.
        once: handle what there is and stop.
        batch_done: called after each batch with topic, batch number and tally.
        state_changed: called with each new state and a detail in words.

    Example::

        app.run(SparkEngine(master="local[*]", checkpoint="/var/lib/billing"))
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        master: str | None = None,
        checkpoint: str | None = None,
        trigger: str | None = None,
        once: bool = False,
        batch_done: Callable[[str, int, Tally], None] | None = None,
        state_changed: Callable[[State, str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._overrides = {"spark.master": master, "spark.checkpoint": checkpoint, "spark.trigger": trigger}
        self._once = once
        self._batch_done = batch_done
        self.life = Life(state_changed)
        self._stops = 0
        self._is_paused = False
        self._queries: list[TopicQuery] = []
        self._wake = threading.Event()

    def stop(self) -> None:
        """Ask to stop. The first time the running batch is finished and committed; the second time it is not.

        Any thread may call it; a signal handler too.
        """
        self._stops += 1
        self._wake.set()

    def pause(self) -> None:
        """Start no further batch until `resume`; the one that runs is finished. Any thread may call it."""
        self._set_paused(on=True)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._set_paused(on=False)

    def _set_paused(self, *, on: bool) -> None:
        self._is_paused = on
        for query in self._queries:
            query.pause(on=on)
        if self.life.state in (State.CONSUMING, State.PAUSED):
            self.life.enter(State.PAUSED if on else State.CONSUMING)

    def run(self, app: App) -> RunReport:
        """Run until stopped, or with *once* until everything that waits is handled."""
        from laneway.engines.spark._query import TopicQuery
        from laneway.engines.spark._setting import configured, effective, prepare_topics, streams_of

        if not app.routes:
            raise DeclarationError(f"app {app.name!r} has no handlers; declare one with @app.handler(topic)")
        settings = effective(self._settings, self._overrides)
        app = configured(app, settings)
        report = RunReport(app.name)
        lock = threading.Lock()

        def batch_done(topic: str, batch: int, tally: Tally) -> None:
            with lock:
                report.batches += 1
                report.tally.add(tally)
            if self._batch_done is not None:
                self._batch_done(topic, batch, tally)

        with ExitStack() as stack:
            stack.callback(self.life.enter, State.STOPPED)
            stack.enter_context(_signals(self.stop))
            control = Path(stack.enter_context(_scratch()))
            self.life.enter(State.INITIALISING)
            if not prepare_topics(app, settings, self.life, lambda: self._stops > 0, self._wake):
                return report
            self.life.enter(State.STARTING)
            streams = streams_of(app, settings, control)
            self._queries = [TopicQuery(stream, batch_done) for stream in streams]
            if self._stops:
                return report
            try:
                self._start(app, streams, settings, control, stack)
            except Exception as error:  # py4j raises its own kinds, and a cluster may refuse in many ways
                raise _as_start_error(error, settings.spark.master) from error
            self.life.enter(State.CONSUMING)
            self._set_paused(on=self._is_paused)
            report.was_forced = self._watch(self._queries, settings.drain.total_seconds())
        return report

    def _start(self, app: App, streams: list[Any], settings: Settings, control: Path, stack: ExitStack) -> None:
        from laneway.engines.spark._session import open_session, session_conf
        from laneway.engines.spark._setting import master_of
        from laneway.engines.spark._spill import Spill

        spark_settings = settings.spark
        checkpoint = str(spark_settings.checkpoint or control / "checkpoint")
        conf = session_conf(spark_settings.master, checkpoint, ui=spark_settings.ui, extra=spark_settings.conf)
        spill = Spill()
        spark, is_ours = open_session(app.name, master_of(spark_settings.master, streams), conf, spill)
        if is_ours:
            stack.callback(_stop_session, spark, spill)
            # Spark has put its own handler of Ctrl-C in, which cancels jobs; ours finishes them.
            _listen(self.stop)
        for stream, query in zip(streams, self._queries, strict=True):
            query.start(
                spark, checkpoint=f"{checkpoint}/{stream.topic}", trigger=spark_settings.trigger, once=self._once
            )
            stack.callback(query.end)
        if is_ours:
            # Unwound before the queries end: their helper processes print tracebacks when they do.
            stack.callback(spill.mute)

    def _watch(self, queries: list[TopicQuery], drain: float) -> bool:
        """Wait for the end; True when it was forced."""
        deadline = None
        while any(query.is_active for query in queries):
            for query in queries:
                query.raise_if_failed()
            if self._stops and deadline is None:
                self.life.enter(State.STOPPING, "finishing the running batch")
                deadline = time.monotonic() + drain
                for query in queries:
                    query.ask_to_stop()
            if deadline is not None:
                if all(query.is_drained for query in queries):
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
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Let SIGINT and SIGTERM ask to stop, when this is the main thread; put back what was there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
    _listen(stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listen(stop: Callable[[], None]) -> None:
    if threading.current_thread() is threading.main_thread():
        for number in _STOP_SIGNALS:
            signal.signal(number, lambda *_: stop())


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
