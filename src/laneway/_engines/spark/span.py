"""A span: for how long a task begins records, and what reads the source for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from laneway._kafka import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from laneway._declare.record import Record
    from laneway._engines.spark.control_link import ControlLine
    from laneway._kafka import AssignedConsumer, OffsetAndMetadata, PartitionOwner, Place
    from laneway._runtime.partition import Partition

__all__ = ["Span", "SpanSource"]

_WAIT = 0.005  # seconds to wait for records: the client waits as long for the last ones of a range that has gaps
_BESIDE = 0.002  # seconds between looks at retry topics when the source is read to its end


class Span:
    """The time in which a task begins records: it ends by time, or when the driver asks for a pause or a stop.

    Args:
        line: to the driver.
        seconds: how long it is.
    """

    def __init__(self, line: ControlLine, seconds: float) -> None:
        self._line = line
        self._ends_at = time.monotonic() + seconds
        self._is_over = False

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


class SpanSource:
    """Reads ranges of the source's partitions, as a `RecordSource` without a group.

    What is finished by all handlers is left out.

    Args:
        reader: reads them; it is kept.
        stops: the partitions, and where reading ends in each.
    """

    epoch = 0
    is_member = True

    def __init__(self, reader: AssignedConsumer, stops: Collection[tuple[Partition, int]]) -> None:
        self.passed = 0
        self.lost = 0
        """Offsets that were deleted before they were read."""
        self._reader = reader
        self._partitions = {partition.place[1]: partition for partition, _ in stops}
        self._ranges = [OffsetRange(*part.place, part.start, stop) for part, stop in stops if stop > part.start]
        self._has_inherited = any(partition.inherited is not None for partition, _ in stops)

    def open(self) -> None:
        """Begin to read. Until then the reader may be used for something else, such as looking for copies."""
        self._reader.open(self._ranges)

    @property
    def is_exhausted(self) -> bool:
        """Whether every range is read to its end."""
        return self._reader.is_exhausted

    def subscribe(self, topics: Collection[str], owner: PartitionOwner) -> None:
        """There is no group."""

    def read(self, most: int, timeout: float) -> list[Record[Any]]:
        """Up to *most* records, as soon as there are some."""
        reader = self._reader
        if reader.is_exhausted:
            time.sleep(min(timeout, _BESIDE))
            return []
        records = reader.fetch(most, min(timeout, _WAIT))
        if self._has_inherited:
            records = self._without_inherited(records)
        if reader.is_exhausted:
            for partition, offset in {record.partition: record.offset for record in records}.items():
                self._partitions[partition].delivered = offset + 1  # first: what is delivered is not finished yet
            self._settle()
        return records

    def known(self, places: Iterable[Place], timeout: float) -> dict[Place, OffsetAndMetadata]:
        """Who planned the ranges knows that."""
        del places, timeout
        return {}

    def apply_pauses(self) -> None:
        """Read no partition that has a reason to be paused, and all others."""
        self._reader.pause([number for number, partition in self._partitions.items() if partition.paused])

    def seek(self, place: Place, offset: int) -> None:
        """Ranges are read from their starts to their ends."""

    def close(self) -> None:
        """Read nothing more; the connection is kept."""
        if not self._reader.is_exhausted:
            self._settle()
        known = [(self._partitions[number].inherited, start, end) for number, start, end in self._reader.gone]
        self.lost = self._reader.lost - sum(found.count(start, end) for found, start, end in known if found is not None)
        self._reader.close()

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

    def _settle(self) -> None:
        """Take note of offsets at the ends of ranges that hold no record."""
        for part in self._ranges:
            partition = self._partitions[part.partition]
            partition.reached = max(partition.reached, self._reader.reached(part))
