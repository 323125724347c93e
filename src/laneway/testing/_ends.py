"""What a runner reads from and writes to when there is no Kafka."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from laneway.errors import DataLossError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    import pyarrow as pa

    from laneway._record import Headers, Record
    from laneway.testing._log import FakeTopic

__all__ = ["FakeSender", "FakeSource"]


class FakeSource:
    """Reads a topic from given offsets. It is exhausted whenever nothing waits, and no longer when something does.

    Args:
        topic: what to read.
        offsets: where to begin in each partition; others begin at their start.
        skip_lost: go on when records were deleted before they were read, instead of raising.
        rng: mixes the partitions; without it they are read in turn.
    """

    def __init__(
        self, topic: FakeTopic, offsets: dict[int, int], *, skip_lost: bool, rng: random.Random | None
    ) -> None:
        self._topic = topic
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
        """Nothing waits now."""
        return all(self.position(number) >= log.end for number, log in enumerate(self._topic.logs))

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
        return records

    def fetch_table(self, most: int, timeout: float) -> pa.Table | None:
        """As `fetch`, as the Arrow table that a columnar handler is given."""
        from laneway.kafka._table import table_of

        self.settle()
        records = self.fetch(most, timeout)
        return table_of(self._topic.name, [_AsMessage(record) for record in records]) if records else None

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
        entries = log.read(begin, most)
        end = entries[-1].offset + 1 if len(entries) == most else log.end
        self.gaps += end - begin - len(entries)
        self._next[partition] = end
        return [entry.as_record(self._topic.name, partition) for entry in entries]


class FakeSender:
    """Writes at once and answers at the next `poll`, as a producer does.

    Args:
        write: puts a message on a topic and says why it could not, if so.
        sent: called after each message, so that somebody polls.
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


class _AsMessage:
    """A record with the accessors of a client's message, which is what tables are made of."""

    __slots__ = ("_record",)

    def __init__(self, record: Record[Any]) -> None:
        self._record = record

    def partition(self) -> int:
        return self._record.partition

    def offset(self) -> int:
        return self._record.offset

    def timestamp(self) -> tuple[int, int]:
        return (1, self._record.timestamp)

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.raw

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self._record.headers) or None
