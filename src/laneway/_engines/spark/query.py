"""Query: one topic's streaming query."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laneway._engines.spark.checkpoint import require_writable
from laneway._engines.spark.notices import Notices
from laneway._engines.spark.planner import DRAINED, PAUSE, PAUSED, STOP, TASKS, WAITED
from laneway._engines.spark.source import source_of
from laneway._engines.spark.source_topic import LOSS
from laneway.errors import CheckpointError, DataLossError, EngineError
from laneway.observe import Tally

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from pyspark.sql import SparkSession

    from laneway._engines.spark.query_spec import QuerySpec

__all__ = ["Query"]

_lock = threading.Lock()
_number = 0


class Query:
    """Runs one stream; tells of each batch through *batch_done*, on a thread of Spark's."""

    def __init__(self, stream: QuerySpec, batch_done: Callable[[str, int, Tally], None]) -> None:
        self._stream = stream
        self._batch_done = batch_done
        self.notices = Notices(stream.control)
        """What the tasks say in mid-batch."""
        self.is_batch_over = threading.Event()
        self._checkpoint = ""
        self._query: Any = None
        self._is_ending = False
        self._pauses = 0
        self._tasks = 0

    def start(
        self, spark: SparkSession, *, checkpoint: str, trigger: timedelta, once: bool, name: str | None = None
    ) -> None:
        """Start the query.

        Args:
            spark: where.
            checkpoint: where Spark keeps its offsets.
            trigger: how often a batch may start.
            once: end when what there is at the start is handled.
            name: of the data source, when it is to take the place of an earlier one; Spark never forgets one.
        """
        self._checkpoint = checkpoint
        name = name or _new_name()
        spark.dataSource.register(source_of(self._stream, name))
        writer = (
            spark.readStream.format(name)
            .load()
            .writeStream.foreachBatch(self._collect)
            .queryName(self._stream.name)
            .option("checkpointLocation", checkpoint)
        )
        if once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(trigger.total_seconds() * 1000)} milliseconds")
        self._query = writer.start()

    @property
    def is_active(self) -> bool:
        """Whether the query runs."""
        return bool(self._query.isActive)

    @property
    def is_drained(self) -> bool:
        """Whether the batch that ran when the stop was asked for is committed, and no other will come."""
        return not self.is_active or (Path(self._stream.control) / DRAINED).exists()

    def ask_to_stop(self) -> None:
        """Let the running batch end and plan no other."""
        (Path(self._stream.control) / STOP).touch()

    def pause(self, *, on: bool) -> None:
        """Plan no further batch, or go on."""
        flag = Path(self._stream.control) / PAUSE
        if on:
            self._pauses += 1
            flag.write_text(str(self._pauses))
        else:
            flag.unlink(missing_ok=True)

    @property
    def is_paused(self) -> bool:
        """Whether a pause was asked for and no batch runs: the last one is in Spark's commit log."""
        try:
            confirmed = (Path(self._stream.control) / PAUSED).read_text()
        except OSError:
            return not self.is_active
        return confirmed == str(self._pauses) or not self.is_active

    def spread_over(self, tasks: int) -> None:
        """Cut the work of each handler into so many tasks, from the next batch on."""
        if tasks != self._tasks:
            self._tasks = tasks
            (Path(self._stream.control) / TASKS).write_text(str(tasks))

    def end(self) -> None:
        """Stop now, whatever runs."""
        self._is_ending = True
        self._query.stop()

    def raise_if_failed(self) -> None:
        """Raise what ended the query, or must end it now, in our words."""
        loss = Path(self._stream.control) / LOSS
        if loss.exists() and not self._is_ending:
            raise DataLossError(loss.read_text())
        if self._query.isActive or self._is_ending:
            return
        error = self._query.exception()
        if error is not None:
            text = str(error)
            if "java.io." in text:
                require_writable(self._checkpoint)
            raise _as_engine_error(text, self._stream, self._checkpoint)

    def _collect(self, frame: Any, batch: int) -> None:
        total = Tally()
        # A stop in mid-batch fails this job. It must go on failing: a return would tell Spark that the batch is done.
        tallies = [Tally.decode(bytes(row.tally)) for row in frame.collect()]
        for tally in tallies:
            total.add(tally)
        total.lanes = sum(tally.lanes for tally in tallies)  # tasks of one batch run side by side
        waited = max((tally.waited for tally in tallies), default=0.0)
        (Path(self._stream.control) / WAITED).write_text(f"{waited:.3f}")
        self.is_batch_over.set()
        self._batch_done(self._stream.topic, batch, total)


def _new_name() -> str:
    global _number  # noqa: PLW0603 - Spark's registry of data sources is as global as this counter
    with _lock:
        _number += 1
        return f"laneway_{_number}"


def _as_engine_error(text: str, stream: QuerySpec, checkpoint: str) -> EngineError:
    """Find the line that tells the cause in Spark's pages of text."""
    lines = [line.strip() for line in text.splitlines()]
    for line in lines:
        if "DataLossError:" in line:
            return DataLossError(line.split("DataLossError:", 1)[1].strip())
    causes = [line for line in lines if "Error" in line and not line.startswith(("at ", "File "))]
    cause = causes[-1] if causes else next(iter(lines), "unknown cause")
    if any(
        word in text for word in ("Incomplete log file", "does not exist in the checkpoint", "MALFORMED", "offset log")
    ):
        return CheckpointError(
            f"the checkpoint of topic {stream.topic} cannot be read: {cause}. Move {checkpoint} away to start from the "
            f"offsets of group {stream.app}"
        )
    return EngineError(f"the query on topic {stream.topic} failed: {cause}")
