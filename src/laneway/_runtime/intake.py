"""Intake: records on their way from the thread that reads to the one that runs a handler's lanes."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from laneway._declare.record import Record
    from laneway._kafka import Place

__all__ = ["Intake"]

_FEW = 1_000  # records: so few are still in the CPU's cache when they are handled


class Intake:
    """Where a runner reads from. Readers put lists of records in; only the runner's own thread takes them out.

    A list is one operation on a queue, however many records it holds.
    """

    announces = True
    """It wakes the runner, which need not look again and again."""

    def __init__(self) -> None:
        self.is_exhausted = False
        """Whether nothing is to be taken out any more."""
        self._is_complete = self._is_ended = False
        self.arrived: Callable[[], None] = lambda: None
        """Called when records arrive at an empty intake."""
        self.sift: Callable[[Sequence[Record[Any]]], Sequence[Record[Any]]] = lambda records: records
        """Leaves out records of partitions that are gone, before they become a table."""
        self.settled: dict[Place, int] = {}
        """Partition to the offset up to which tables are dealt with, for there is no ledger of their rows."""
        self.records = 0
        self.size = 0
        self._lists: deque[tuple[list[Record[Any]], int]] = deque()
        """Each with its bytes."""
        self._tables: deque[tuple[pa.Table, dict[Place, int]]] = deque()
        self._has_few = threading.Event()
        self._has_few.set()
        self._news = threading.Event()
        self.table: dict[Place, int] = {}
        """Of a columnar handler: partitions of the table that is in work, and the offsets that it reaches to."""
        self._lock = threading.Lock()

    @property
    def has_news(self) -> bool:
        """Whether something waits to be taken out."""
        return bool(self._lists)

    @property
    def has_table(self) -> bool:
        """Whether a table waits to be taken out."""
        return bool(self._tables)

    def put(self, records: list[Record[Any]]) -> None:
        """Add records, those of each partition in offset order. Any thread may call it."""
        size = _size_of(records)
        with self._lock:
            is_first = not self._lists
            self._lists.append((records, size))
            self.records += len(records)
            self.size += size
            if self.records > _FEW:
                self._has_few.clear()
        if is_first:
            self._news.set()
            self.arrived()

    def put_table(self, table: pa.Table, ends: dict[Place, int]) -> None:
        """Add records as the table of a columnar handler.

        Args:
            table: the rows.
            ends: the partitions that they are of, and the offsets that they reach to.
        """
        with self._lock:
            self._tables.append((table, ends))
            self.records += table.num_rows
            self.size += table.nbytes
            self._has_few.clear()
        self._news.set()

    def wait_until_few(self, timeout: float) -> None:
        """Wait until little waits to be taken out, at most *timeout* seconds. Any thread may call it."""
        self._has_few.wait(timeout)

    def fetch(self, most: int, timeout: float) -> list[Record[Any]]:
        """Up to *most* records; waits for some no longer than *timeout* seconds."""
        if not self._lists and timeout:
            self._news.wait(timeout)
        with self._lock:
            self._news.clear()
            if not self._lists:
                return []
            found, size = self._lists.popleft()
            if self._lists and len(found) < most:
                found = [*found]  # the list that was put is another's
                while self._lists and len(found) < most:
                    more, its_size = self._lists.popleft()
                    found += more
                    size += its_size
            if len(found) > most:
                rest, found = found[most:], found[:most]
                self._lists.appendleft((rest, left := _size_of(rest)))
                size -= left
            self.records -= len(found)
            self.size -= size
            self._taken()
        return found

    def fetch_table(self, most: int, timeout: float) -> pa.Table | None:
        """As `fetch`, as the Arrow table that a columnar handler is given. To ask for it says that the last is over."""
        from laneway._kafka.convert import table_of_records

        self.settle()
        if not (self._lists or self._tables):
            self._news.wait(timeout)
        if self._tables:
            return self._take_table()
        records = list(self.sift(self.fetch(most, 0.0)))
        if not records:
            return None
        topic = records[0].topic
        if any(record.topic != topic for record in records):  # a table is of one topic
            self._put_back([record for record in records if record.topic != topic])
            records = [record for record in records if record.topic == topic]
        self.table = {(topic, record.partition): record.offset + 1 for record in records}
        return table_of_records(records[0].topic, records)

    def forget(self, place: Place) -> None:
        """A partition is read from a new start."""
        self.settled.pop(place, None)
        self.table.pop(place, None)

    def settle(self) -> None:
        """The table handed out last is dealt with."""
        self.settled |= self.table
        self.table = {}

    def _take_table(self) -> pa.Table:
        with self._lock:
            self._news.clear()
            table, self.table = self._tables.popleft()
            self.records -= table.num_rows
            self.size -= table.nbytes
            self._taken()
        return table

    def _taken(self) -> None:
        """Called with the lock held, after something was taken out."""
        if self._lists or self._tables:
            self._news.set()
        elif self._is_complete:
            self.is_exhausted = True
        if self.records <= _FEW:
            self._has_few.set()

    def _put_back(self, records: list[Record[Any]]) -> None:
        with self._lock:
            self.is_exhausted = self._is_ended
            size = _size_of(records)
            self._lists.appendleft((records, size))
            self.records += len(records)
            self.size += size
            self._news.set()

    def complete(self) -> None:
        """Nothing more will come; what was put in is to be taken out."""
        with self._lock:
            self._is_complete = True
            self.is_exhausted |= not (self._lists or self._tables)
        self._news.set()
        self.arrived()

    def end(self) -> None:
        """Nothing more will come, and what was put in stays here."""
        self.is_exhausted = self._is_ended = True
        self._news.set()
        self.arrived()


def _size_of(records: Sequence[Record[Any]]) -> int:
    return sum([record.size for record in records])
