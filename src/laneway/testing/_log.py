"""FakeTopic: the partitions of one topic in memory."""

from __future__ import annotations

import zlib
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

from laneway._declare.record import Record
from laneway.errors import AdminError

if TYPE_CHECKING:
    from laneway._declare.record import Headers

__all__ = ["Entry", "FakeTopic", "Log"]


class Entry(NamedTuple):
    """One record as it is kept; each reader gets a `Record` of its own, because readers change theirs."""

    order: int
    """Counts the writes to the whole topic, so that records can be listed as they came."""
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    def as_record(self, topic: str, partition: int) -> Record[Any]:
        """The record a reader is given."""
        size = len(self.key or b"") + len(self.value or b"")
        place = (topic, partition, self.offset, self.timestamp)
        return Record(*place, self.key, self.value, tuple(self.headers), size, self.value)


class Log:
    """One partition: entries in offset order, which may have gaps."""

    def __init__(self) -> None:
        self.start = 0
        """The first offset that may be read."""
        self.end = 0
        """The offset of the next write."""
        self._entries: list[Entry] = []
        self._offsets: list[int] = []

    def append(self, entry: Entry) -> None:
        """Write an entry, whose offset is `end`."""
        self._entries.append(entry)
        self._offsets.append(entry.offset)
        self.end = entry.offset + 1

    def read(self, start: int, most: int) -> list[Entry]:
        """Up to *most* entries from an offset on."""
        at = bisect_left(self._offsets, start)
        return self._entries[at : at + most]

    def first_since(self, start: int, timestamp: int) -> Entry | None:
        """The first entry from an offset on that is not older than a timestamp."""
        found = (entry for entry in self.read(start, len(self._entries)) if entry.timestamp >= timestamp)
        return next(found, None)

    def cut(self, before: int) -> None:
        """Delete what lies before an offset."""
        self.start = max(self.start, min(before, self.end))
        at = bisect_left(self._offsets, self.start)
        del self._entries[:at], self._offsets[:at]


class FakeTopic:
    """A topic: its logs, and which of them a message goes to."""

    def __init__(self, name: str, partitions: int) -> None:
        if partitions < 1:
            raise AdminError(f"topic {name}: {partitions} partitions; a topic has at least 1")
        self.name = name
        self.logs = [Log() for _ in range(partitions)]
        self._written = 0
        self._turn = 0

    def append(
        self, key: bytes | None, value: bytes | None, headers: Headers, timestamp: int, partition: int | None
    ) -> Record[Any]:
        """Write a message and give it back as a record."""
        number = self._partition_of(key) if partition is None else partition
        log = self.log(number)
        entry = Entry(self._written, log.end, timestamp, key, value, tuple(headers))
        self._written += 1
        log.append(entry)
        return entry.as_record(self.name, number)

    def log(self, partition: int) -> Log:
        """One partition's log."""
        if not 0 <= partition < len(self.logs):
            raise AdminError(f"topic {self.name} has partitions 0 to {len(self.logs) - 1}, not {partition}")
        return self.logs[partition]

    def grow(self, partitions: int) -> None:
        """Add partitions until there are so many."""
        if partitions <= len(self.logs):
            raise AdminError(f"topic {self.name} has {len(self.logs)} partitions already; it can only grow")
        self.logs.extend(Log() for _ in range(partitions - len(self.logs)))

    def records(self) -> list[Record[Any]]:
        """Everything that is there, in the order of the writes."""
        found = [(entry, number) for number, log in enumerate(self.logs) for entry in log.read(log.start, log.end)]
        return [entry.as_record(self.name, number) for entry, number in sorted(found, key=lambda pair: pair[0].order)]

    def _partition_of(self, key: bytes | None) -> int:
        """Same key, same partition, by the hash that librdkafka uses; no key: each in turn."""
        if key is None:
            self._turn += 1
            return (self._turn - 1) % len(self.logs)
        return zlib.crc32(key) % len(self.logs)
