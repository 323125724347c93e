"""AssignedConsumer: reads given offset ranges to their ends, whatever gaps they have."""

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
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

__all__ = ["AssignedConsumer", "OffsetRange"]

_LEARN = 1.0  # seconds to ask for a topic; librdkafka would ask for it by itself after as long

_DOUBT = (
    1.0  # seconds before a log that ends inside a range is looked at: a new leader may know of its end a little late
)

_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001 - public, see _errors


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets *start* to *end* (not included) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def length(self) -> int:
        """How many offsets it spans."""
        return self.end - self.start


class AssignedConsumer:
    """Reads ranges of one topic with one consumer, which is kept and re-assigned from task to task.

    A range ends when a record at or past its end is seen, or when the broker says that the log ends there. So ranges
    whose last offsets hold no record (compacted, aborted, control records) end too. A log that ends before the range
    does has lost records, or its topic was recreated: what is missing will never come.

    Not thread-safe: one thread reads. Made after the fork.

    Args:
        options: librdkafka options, as `ClusterSettings.consumer_options` gives them.
        skip_lost: go on from the first record there is when the range's start is gone, instead of raising.
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
        """Partitions whose logs seem to end inside their ranges, and when that is looked at."""
        self._left = 0
        self._spanned = self._read = 0
        self.is_exhausted = True
        """Every range is read to its end."""
        self.lost = 0
        """Offsets of the ranges that were gone before they could be read."""
        self.gone: list[tuple[int, int, int]] = []
        """Which: partition, the first of them, and the one after the last."""

    @property
    def gaps(self) -> int:
        """Offsets that held no record, once every range is read."""
        return self._spanned - self._read - self.lost

    def open(self, ranges: Sequence[OffsetRange]) -> None:
        """Begin to read these ranges, which are of one topic and of different partitions."""
        ranges = [part for part in ranges if part.length > 0]
        self.lost = self._read = 0
        self.gone = []
        self._ends = {part.partition: part.end for part in ranges}
        self._next = {part.partition: part.start for part in ranges}
        self._short = {}
        self._spanned = self._left = sum(part.length for part in ranges)
        self.is_exhausted = not ranges
        self._topic = ranges[0].topic if ranges else ""
        self._consumer.assign([TopicPartition(part.topic, part.partition, part.start) for part in ranges])
        if self._topic and self._topic not in self._known:
            self._learn(self._topic)

    def _learn(self, topic: str) -> None:
        """Ask for a topic's leaders. A client that is connected already looks for those it lacks once a second only.

        After the assignment, so that the answer starts the reading at once.
        """
        self._known.add(topic)
        with suppress(KafkaException):  # no broker answers: the client goes on asking
            self._consumer.list_topics(topic, _LEARN)

    def close(self) -> None:
        """Stop reading; the connection is kept for the next ranges."""
        self._consumer.unassign()
        self.is_exhausted = True

    def end(self) -> None:
        """Let go of the connection."""
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
        # consume() waits until it has as many as asked for, so never ask for more than can come.
        wanted = max(1, min(most, self._left))
        messages: list[Any] = self._consumer.consume(wanted, timeout)
        return messages

    def _advance(self, partitions: list[int], offsets: list[int]) -> None:
        """Take note of what was read, and finish the ranges that are at their ends."""
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
        """Act on an event that is no record."""
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
        # Anything else (a broker went away, a leader moved) librdkafka mends by itself.

    def _look_at_end(self, partition: int) -> None:
        """Give up what is left of a range whose log ends before it does."""
        self._short[partition] = time.monotonic() + _DOUBT
        with suppress(KafkaException):  # it is asked for again
            low, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), _LEARN)
            if high < self._ends[partition]:
                self._give_up(partition, low, high, is_at_end=True)
            else:
                del self._short[partition]

    def _lose(self, partition: int) -> None:
        """The range's start is gone from the log."""
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), 10)
        except KafkaException as error:
            raise EngineError(f"{self._topic}[{partition}]: {error}") from error
        self._give_up(partition, low, high, is_at_end=False)

    def _give_up(self, partition: int, low: int, high: int, *, is_at_end: bool) -> None:
        position, end = self._next[partition], self._ends[partition]
        if is_at_end or high < position:
            first, told = end, f"ends at {high}"  # the topic was recreated: nothing of the range will ever come
        else:
            first, told = min(low, end), f"begins at {low}"
        gone = max(0, first - position)
        if not self._skip_lost:
            raise DataLossError(
                f"{self._topic}[{partition}]: offsets {position} to {first - 1} are gone (the log {told} now). They "
                "were deleted before they were read. To go on without them set on_data_loss: continue"
            )
        self.lost += gone
        self.gone.append((partition, position, position + gone))
        self._next[partition] = position + gone
        if self._next[partition] >= end:
            self._finish(partition)
        else:
            # Not seek(): librdkafka refuses it for a partition whose fetching an offset error has stopped.
            place = TopicPartition(self._topic, partition, self._next[partition])
            self._consumer.incremental_unassign([place])
            self._consumer.incremental_assign([place])
