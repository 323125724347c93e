"""What a runner reads from and writes to when there is no Kafka."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from laneway._core.due import DueEnds
from laneway.errors import DataLossError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    import pyarrow as pa

    from laneway._core.copy_index import CopyIndex
    from laneway._declare.record import Headers, Record
    from laneway.testing._clock import FakeClock
    from laneway.testing._log import FakeTopic

__all__ = ["FakeSender", "FakeSource", "FakeSources"]


class FakeSource:
    """Reads a topic from given offsets. It is exhausted whenever nothing waits, and no longer when something does.

    Args:
        topic: what to read.
        offsets: where to begin in each partition; others begin at their start.
        skip_lost: go on when records were deleted before they were read, instead of raising.
        rng: mixes the partitions; without it they are read in turn.
        delay: seconds that a record must be old.
        clock: says how old it is.
        copied: records that need not be read, because a copy of them is safe.
        limits: where to end in each partition, whatever is written there meanwhile; None for no end.
    """

    def __init__(  # noqa: PLR0913 - what it reads and how, each by its keyword
        self,
        topic: FakeTopic,
        offsets: dict[int, int],
        *,
        skip_lost: bool,
        rng: random.Random | None,
        delay: float,
        clock: FakeClock,
        copied: CopyIndex,
        limits: dict[int, int] | None = None,
    ) -> None:
        self._topic = topic
        self._delay = delay
        self._due = DueEnds(delay, gap=0.0)
        self._clock = clock
        self.copied = copied
        self._limits = limits
        self._begin = dict(offsets)
        self._next = dict(offsets)
        self._skip_lost = skip_lost
        self._rng = rng
        self._settled: dict[int, int] = {}
        self.gaps = 0
        """Offsets passed that held no record."""
        self.lost = 0
        """Offsets that were deleted before they were read."""

    @property
    def is_exhausted(self) -> bool:
        """Nothing waits that is due now."""
        return all(self.position(number) >= self._end(number) for number in range(len(self._topic.logs)))

    @property
    def is_empty(self) -> bool:
        """Nothing waits at all."""
        return all(self.position(number) >= self._last(number) for number in range(len(self._topic.logs)))

    def look(self) -> float | None:
        """Take note of what is there; the seconds until something may be due that is not yet, if anything."""
        if not self._delay or self.is_empty:
            return None
        self._due.saw({number: log.end for number, log in enumerate(self._topic.logs)}, self._clock.monotonic())
        now = self._clock.wall() * 1000
        waits = [self._delay]
        for number, log in enumerate(self._topic.logs):
            young = log.read(max(self.position(number), self._end(number)), 1)
            waits += [(entry.timestamp - now) / 1000 + self._delay + 0.001 for entry in young]
        return max(0.001, min(waits))

    def _end(self, partition: int) -> int:
        """Up to where a partition may be read now."""
        log = self._topic.logs[partition]
        if not self._delay:
            return self._last(partition)
        limit = int((self._clock.wall() - self._delay) * 1000)
        young = log.first_since(self.position(partition), limit)
        waited = self._due.waited(self._clock.monotonic()).get(partition, 0)
        return log.end if young is None else min(log.end, max(young.offset, waited))

    def _last(self, partition: int) -> int:
        """Up to where a partition is to be read."""
        end = self._topic.logs[partition].end
        return end if self._limits is None else min(end, self._limits.get(partition, 0))

    def position(self, partition: int) -> int:
        """The offset to be read next."""
        if partition not in self._next:
            self._next[partition] = self._first(partition)
        return self._next[partition]

    def settle(self) -> None:
        """The tables handed out so far are dealt with; asking for the next one says so too."""
        self._settled = dict(self._next)

    def settled(self, partition: int) -> int:
        """The offset up to which tables are dealt with, for there is no ledger of their rows."""
        return self._settled.get(partition, self._first(partition))

    def fetch(self, most: int, timeout: float) -> list[Record[Any]]:
        """Up to *most* records that wait now."""
        del timeout
        order = list(range(len(self._topic.logs)))
        if self._rng is not None:
            self._rng.shuffle(order)
        records: list[Record[Any]] = []
        for partition in order:
            if len(records) < most:
                records += self._read(partition, most - len(records))
        return self.copied.fresh(records)

    def fetch_table(self, most: int, timeout: float) -> pa.Table | None:
        """As `fetch`, as the Arrow table that a columnar handler is given."""
        from laneway._kafka.convert import table_of_records

        self.settle()
        records = self.fetch(most, timeout)
        return table_of_records(self._topic.name, records) if records else None

    def _first(self, partition: int) -> int:
        if partition not in self._begin:
            self._begin[partition] = self._topic.logs[partition].start
        return self._begin[partition]

    def _read(self, partition: int, most: int) -> list[Record[Any]]:
        log, begin = self._topic.logs[partition], self.position(partition)
        if begin < log.start:
            if not self._skip_lost:
                raise DataLossError(
                    f"{self._topic.name}[{partition}]: offsets {begin} to {log.start - 1} are gone. They were deleted "
                    'before they were read. To go on without them use on_data_loss="continue"'
                )
            self.lost += log.start - begin
            begin = log.start
        limit = self._end(partition)
        entries = [entry for entry in log.read(begin, most) if entry.offset < limit]
        end = entries[-1].offset + 1 if len(entries) == most else max(begin, limit)
        self.gaps += end - begin - len(entries)
        self._next[partition] = end
        return [entry.as_record(self._topic.name, partition) for entry in entries]


class FakeSources:
    """The source topic of a handler and its retry topics, read as one.

    Args:
        by_topic: what reads each of them.
        rng: mixes them; without it they are read in turn.
    """

    def __init__(self, by_topic: dict[str, FakeSource], rng: random.Random | None) -> None:
        self.by_topic = by_topic
        self._rng = rng

    @property
    def is_exhausted(self) -> bool:
        """Nothing waits that is due now."""
        return all(source.is_exhausted for source in self.by_topic.values())

    @property
    def is_empty(self) -> bool:
        """Nothing waits at all."""
        return all(source.is_empty for source in self.by_topic.values())

    def look(self) -> float | None:
        """Take note of what is there; the seconds until something may be due that is not yet, if anything."""
        waits = [source.look() for source in self.by_topic.values()]
        return min((wait for wait in waits if wait is not None), default=None)

    def settle(self) -> None:
        """The tables handed out so far are dealt with."""
        for source in self.by_topic.values():
            source.settle()

    def fetch(self, most: int, timeout: float) -> list[Record[Any]]:
        """Up to *most* records that wait now."""
        records: list[Record[Any]] = []
        for source in self._in_turn():
            if len(records) < most and not source.is_exhausted:
                records += source.fetch(most - len(records), timeout)
        return records

    def fetch_table(self, most: int, timeout: float) -> pa.Table | None:
        """As `fetch`, as the Arrow table that a columnar handler is given; it is of one topic."""
        self.settle()
        for source in self._in_turn():
            if not source.is_exhausted:
                return source.fetch_table(most, timeout)
        return None

    def _in_turn(self) -> list[FakeSource]:
        sources = list(self.by_topic.values())
        if self._rng is not None and len(sources) > 1:
            self._rng.shuffle(sources)
        return sources


class FakeSender:
    """Writes at once and answers at the next `poll`, as a producer does.

    Args:
        write: puts a message on a topic and says why it could not, if so.
        sent: called after each message, so that the sender is polled.
    """

    def __init__(self, write: Callable[..., Exception | None], sent: Callable[[], None]) -> None:
        self._write = write
        self._sent = sent
        self._answers: deque[tuple[Callable[[Exception | None], None], Exception | None]] = deque()
        self.is_dead = False
        """The app has crashed: what it still sends goes nowhere."""

    def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        delivered: Callable[[Exception | None], None],
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Take a message."""
        if self.is_dead:
            return
        error = self._write(topic, key, value, headers=headers, partition=partition, timestamp=timestamp)
        self._answers.append((delivered, error))
        self._sent()

    def poll(self) -> None:
        """Run the callbacks."""
        while self._answers:
            delivered, error = self._answers.popleft()
            delivered(error)
