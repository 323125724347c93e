"""SparkEngine: runs an app on Spark Structured Streaming."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laneway._runtime.lifecycle import listen
from laneway._runtime.run import AppEngine
from laneway.errors import EngineError, LanewayError
from laneway.observe import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import ExitStack

    from laneway._declare.units import Duration
    from laneway._engines.spark.control_server import ControlServer
    from laneway._engines.spark.driver import Cluster, SparkDriver
    from laneway._engines.spark.query_spec import QuerySpec
    from laneway._runtime.driver import Driver, Run
    from laneway._runtime.error_runs import ErrorPlan
    from laneway._runtime.report import Reporter
    from laneway.observe import Listener
    from laneway.settings import Settings

__all__ = ["SparkEngine"]


class SparkEngine(AppEngine):
    """Runs an app's handlers inside Spark tasks.

    Args:
        settings: the configuration; read from ``laneway.yaml`` and the environment by default.
        master: the Spark master. Overrides the settings.
        trigger: how often a batch may start; ``0s`` starts one as soon as there are records.
        once: handle the records present at the start, then stop.
        healthy: a sync or async health check, called in the driver about once a second. While it returns False, raises
            or does not answer for five seconds, no call is started: calls in flight are finished. Overrides the
            settings.
        minimum_brokers: with fewer brokers the health is a warning. Overrides the settings.
        stalled_after: how long a partition with work may make no progress before the health is a warning. Overrides the
            settings.
        listener: receives every state, batch and event.

    Example::

        app.run(SparkEngine(master="local[*]"))
    """

    _look = 0.05

    def __init__(  # noqa: PLR0913 - options, each by its keyword
        self,
        settings: Settings | None = None,
        *,
        master: str | None = None,
        trigger: str | None = None,
        once: bool = False,
        healthy: Callable[[], Any] | None = None,
        minimum_brokers: int | None = None,
        stalled_after: Duration | None = None,
        listener: Listener | None = None,
    ) -> None:
        super().__init__(
            settings,
            {"spark.master": master, "spark.trigger": trigger},
            once=once,
            healthy=healthy,
            minimum_brokers=minimum_brokers,
            stalled_after=stalled_after,
            listener=listener,
        )
        self._run: Run | None = None
        self._cluster: Cluster | None = None
        self._streams: list[QuerySpec] = []
        self._folders = 0

    @property
    def _control(self) -> ControlServer:
        """The control server of this run."""
        assert self._cluster is not None  # noqa: S101 - for the type checker
        return self._cluster.control

    def counts(self) -> Tally:
        """The counts of this run, including the running batch. Any thread may call it."""
        total, driver = Tally(), self._driver_now
        if self._run is None:
            return total
        with self._run.reporter.lock:
            total.add(self._run.report.tally)
            for query in tuple(getattr(driver, "queries", ())):
                total.add(query.live)
        return total

    def _open(self, run: Run, stack: ExitStack) -> None:
        from laneway._engines.spark.from_settings import streams_of

        self._run, self._cluster = run, None
        folder = Path(stack.enter_context(_scratch()))
        self._streams = streams_of(run.app, run.settings)
        if self.is_interrupted:
            return
        try:
            self._cluster = self._opened(run, folder, stack)
        except Exception as error:  # py4j raises its own kinds, and a cluster may refuse in many ways
            raise _as_start_error(error, run.settings.spark.master) from error

    def _opened(self, run: Run, folder: Path, stack: ExitStack) -> Cluster:
        from laneway._engines.spark.checkpoint import require_writable
        from laneway._engines.spark.control_server import ControlServer
        from laneway._engines.spark.driver import Cluster
        from laneway._engines.spark.from_settings import control_host, master_of
        from laneway._engines.spark.output_filter import OutputFilter
        from laneway._engines.spark.session import open_session, session_conf

        settings = run.settings.spark
        require_writable(folder)
        conf, output = session_conf(settings.master, ui=settings.ui, extra=settings.conf), OutputFilter()
        beside = 0 if run.is_once or run.app.errors is None or run.app.errors.due is None else len(run.app.routes)
        master = master_of(settings.master, self._streams, beside)
        spark, is_ours = open_session(run.app.name, master, conf, output)
        if is_ours:
            stack.callback(_stop_session, spark, output)
            # Spark installed its own Ctrl-C handler, which cancels jobs; ours finishes them.
            listen(self._signalled)
        control = ControlServer()
        stack.callback(control.close)
        control.listen(*control_host(spark))
        return Cluster(spark, control, folder, settings.trigger, bool(settings.tasks), output if is_ours else None)

    def _driver(self, run: Run) -> Driver:
        return self._made(self._streams, run.reporter, is_once=run.is_once)

    def drivers(self, plans: Sequence[ErrorPlan], reporter: Reporter) -> Iterator[Driver]:
        from laneway._engines.spark.from_settings import error_streams
        from laneway._engines.spark.query_spec import QuerySpec

        if self._cluster is None or self._run is None or not plans:
            return
        payload = self._streams[0].payload if self._streams else QuerySpec.pickled(self._run.app)
        streams = error_streams(plans, self._run.settings, payload)
        yield self._made(streams, reporter, is_once=True, is_beside=True)

    def _made(self, streams: Sequence[QuerySpec], reporter: Reporter, **rest: Any) -> SparkDriver:
        from laneway._engines.spark.driver import SparkDriver

        assert self._cluster is not None and self._run is not None  # noqa: S101, PT018 - for the type checker
        self._folders += 1
        folder = self._cluster.folder / str(self._folders)
        return SparkDriver(self._cluster, streams, reporter, self._run.listener, folder=folder, **rest)


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
        raise EngineError(f"Spark did not stop cleanly: {error}") from error


def _as_start_error(error: Exception, master: str) -> LanewayError:
    """Spark's start error in one line; the details stay in the cause."""
    if isinstance(error, LanewayError):
        return error
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    reason = next((line for line in lines if "Exception" in line), next(iter(lines), type(error).__name__))
    return EngineError(f"Spark did not start on {master}: {reason}")
