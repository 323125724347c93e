"""SparkDriver: the queries of an app, or of a run over its error topics."""

from __future__ import annotations

import hashlib
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laneway._engines.spark.from_settings import slots_of
from laneway._engines.spark.health import QueriesHealth
from laneway._engines.spark.query import Query

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from pathlib import Path

    from laneway._engines.spark.control_server import ControlServer
    from laneway._engines.spark.output_filter import OutputFilter
    from laneway._engines.spark.query_spec import QuerySpec
    from laneway._runtime.driver import StopRequests
    from laneway._runtime.health.snapshot import HealthSource
    from laneway._runtime.report import Reporter
    from laneway.observe import Listener

__all__ = ["Cluster", "SparkDriver"]

_COUNT = 1.0  # seconds between checks of the executors


@dataclass(frozen=True, slots=True)
class Cluster:
    """The Spark session of a run and its settings."""

    spark: Any
    control: ControlServer
    folder: Path
    """A folder of this machine for Spark's files."""
    trigger: timedelta
    """How often a batch may start."""
    is_fixed: bool
    """Whether the number of tasks is configured, instead of following the executors."""
    output: OutputFilter | None
    """Filters the output of the session's processes; None when the user made the session."""


class SparkDriver:
    """Runs queries concurrently.

    Args:
        cluster: the session.
        streams: the specification of each query.
        reporter: counts their work.
        listener: receives warnings of batches.
        folder: a new folder for these queries only.
        is_once: whether the run is over when the records present at its start are finished.
        is_beside: whether this is a run over error topics while the app's own queries run.
    """

    def __init__(
        self,
        cluster: Cluster,
        streams: Sequence[QuerySpec],
        reporter: Reporter,
        listener: Listener,
        *,
        folder: Path,
        is_once: bool,
        is_beside: bool = False,
    ) -> None:
        self._cluster = cluster
        self._streams = streams
        self._reporter = reporter
        self._listener = listener
        self._folder = folder
        self._is_once = is_once
        self._is_beside = is_beside
        self._counts_at = None if is_beside or cluster.is_fixed else -_COUNT
        channels = [cluster.control.channel() for _ in streams]
        self.queries = [Query(stream, reporter, channel) for stream, channel in zip(streams, channels, strict=True)]
        self._watched = QueriesHealth.of(list(zip(streams, channels, strict=True)), cluster.control)
        self._started: list[Query] = []
        self._says = False

    def prepare(self) -> bool:
        """True at once: the planners ask the brokers."""
        return True

    def start(self) -> None:
        output = self._cluster.output
        if output is not None and not self._is_beside:
            output.mute(on=False)
        self._follow_executors()
        for number, (stream, query) in enumerate(zip(self._streams, self.queries, strict=True)):
            # Spark never removes a data source, so an error run reuses the name of the previous one.
            name = f"laneway_{hashlib.sha256(stream.name.encode()).hexdigest()[:16]}" if self._is_beside else None
            query.start(
                self._cluster.spark,
                folder=self._folder / f"{number}-{stream.place}",
                trigger=self._cluster.trigger,
                once=self._is_once,
                name=name,
            )
            self._started.append(query)
        if not self._is_beside:
            for watched in self._watched:
                watched.start()

    def watched(self) -> Sequence[HealthSource]:
        return self._watched

    def look(self) -> None:
        for query in self._started:
            query.raise_if_failed()
            self._show(query)
        self._reporter.flush()
        self._follow_executors()

    def pause(self, *, on: bool) -> None:
        for query in self.queries:
            query.pause(on=on)

    @property
    def is_quiet(self) -> bool:
        return all(query.is_paused for query in self.queries)

    @property
    def is_over(self) -> bool:
        """Whether the queries have ended by themselves."""
        return not any(query.is_active for query in self._started)

    def stop(self) -> None:
        for query in self.queries:
            query.ask_to_stop()

    @property
    def is_finished(self) -> bool:
        return all(query.is_drained for query in self._started)

    @property
    def is_committed(self) -> bool:
        return True

    def end(self, until: StopRequests) -> bool:  # noqa: ARG002 - nothing is waited for
        """End the queries. Finished batches are committed already."""
        if self._cluster.output is not None and not self._is_beside:
            self._cluster.output.mute()  # the helper processes of queries print tracebacks when they end
        for watched in self._watched:
            watched.end()
        for query in self._started:
            query.end()
        shutil.rmtree(self._folder, ignore_errors=True)
        return True

    def _show(self, query: Query) -> None:
        """Report events and warnings of the running batch."""
        if events := query.new_events():
            self._reporter.events(events)
        if query.is_batch_over.is_set():
            query.is_batch_over.clear()
            query.notices()
            if self._says:
                self._says = False
                self._listener.note("")
        for text in query.notices()[-1:]:
            self._says = True
            self._listener.note(text)

    def _follow_executors(self) -> None:
        """Set the number of tasks to the slots of the executors, which join and leave during a run."""
        if self._counts_at is None or time.monotonic() < self._counts_at + _COUNT:
            return
        self._counts_at = time.monotonic()
        count = slots_of(self._cluster.spark)
        if count is not None:
            for query in self.queries:
                query.spread_over(count)
