"""AssignedConsumer: reads given offset ranges to their ends, with any gaps."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from laneway._declare.record import Record
from laneway._kafka.client import quiet
from laneway._kafka.errors import is_auth_error
from laneway.errors import DataLossError, EngineError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

__all__ = ["AssignedConsumer", "OffsetRange"]

_LEARN = 1.0  # seconds to request a topic's metadata; librdkafka would request it by itself after as long

_DOUBT = 1.0  # seconds before a log that ends inside a range is checked: a new leader may learn its end a little late

_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001 - public, see _errors


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets *start* to *end* (exclusive) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


class AssignedConsumer:
    """Reads ranges of one topic with one consumer, which is reused from task to task.

    A range ends at a record at or past its end, or when the broker reports the end of the log there. So ranges whose
    last offsets have no record (compacted, aborted, control records) end too. If the log ends before the range does, it
    has lost records or its topic was recreated, and the rest will never come.

    Not thread-safe: one thread reads. Create it after a fork.

    Args:
        options: librdkafka options, as `ClusterSettings.consumer_options` gives them.
        skip_lost: if the range's start is gone, continue from the first record of the log instead of raising.
    """

    def __init__(self, options: Mapping[str, Any], *, skip_lost: bool = False) -> None:
        self._consumer = Consumer(
            {
                # The group id only names the client here: nothing is subscribed or committed through this consumer.
                "group.id": "laneway-range-reader",
                **quiet(options),
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
            }
        )
        self._skip_lost = skip_lost
        self._topic = ""
        self._known: set[str] = set()
        self._ends: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._short: dict[int, float] = {}
        """Partitions whose logs seem to end inside their ranges, and when to check that."""
        self._paused: set[int] = set()
        self._left = 0
        self._read = 0
        self._ranges: list[OffsetRange] = []
        self.is_exhausted = True
        """Whether every range is read to its end."""
        self.lost = 0
        """How many offsets of the ranges were deleted before they were read."""
        self.gone: list[tuple[int, int, int]] = []
        """Those offsets: partition, first, and end (exclusive)."""

    @property
    def gaps(self) -> int:
        """Offsets that held no record, of those that the reader has passed."""
        return sum(self.reached(part) - part.start for part in self._ranges) - self._read - self.lost

    def reached(self, part: OffsetRange) -> int:
        """Up to where one of the ranges is read: its end, or the offset after the last record."""
        return self._next[part.partition] if part.partition in self._ends else part.end

    def open(self, ranges: Sequence[OffsetRange]) -> None:
        """Start to read these ranges: one topic, each of another partition."""
        ranges = [part for part in ranges if part.length > 0]
        self.lost = self._read = 0
        self.gone = []
        self._ends = {part.partition: part.end for part in ranges}
        self._next = {part.partition: part.start for part in ranges}
        self._short = {}
        self._ranges = ranges
        self._left = sum(part.length for part in ranges)
        self.is_exhausted = not ranges
        self._topic = ranges[0].topic if ranges else ""
        self._consumer.assign([TopicPartition(part.topic, part.partition, part.start) for part in ranges])
        if self._topic and self._topic not in self._known:
            self._learn(self._topic)

    def _learn(self, topic: str) -> None:
        """Request a topic's leaders. A connected client refreshes missing ones only once a second.

        Called after the assignment, so that the answer starts reading at once.
        """
        self._known.add(topic)
        with suppress(KafkaException):  # no broker answers; the client keeps trying
            self._consumer.list_topics(topic, _LEARN)

    def pause(self, partitions: Collection[int]) -> None:
        """Read nothing of these partitions for now, and all others. What was fetched of them is fetched again later."""
        wanted = {partition for partition in partitions if partition in self._ends}
        new, old = wanted - self._paused, self._paused - wanted
        self._paused = wanted
        if new:
            self._consumer.pause([TopicPartition(self._topic, partition) for partition in new])
        if old:
            with suppress(KafkaException):  # one that is at its end is not assigned any more
                self._consumer.resume([TopicPartition(self._topic, partition) for partition in old])

    def close(self) -> None:
        """Stop reading; keep the connection for the next ranges."""
        self.pause(())  # else it would still hold when the partition is read again
        self._consumer.unassign()
        self.is_exhausted = True

    def end(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def fetch(self, most: int, timeout: float) -> list[Record[Any]]:
        """Up to *most* records, waiting no longer than *timeout* seconds."""
        topic, ends = self._topic, self._ends
        records = []
        for message in self._consume(most, timeout):
            if message.error() is not None:
                self._notice(message)
                continue
            partition, offset = message.partition(), message.offset()
            end = ends.get(partition)
            if end is None or offset >= end:
                if end is not None:
                    self._finish(partition)
                continue
            key, raw = message.key(), message.value()
            size = (0 if raw is None else len(raw)) + (0 if key is None else len(key))
            headers = message.headers() or ()
            records.append(Record(topic, partition, offset, message.timestamp()[1], key, raw, headers, size, raw))
        if records:
            self._advance([record.partition for record in records], [record.offset for record in records])
        return records

    def fetch_table(self, most: int, timeout: float) -> pa.Table | None:
        """As `fetch`, as an Arrow table: columns topic, partition, offset, timestamp, key, value, headers."""
        from laneway._kafka.convert import table_of

        messages = []
        ends = self._ends
        for message in self._consume(most, timeout):
            if message.error() is not None:
                self._notice(message)
            elif message.offset() < ends.get(message.partition(), -1):
                messages.append(message)
            elif message.partition() in ends:
                self._finish(message.partition())
        if not messages:
            return None
        table = table_of(self._topic, messages)
        self._advance([message.partition() for message in messages], [message.offset() for message in messages])
        return table

    def _consume(self, most: int, timeout: float) -> list[Any]:
        if self.is_exhausted:
            return []
        for partition in [partition for partition, due in self._short.items() if due <= time.monotonic()]:
            self._look_at_end(partition)
        # consume() waits until it has the requested number, so never request more than can come.
        wanted = max(1, min(most, self._left))
        messages: list[Any] = self._consumer.consume(wanted, timeout)
        return messages

    def _advance(self, partitions: list[int], offsets: list[int]) -> None:
        """Record the positions, and finish ranges that are at their ends."""
        self._read += len(offsets)
        for partition, offset in dict(zip(partitions, offsets, strict=True)).items():
            self._next[partition] = offset + 1
            if offset + 1 >= self._ends.get(partition, offset + 2):
                self._finish(partition)
        self._left = sum(end - self._next[partition] for partition, end in self._ends.items())

    def _finish(self, partition: int) -> None:
        del self._ends[partition]
        self._short.pop(partition, None)
        self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])
        self.is_exhausted = not self._ends

    def _notice(self, message: Any) -> None:
        """Handle an event that is no record."""
        error, partition = message.error(), message.partition()
        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - public, see _errors
            if partition in self._ends and message.offset() >= self._ends[partition]:
                self._finish(partition)
            elif partition in self._ends:
                self._short.setdefault(partition, time.monotonic() + _DOUBT)
        elif code in _GONE:
            if partition in self._ends:
                self._lose(partition)
        elif is_auth_error(error) or error.fatal():
            raise EngineError(f"{self._topic}[{partition}]: {error.name()}: {error.str()}")
        # librdkafka recovers from anything else, such as a lost broker or a moved leader.

    def _look_at_end(self, partition: int) -> None:
        """Finish a range whose log ends before it."""
        self._short[partition] = time.monotonic() + _DOUBT
        with suppress(KafkaException):  # it is requested again
            low, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), _LEARN)
            if high < self._ends[partition]:
                self._give_up(partition, low, high, is_at_end=True)
            else:
                del self._short[partition]

    def _lose(self, partition: int) -> None:
        """Continue after, or raise: the start of the range is no longer in the log."""
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), 10)
        except KafkaException as error:
            raise EngineError(f"{self._topic}[{partition}]: {error}") from error
        self._give_up(partition, low, high, is_at_end=False)

    def _give_up(self, partition: int, low: int, high: int, *, is_at_end: bool) -> None:
        position, end = self._next[partition], self._ends[partition]
        if is_at_end or high < position:
            first, now = end, f"ends at {high}"  # the topic was recreated: the range will never come
        else:
            first, now = min(low, end), f"begins at {low}"
        gone = max(0, first - position)
        if not self._skip_lost:
            raise DataLossError(
                f"{self._topic}[{partition}]: offsets {position} to {first - 1} are gone (the log now {now}). They "
                "were deleted before they were read. To continue without them, set on_data_loss: continue"
            )
        self.lost += gone
        self.gone.append((partition, position, position + gone))
        self._next[partition] = position + gone
        if self._next[partition] >= end:
            self._finish(partition)
        else:
            # Not seek(): librdkafka refuses it for a partition that stopped fetching after an offset error.
            place = TopicPartition(self._topic, partition, self._next[partition])
            self._consumer.incremental_unassign([place])
            self._consumer.incremental_assign([place])
