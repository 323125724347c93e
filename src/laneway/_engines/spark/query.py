"""Query: one topic's streaming query."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from laneway._engines.spark.checkpoint import require_writable
from laneway._engines.spark.control import Progress
from laneway._engines.spark.group_commits import commits_of
from laneway._engines.spark.plan import TaskReport
from laneway._engines.spark.source import source_of
from laneway._kafka import BrokerUnavailableError, GroupOffsets
from laneway.errors import DataLossError, EngineError
from laneway.observe import Tally

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

    from pyspark.sql import SparkSession

    from laneway._engines.spark.control_server import Channel
    from laneway._engines.spark.query_spec import QuerySpec
    from laneway._runtime.report import Reporter
    from laneway.observe import Event

__all__ = ["Query"]

_AGAIN = 0.5  # seconds before a commit is tried again
_lock = threading.Lock()
_number = 0


class Query:
    """Runs one topic's streaming query, and reports each batch on a thread of Spark's."""

    def __init__(self, stream: QuerySpec, reporter: Reporter, channel: Channel) -> None:
        self._stream = stream
        self._reporter = reporter
        self._channel = channel
        self._lock = threading.Lock()
        self._given: Counter[tuple[int, int]] = Counter()
        """How many events of each handler and task attempt of this batch were reported."""
        self._kinds: Counter[type] = Counter()
        self.is_batch_over = threading.Event()
        self._folder: Path | None = None
        self._query: Any = None
        self._is_ending = False
        self._pauses = 0
        self._group: GroupOffsets | None = None

    def start(
        self, spark: SparkSession, *, folder: Path, trigger: timedelta, once: bool, name: str | None = None
    ) -> None:
        """Start the query.

        Args:
            spark: the session.
            folder: a new folder of this machine for the numbers of its batches.
            trigger: how often a batch may start.
            once: end when the records present at the start are handled.
            name: the data source to replace; Spark never removes one.
        """
        self._folder = folder
        name = name or _new_name()
        spark.dataSource.register(source_of(replace(self._stream, control=self._channel.address), name))
        writer = (
            spark.readStream.format(name)
            .load()
            .writeStream.foreachBatch(self._collect)
            .queryName(self._stream.name)
            .option("checkpointLocation", folder.as_uri())
        )
        if once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(trigger.total_seconds() * 1000)} milliseconds")
        self._query = writer.start()

    @property
    def is_active(self) -> bool:
        return bool(self._query.isActive)

    @property
    def is_drained(self) -> bool:
        """Whether the last batch is committed and no other follows."""
        return not self.is_active or self._channel.answer.is_drained

    def ask_to_stop(self) -> None:
        """Finish the running batch, and plan no other."""
        self._channel.order(is_stopping=True)

    def pause(self, *, on: bool) -> None:
        """Plan no further batch, or continue."""
        self._pauses += on  # numbered: a late confirmation of an earlier pause must not count
        self._channel.order(pause=self._pauses if on else 0)

    @property
    def is_paused(self) -> bool:
        """Whether a requested pause is in effect: the last batch is in Spark's commit log."""
        return self._channel.answer.paused == self._pauses or not self.is_active

    def spread_over(self, tasks: int) -> None:
        """Set the number of tasks, from the next batch on."""
        if tasks != self._channel.orders.tasks:
            self._channel.order(tasks=tasks)

    @property
    def live(self) -> Tally:
        """The counts of the running batch."""
        total = Tally()
        for figures in self._channel.running():
            total.add(figures.tally)
        return total

    def notices(self) -> list[str]:
        """The warnings of tasks and planner since the last call."""
        return self._channel.notices()

    def new_events(self) -> list[Event]:
        """New events of the running batch; the report of the batch has the others."""
        with self._lock:
            running = self._channel.running()
            return [event for each in running for event in self._new((each.attempt, each.task), each.tally)]

    def _new(self, name: tuple[int, int], tally: Tally) -> list[Event]:
        found = tally.events[self._given[name] :]
        self._given[name] += len(found)
        kept = []
        for event in found:
            self._kinds[type(event)] += 1
            if self._kinds[type(event)] <= event.most:
                kept.append(event)
        return kept

    def end(self) -> None:
        """Stop now."""
        self._is_ending = True
        self._query.stop()

    def raise_if_failed(self) -> None:
        """Raise the error that ended the query, or must end it now."""
        loss = self._channel.answer.loss
        if loss and not self._is_ending:
            raise DataLossError(loss)
        if self._query.isActive or self._is_ending:
            return
        error = self._query.exception()
        if error is not None:
            text = str(error)
            if "java.io." in text and self._folder is not None:
                require_writable(self._folder)
            raise _as_engine_error(text, self._stream)

    def _collect(self, frame: Any, batch: int) -> None:
        total = Tally()
        # A stop in mid-batch fails this job. It must keep failing: if it returned, Spark would take the batch for done.
        found = [TaskReport.decode(bytes(row.report)) for row in frame.collect()]
        self._commit(found)
        tallies = {(report.attempt, number): tally for report in found for number, tally in report.tallies.items()}
        for tally in tallies.values():
            total.add(tally)
        total.lanes = sum(tally.lanes for tally in tallies.values())  # tasks of one batch run concurrently
        with self._lock:
            self._channel.batch_over([report.attempt for report in found])
            events = [event for name, tally in tallies.items() for event in self._new(name, tally)]
            self._given.clear()
            self._kinds.clear()
        self.is_batch_over.set()
        self._reporter.batch(self._stream.topic, total, events, batch)

    def _commit(self, reports: list[TaskReport]) -> None:
        """Commit the positions of a batch, before Spark takes it for done."""
        if not reports:
            return
        if self._group is None:
            self._group = GroupOffsets(self._stream.client, self._stream.app)
        found = commits_of(reports)
        while True:
            try:
                self._group.commit_all(found, wait=True)
                break
            except BrokerUnavailableError:
                if self._is_ending:
                    raise
                time.sleep(_AGAIN)
        positions = [found for report in reports for found in report.positions]
        self._channel.advance(Progress(self._channel.orders.channel, reports[0].batch, positions))


def _new_name() -> str:
    global _number  # noqa: PLW0603 - Spark's registry of data sources is as global as this counter
    with _lock:
        _number += 1
        return f"laneway_{_number}"


def _as_engine_error(text: str, stream: QuerySpec) -> EngineError:
    """Find the cause in Spark's pages of text."""
    lines = [line.strip() for line in text.splitlines()]
    for line in lines:
        if "DataLossError:" in line:
            return DataLossError(line.split("DataLossError:", 1)[1].strip())
    causes = [line for line in lines if "Error" in line and not line.startswith(("at ", "File "))]
    cause = causes[-1] if causes else next(iter(lines), "unknown cause")
    return EngineError(f"the query on topic {stream.topic} failed: {cause}")
