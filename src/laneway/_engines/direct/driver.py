"""DirectDriver: reads and handles records in this process, as a member of the consumer group."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from laneway._declare.units import in_words
from laneway._engines.direct.cluster_runtime import ClusterHealth
from laneway._runtime.worker_loop import Request
from laneway.observe import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from laneway._engines.direct.cluster_runtime import ClusterRuntime
    from laneway._kafka import Place
    from laneway._runtime.driver import StopRequests
    from laneway._runtime.health.snapshot import HealthSource
    from laneway._runtime.report import Reporter
    from laneway.observe import Listener

__all__ = ["DirectDriver", "ErrorRunDriver"]

_REPORT = 0.25  # seconds between two tallies
_FIRST = 3.0  # seconds for the first records after joining the group


class DirectDriver:
    """Runs one cluster_runtime for each cluster.

    Args:
        clusters: read and handle the records.
        reporter: counts their work.
        is_once: whether the run is over when the records present at its start are finished.
    """

    def __init__(self, clusters: Sequence[ClusterRuntime], reporter: Reporter, *, is_once: bool = False) -> None:
        self.clusters = clusters
        self._reporter = reporter
        self._is_once = is_once
        self._ends: Sequence[Mapping[Place, int]] | None = None
        self._reported = 0.0

    def prepare(self) -> bool:
        """Ask for the ends of the logs if the run ends there."""
        self._ends = [cluster_runtime.monitor.ends() for cluster_runtime in self.clusters] if self._is_once else None
        return True

    def start(self) -> None:
        for cluster_runtime in self.clusters:
            cluster_runtime.start()

    def watched(self) -> Sequence[HealthSource]:
        return [ClusterHealth(cluster_runtime) for cluster_runtime in self.clusters]

    def look(self) -> None:
        for cluster_runtime in self.clusters:
            cluster_runtime.raise_if_failed()
        now = time.monotonic()
        is_due = now - self._reported >= _REPORT
        self._reporter.flush(is_new=is_due)
        if is_due:
            self._reported = now
            self._report()

    def pause(self, *, on: bool) -> None:
        for cluster_runtime in self.clusters:
            cluster_runtime.worker_loop.request(Request.PAUSE if on else Request.RESUME)

    @property
    def is_quiet(self) -> bool:
        return all(cluster_runtime.is_quiet for cluster_runtime in self.clusters)

    @property
    def is_over(self) -> bool:
        return self._ends is not None and all(
            cluster_runtime.is_past(ends) for cluster_runtime, ends in zip(self.clusters, self._ends, strict=True)
        )

    def stop(self) -> None:
        for cluster_runtime in self.clusters:
            cluster_runtime.stop()

    @property
    def is_finished(self) -> bool:
        return all(cluster_runtime.is_finished for cluster_runtime in self.clusters)

    @property
    def is_committed(self) -> bool:
        return all(
            (partition := cluster_runtime.worker_loop.partitions.get(place)) is None or partition.committed >= view.low
            for cluster_runtime in self.clusters
            for place, view in cluster_runtime.worker_loop.status().partitions.items()
        )

    def end(self, until: StopRequests) -> bool:
        is_committed = True
        for cluster_runtime in self.clusters:
            is_committed &= cluster_runtime.end(until)
        self._reporter.flush()
        self._report()
        gaps = Tally(gaps=sum(cluster_runtime.worker_loop.status().gaps for cluster_runtime in self.clusters))
        self._reporter.count(gaps)
        self.clusters = ()  # drop the last reference to the clients
        return is_committed

    def _report(self) -> bool:
        """Report the work since the last call; whether anything was read."""
        found: dict[str, Tally] = {}
        for cluster_runtime in self.clusters:
            for topic, news in cluster_runtime.news().items():
                found.setdefault(topic, Tally()).add(news)
        for topic, tally in found.items():
            if tally.read or tally.finished or tally.retried or tally.undelivered or tally.lost:
                self._reporter.batch(topic, tally)
            else:
                self._reporter.count(tally)
        return any(tally.read for tally in found.values())


class ErrorRunDriver(DirectDriver):
    """Runs a plan over an error topic. If several processes do so, their group assigns the partitions.

    Args:
        cluster_runtime: reads the topic.
        reporter: counts its work.
        limits: where the run ends in each partition.
        topic: the error topic.
        idle: how long to wait for a record; another process may own the partitions.
        listener: receives a warning when that time has passed.
    """

    def __init__(
        self,
        cluster_runtime: ClusterRuntime,
        reporter: Reporter,
        limits: Mapping[Place, int],
        *,
        topic: str,
        idle: timedelta,
        listener: Listener,
    ) -> None:
        super().__init__([cluster_runtime], reporter)
        self._ends = [limits]
        self._topic = topic
        self._idle = idle
        self._listener = listener
        self._worked = time.monotonic()
        self._is_idle = False

    @property
    def is_over(self) -> bool:
        """Whether everything before the ends is finished, or no record came for the idle time."""
        return self._is_idle or super().is_over

    def look(self) -> None:
        for cluster_runtime in self.clusters:
            cluster_runtime.raise_if_failed()
        self._reporter.flush()
        is_busy = self._report() or not all(
            cluster_runtime.is_idle and cluster_runtime.worker_loop.status().has_joined
            for cluster_runtime in self.clusters
        )
        if is_busy:
            self._worked = time.monotonic()
        elif not self._is_idle and time.monotonic() - self._worked > max(_FIRST, self._idle.total_seconds()):
            self._is_idle = True
            self._listener.note(f"no record of {self._topic} came for {in_words(self._idle)}: the run is over")

    def _report(self) -> bool:
        """Report the work under the error topic's name."""
        total = Tally()
        for cluster_runtime in self.clusters:
            for news in cluster_runtime.news().values():
                total.add(news)
        if total.read or total.finished or total.retried or total.undelivered or total.lost:
            self._reporter.batch(self._topic, total)
        else:
            self._reporter.count(total)
        return total.read > 0
