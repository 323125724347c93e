"""RetrySource: reads delayed sources and the retry topics of owned partitions, each record when it is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway._kafka import AssignedConsumer, OffsetRange
from laneway._runtime.partition import Pause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laneway._declare.record import Record
    from laneway._kafka import Place
    from laneway._runtime.partition import Partition, Partitions

__all__ = ["RetrySource"]


class RetrySource:
    """Reads ranges up to what is due. The loop's thread owns it.

    A retry topic has as many partitions as its source, and the owner of a partition of the source reads the same
    partition of its retry topics. So they need no group of their own, and a key's retries are where its records are.

    Args:
        topics: what it reads.
        partitions: the owned ones.
        options: librdkafka options of the readers.
        skip_lost: continue when records were deleted before they were read.
        readers: topic to its reader; given when readers outlive it.
    """

    def __init__(
        self,
        topics: Sequence[str],
        partitions: Partitions,
        options: Mapping[str, Any],
        *,
        skip_lost: bool,
        readers: dict[str, AssignedConsumer] | None = None,
    ) -> None:
        self.topics = topics
        self.passed = 0
        """Records that were left out, because an earlier owner has finished them."""
        self._partitions = partitions
        self._options = options
        self._skip_lost = skip_lost
        self._readers = {} if readers is None else readers
        self._keeps_readers = readers is not None
        self._open: dict[str, dict[int, tuple[Partition, int]]] = {}
        """Topic that is being read to its partitions as they were then, and where their ranges end."""
        self._planned: dict[str, Mapping[Place, tuple[int, int]]] = {}
        """Topic to the answer of the brokers by which it was read last: it is looked through once."""

    def open(self, topic: str, due: Mapping[Place, tuple[int, int]]) -> bool:
        """Begin to read what is due of a topic, if anything is; whether it is being read.

        Args:
            topic: which.
            due: up to where partitions may be read; before that, the epoch in which they were asked for.
        """
        if topic in self._open:
            if all(self._partitions.get(part.place) is part for part, _ in self._open[topic].values()):
                return True
            self._close(topic)  # a partition is gone, or its log begins again
        elif self._planned.get(topic) is due:
            return False
        self._planned[topic] = due
        ranges = {}
        for partition in self._partitions.of((topic,)):
            epoch, end = due.get(partition.place, (-1, 0))
            is_held = partition.paused - {Pause.DELAY, Pause.METADATA}
            if epoch == partition.epoch and end > partition.position and not is_held:
                ranges[partition.place[1]] = partition, end
        if not ranges:
            return False
        if topic not in self._readers:
            self._readers[topic] = AssignedConsumer(self._options, skip_lost=self._skip_lost)
        self._readers[topic].open([OffsetRange(*part.place, part.position, end) for part, end in ranges.values()])
        self._open[topic] = ranges
        return True

    def read(self, topic: str, most: int) -> tuple[list[Record[Any]], int]:
        """What has arrived of a topic that is being read, without waiting; and how many records are lost."""
        reader, opened = self._readers[topic], self._open[topic]
        fresh = []
        for record in reader.fetch(most, 0):
            partition = opened[record.partition][0]
            if partition.inherited is not None and partition.inherited.has(record.offset):
                partition.reached = record.offset + 1
                self.passed += 1
            else:
                record.epoch = partition.epoch
                partition.delivered = record.offset + 1
                fresh.append(record)
        if not reader.is_exhausted:
            return fresh, 0
        for partition, end in opened.values():
            partition.reached = max(partition.reached, end)
        self._close(topic)
        known = [(opened[number][0].inherited, start, end) for number, start, end in reader.gone]
        return fresh, reader.lost - sum(found.count(start, end) for found, start, end in known if found is not None)

    @property
    def is_idle(self) -> bool:
        """Whether every topic was looked at, and nothing of them is being read."""
        return not self._open and len(self._planned) == len(self.topics)

    def end(self) -> None:
        """Read nothing more, and close the connections that are not kept."""
        for topic in tuple(self._open):
            self._close(topic)
        while self._readers and not self._keeps_readers:
            self._readers.popitem()[1].end()

    def _close(self, topic: str) -> None:
        del self._open[topic]
        self._readers[topic].close()
