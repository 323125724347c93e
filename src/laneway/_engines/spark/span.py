"""A span: for how long a task begins records, and what reads the source for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from laneway._kafka import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import pyarrow as pa

    from laneway._declare.record import Record
    from laneway._engines.spark.control_link import ControlLine
    from laneway._kafka import AssignedConsumer, OffsetAndMetadata, PartitionOwner, Place
    from laneway._runtime.handler_worker import HandlerWorker
    from laneway._runtime.partition import Partition

__all__ = ["Span", "SpanSource"]

_WAIT = 0.005  # seconds to wait for records: the client waits as long for the last ones of a range that has gaps
_BESIDE = 0.002  # seconds between reads of retry topics when the source is read to its end


class Span:
    """The time in which a task starts records: it ends by time, or when the driver orders a pause or a stop."""

    def __init__(self, line: ControlLine, seconds: float) -> None:
        self._line = line
        self._ends_at = time.monotonic() + seconds
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether no further record may be started."""
        if not self._is_over:
            orders = self._line.orders
            # Stays so: a record read after a resume must not overtake a dropped one.
            self._is_over = bool(orders.pause or orders.is_stopping) or time.monotonic() >= self._ends_at
        return self._is_over

    @property
    def is_last(self) -> bool:
        """Whether no span follows, so that records waiting for a retry are not waited for."""
        return self._line.orders.is_stopping


class SpanSource:
    """Reads offset ranges of the source's partitions, as a `RecordSource` without a group.

    Offsets that all handlers have finished are skipped. For a fast handler little is read ahead: records that are still
    in the processor's cache take less time than those that waited in a full buffer. A single columnar handler gets
    tables made from the client's messages; an object for each row would take 1.6 times as long.
    """

    epoch = 0
    is_member = True

    def __init__(
        self,
        reader: AssignedConsumer | None,
        stops: Collection[tuple[Partition, int]],
        handlers: Sequence[HandlerWorker] = (),
    ) -> None:
        self.passed = 0
        self.lost = 0
        """Offsets that were deleted before they were read."""
        self._reader = reader
        self._partitions = {partition.place[1]: partition for partition, _ in stops}
        self._ranges = [OffsetRange(*part.place, part.start, stop) for part, stop in stops if stop > part.start]
        self._handlers = handlers
        self._takes_tables = len(handlers) == 1 and handlers[0].spec.kind == "columnar"
        self._has_inherited = any(partition.inherited is not None for partition, _ in stops)

    def open(self) -> None:
        """Start to read. Before that the reader may be used to look for copies."""
        if self._reader is not None:
            self._reader.open(self._ranges)

    @property
    def is_exhausted(self) -> bool:
        return self._reader is None or self._reader.is_exhausted

    def subscribe(self, topics: Collection[str], owner: PartitionOwner) -> None: ...

    def read(self, most: int, timeout: float) -> list[Record[Any]]:
        reader = self._reader
        if reader is None or reader.is_exhausted:
            time.sleep(min(timeout, _BESIDE))
            return []
        for handler in self._handlers:
            if handler.is_fast or self._takes_tables:
                handler.intake.wait_until_few(min(timeout, _WAIT))
        if self._takes_tables:
            self._read_table(reader, self._handlers[0], timeout)
            return []
        records = reader.fetch(most, min(timeout, _WAIT))
        if self._has_inherited:
            records = self._without_inherited(records)
        if reader.is_exhausted:
            for partition, offset in {record.partition: record.offset for record in records}.items():
                self._partitions[partition].delivered = offset + 1  # first: what is delivered is not finished yet
            self._settle(reader)
        return records

    def known(self, places: Iterable[Place], timeout: float) -> dict[Place, OffsetAndMetadata]:
        del places, timeout
        return {}

    def apply_pauses(self) -> None:
        if self._reader is not None:
            self._reader.pause([number for number, partition in self._partitions.items() if partition.paused])

    def seek(self, place: Place, offset: int) -> None: ...

    def close(self) -> None:
        reader = self._reader
        if reader is None:
            return
        if not reader.is_exhausted:
            self._settle(reader)
        known = [(self._partitions[number].inherited, start, end) for number, start, end in reader.gone]
        self.lost = reader.lost - sum(found.count(start, end) for found, start, end in known if found is not None)
        reader.close()

    def _without_inherited(self, records: list[Record[Any]]) -> list[Record[Any]]:
        fresh = []
        for record in records:
            partition = self._partitions[record.partition]
            if partition.inherited is not None and partition.inherited.has(record.offset):
                partition.reached = record.offset + 1
                self.passed += 1
            else:
                fresh.append(record)
        return fresh

    def _read_table(self, reader: AssignedConsumer, handler: HandlerWorker, timeout: float) -> None:
        """Give a handler a table, unless one waits already."""
        intake = handler.intake
        if intake.has_table:
            return
        table = reader.fetch_table(handler.spec.size, timeout)
        if table is not None and self._has_inherited:
            rows = table.num_rows
            table = table.filter(self._are_open(table))
            self.passed += rows - table.num_rows
        ends = {part.partition: reader.reached(part) for part in self._ranges}
        if table is not None and table.num_rows:
            self.passed += table.num_rows
            for number, end in ends.items():
                self._partitions[number].delivered = end
            intake.put_table(table, {self._partitions[number].place: end for number, end in ends.items()})
        if reader.is_exhausted:
            self._settle(reader)

    def _are_open(self, table: pa.Table) -> list[bool]:
        """Which rows of a table are not finished."""
        places = zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True)
        known = {number: partition.inherited for number, partition in self._partitions.items()}
        return [(found := known[number]) is None or not found.has(offset) for number, offset in places]

    def _settle(self, reader: AssignedConsumer) -> None:
        """Finish offsets at the ends of ranges that hold no record."""
        for part in self._ranges:
            partition = self._partitions[part.partition]
            partition.reached = max(partition.reached, reader.reached(part))
