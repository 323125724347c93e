"""A span: the part of a task's ranges that is handled before its time is up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from laneway._core.processor import Processor
from laneway._engines.spark.plan import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import pyarrow as pa

    from laneway._core.copy_index import CopyIndex
    from laneway._declare.record import Record
    from laneway._engines.spark.control_link import ControlLine
    from laneway._kafka import AssignedConsumer, OffsetRange
    from laneway.observe import Tally

__all__ = ["Span", "SpanProcessor"]

_SOON = 1.0  # seconds: at a stop a try that is due sooner is still waited for


class Span:
    """A reader whose records end with their ranges, when time is up, or when the driver asks for a pause or a stop.

    What is finished already is left out, and so is what a killed run has copied.

    Args:
        reader: reads the ranges.
        positions: partition to what is finished of it.
        copied: the copies that a killed run has left.
        line: to the driver.
        seconds: how long it reads.
    """

    def __init__(
        self,
        reader: AssignedConsumer,
        positions: dict[int, Position],
        copied: CopyIndex,
        *,
        line: ControlLine,
        seconds: float,
    ) -> None:
        self._reader = reader
        self._positions = positions
        self._copied = copied
        self._line = line
        self._ends_at = time.monotonic() + seconds
        self._is_over = False
        self._unfinished = {
            partition: (position.end, frozenset(position.unfinished))
            for partition, position in positions.items()
            if position.unfinished
        }
        """Of the partitions that were read further than their first unfinished offset."""

    @property
    def is_over(self) -> bool:
        """Whether no further record is to be begun."""
        if not self._is_over:
            orders = self._line.orders
            # For good: what was dropped must not be overtaken by what would be read after a resume.
            self._is_over = bool(orders.pause or orders.is_stopping) or time.monotonic() >= self._ends_at
        return self._is_over

    @property
    def is_last(self) -> bool:
        """Whether no span follows: a record that waits for its next try need not be waited for."""
        return self._line.orders.is_stopping

    @property
    def is_exhausted(self) -> bool:
        """Nothing more will be read."""
        return self._reader.is_exhausted or self.is_over

    def fetch(self, most: int, timeout: float) -> list[Record[Any]]:
        """Up to *most* records."""
        records = self._reader.fetch(most, timeout)
        if self._unfinished:
            records = [record for record in records if self._is_open(record.partition, record.offset)]
        return self._copied.fresh(records)

    def fetch_table(self, most: int, timeout: float) -> pa.Table | None:
        """As `fetch`, as a table; copies of rows are not recognised."""
        table: pa.Table | None = self._reader.fetch_table(most, timeout)
        if table is None or not self._unfinished:
            return table
        places = zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True)
        return table.filter([self._is_open(partition, offset) for partition, offset in places])

    def reached(self, ranges: Sequence[OffsetRange], processor: Processor) -> dict[int, Position]:
        """How far each partition has come. The processor is done but for what was dropped."""
        ledger = processor.steps[0].ledger
        return {
            part.partition: self._positions.get(part.partition, Position(part.start)).moved(
                self._reader.reached(part), ledger.unfinished(part.partition)
            )
            for part in ranges
        }

    def _is_open(self, partition: int, offset: int) -> bool:
        end, unfinished = self._unfinished.get(partition, (0, frozenset()))
        return offset >= end or offset in unfinished


class SpanProcessor(Processor):
    """A processor of one step that drops what no lane has begun when its span is over. The next span reads it again.

    A record that waits for its next try in place is kept, because only this processor knows how often it was tried. So
    no record can be tried without end, however short the spans are. At a stop, which no span follows, it is dropped,
    and what lies below the highest record begun is handled: the lag is exact, and the next run finds nothing under way.
    """

    def __init__(self, *args: Any, span: Span, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._span = span
        self._dropped: list[tuple[int, int]] = []
        self._cuts: dict[int, int] | None = None
        """Partition to the offset from which on nothing was begun when the stop came."""

    def tick(self) -> None:
        """Let time pass."""
        super().tick()
        if self.is_closing and self.records and self._span.is_over:
            if self._span.is_last:
                self._wind_up()
            else:
                self._drop_all()

    def close(self) -> Tally:
        """Check that nothing is left but what was dropped, and give the tally."""
        ledger = self.steps[0].ledger
        if self.is_done and ledger.outstanding == len(self._dropped):
            ledger.finish_all(self._dropped)
        return super().close()

    def _drop_all(self) -> None:
        """Drop what no lane has begun, but for what was tried."""
        kept: set[Hashable] = set()
        if self.spec.kind == "unique":
            # With the newest of a key go those that it stands in for: one that is read again would have the last word.
            kept = {self.spec.lane_key(record) for record in self.steps[0].scheduler.waiting() if _is_tried(record)}
        self._hand_over(lambda record: not _is_tried(record) and not (kept and self.spec.lane_key(record) in kept))

    def _wind_up(self) -> None:
        """Drop what lies past everything begun, and what is tried again much later: little is left past an offset."""
        if self._cuts is None:
            self._cuts = {}
            waiting: dict[int, set[int]] = {}
            for record in self.steps[0].scheduler.waiting():
                waiting.setdefault(record.partition, set()).add(record.offset)
            for partition, offsets in waiting.items():
                seen = self.steps[0].ledger.snapshot(partition)
                cut = 0 if seen is None else seen[0]
                while cut - 1 in offsets:
                    cut -= 1
                self._cuts[partition] = cut
        cuts = self._cuts
        late = {id(record) for record in self.steps[0].scheduler.postponed(self._clock.monotonic() + _SOON)}
        self._hand_over(
            lambda record: record.offset >= cuts.get(record.partition, record.offset + 1) or id(record) in late
        )

    def _hand_over(self, is_unwanted: Callable[[Record[Any]], bool]) -> None:
        def dropped(record: Record[Any]) -> bool:
            if not is_unwanted(record):
                return False
            self._dropped.append((record.partition, record.offset))
            self.tally.read -= 1
            self.tally.size -= record.size
            return True

        self.steps[0].scheduler.drop(dropped)


def _is_tried(record: Record[Any]) -> bool:
    return record.attempt - record.before > 1
