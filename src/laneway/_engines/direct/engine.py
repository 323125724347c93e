"""DirectEngine: runs an app in this process, as a member of its consumer group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway._engines.direct.cluster_runtime import ClusterRuntime
from laneway._engines.direct.driver import DirectDriver, ErrorRunDriver
from laneway._garbage import collecting_rarely
from laneway._runtime.configure import cluster_of
from laneway._runtime.host import AppHost
from laneway._runtime.run import AppEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import ExitStack

    from laneway._declare.handler import HandlerSpec
    from laneway._declare.units import Duration
    from laneway._runtime.driver import Driver, Run
    from laneway._runtime.error_runs import ErrorPlan
    from laneway._runtime.report import Reporter
    from laneway.observe import Listener
    from laneway.settings import Settings

__all__ = ["DirectEngine"]


class DirectEngine(AppEngine):
    """Runs an app's handlers in this process, without Spark: milliseconds from a record to its handler.

    Start as many processes as you like: the consumer group assigns the partitions to them.

    Args:
        settings: the configuration; read from ``laneway.yaml`` and the environment by default.
        once: handle the records present at the start, then stop.
        healthy: a sync or async health check, called about once a second. While it returns False, raises or does not
            answer for five seconds, reading is paused: records in flight are finished, and the process stays in its
            group. Overrides the settings.
        minimum_brokers: with fewer brokers the health is a warning. Overrides the settings.
        stalled_after: how long a partition with work may make no progress before the health is a warning. Overrides the
            settings.
        listener: receives every state and event, and the counts a few times a second.

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
        listener: Listener | None = None,
    ) -> None:
        super().__init__(
            settings,
            {},
            once=once,
            healthy=healthy,
            minimum_brokers=minimum_brokers,
            stalled_after=stalled_after,
            listener=listener,
        )
        self._run: Run | None = None
        self._host: AppHost | None = None

    @property
    def _loops(self) -> AppHost | None:
        return self._host

    @property
    def _clusters(self) -> Sequence[ClusterRuntime]:
        """The clusters of the current run."""
        driver = self._driver_now
        return driver.clusters if isinstance(driver, DirectDriver) else ()

    def _open(self, run: Run, stack: ExitStack) -> None:
        self._run, self._host = run, AppHost(run.app)
        stack.callback(self._host.close)
        self._host.open()
        stack.enter_context(collecting_rarely())

    def _driver(self, run: Run) -> Driver:
        by_cluster: dict[str, list[HandlerSpec]] = {}
        for route in run.app.routes:
            by_cluster.setdefault(cluster_of(route, run.settings), []).append(route)
        clusters = [self._runtime(run, name, routes) for name, routes in by_cluster.items()]
        return DirectDriver(clusters, run.reporter, is_once=run.is_once)

    def drivers(self, plans: Sequence[ErrorPlan], reporter: Reporter) -> Iterator[Driver]:
        run, host = self._run, self._host
        assert run is not None and host is not None  # noqa: S101, PT018 - for the type checker
        for plan in plans:
            limits = {(plan.topic.name, partition): end for partition, end in plan.ends.items()}
            cluster_runtime = ClusterRuntime(
                plan.app.name,
                plan.routes,
                plan.topic.cluster,
                run.settings,
                host=host,
                listener=run.listener,
                limits=limits,
            )
            yield ErrorRunDriver(
                cluster_runtime, reporter, limits, topic=plan.topic.name, idle=plan.idle, listener=run.listener
            )

    def _runtime(self, run: Run, cluster: str, routes: list[HandlerSpec]) -> ClusterRuntime:
        assert self._host is not None  # noqa: S101 - for the type checker
        return ClusterRuntime(
            run.app.name,
            routes,
            run.settings.cluster(cluster),
            run.settings,
            host=self._host,
            listener=run.listener,
            hooks=(run.app.setups, run.app.cleanups),
        )
