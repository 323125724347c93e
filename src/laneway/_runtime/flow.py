"""Flow: which partitions are paused, because buffers are full or on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway._runtime.partition import Pause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laneway._runtime.handler_worker import HandlerWorker
    from laneway._runtime.partition import Partition, Partitions

__all__ = ["MOST", "Flow"]

MOST = 1_000
"""Records a read: to convert more at once would keep lanes waiting for the interpreter."""
_HOLD = 0.5  # seconds without room before partitions are paused: to pause throws away what is fetched


class Flow:
    """Says how much may be read, and puts reasons into `Partition.paused` or takes them out. The loop's thread owns it.

    Args:
        partitions: the owned ones.
        workers: topic to those of the handlers that read it.
        topics: those that the group consumer reads, not those whose records wait until they are due.
    """

    def __init__(
        self, partitions: Partitions, workers: Mapping[str, Sequence[HandlerWorker]], topics: Sequence[str]
    ) -> None:
        self._partitions = partitions
        self._workers = workers
        self._topics = topics
        self._full: set[str] = set()
        """Topics that are paused because a buffer is full."""
        self._since: float | None = None
        """Since when nothing can be read because everything is full."""
        self.is_holding = False
        """Whether reading is paused on request. Any thread may read it."""
        self.has_changed = False
        """Whether the client has yet to apply pauses."""

    def begin(self, partition: Partition) -> None:
        """A partition is new: it is not read as long as its topic is not."""
        if partition.place[0] in self._full:
            partition.paused.add(Pause.BUFFER)
        if self.is_holding and partition.place[0] in self._topics:  # `hold` pauses no others
            partition.paused.add(Pause.USER)
        if partition.is_at_limit:
            partition.paused.add(Pause.LIMIT)

    def room(self, now: float) -> int:
        """How many records may be read; none while everything that could be read is full."""
        # A paused topic counts as having no room, whatever room it has by now.
        free = [topic for topic in self._topics if topic not in self._full]
        rooms = {topic: min([worker.room for worker in self._workers[topic]]) for topic in free}
        full = [topic for topic, room in rooms.items() if room <= 0]
        if len(full) < len(rooms):
            self._since = None
            if full:
                self._hold(full)  # others may be read
        elif full:
            self._since = self._since or now
            if now - self._since >= _HOLD:
                self._hold(full)
        return min([room for topic, room in rooms.items() if topic not in full], default=0)

    def room_of(self, topic: str) -> int:
        """How many records may be read of a topic whose records wait until they are due."""
        partitions = self._partitions.of((topic,))
        for partition in partitions:
            self._set(partition, Pause.METADATA, on=not partition.may_read_on())
        if any(Pause.METADATA in partition.paused for partition in partitions):
            return 0  # its partitions are read together
        return min(worker.room for worker in self._workers[topic])

    def is_waiting(self, now: float) -> bool:
        """Whether room has been lacking for so short that it is only waited for."""
        return self._since is not None and now - self._since < _HOLD

    def hold(self, *, on: bool) -> None:
        """Pause or resume all reading, on request."""
        if on != self.is_holding:
            for partition in self._partitions.of(self._topics):
                self._set(partition, Pause.USER, on=on)
            self.is_holding = on

    def look(self) -> None:
        """Resume topics whose buffers are half free, and pause partitions that have enough."""
        for topic in [topic for topic in self._full if all(each.is_half_free for each in self._workers[topic])]:
            self._full.discard(topic)
            for partition in self._partitions.of((topic,)):
                self._set(partition, Pause.BUFFER, on=False)
        for topic in self._topics:
            if topic not in self._full:
                self._bound(topic)

    def delivered(self, partition: Partition) -> None:
        """Records of a partition were put into the buffers."""
        if not partition.may_read_on():
            self._set(partition, Pause.METADATA, on=True)
        if partition.is_at_limit:
            self._set(partition, Pause.LIMIT, on=True)

    def _hold(self, topics: list[str]) -> None:
        self._full.update(topics)
        for partition in self._partitions.of(topics):
            self._set(partition, Pause.BUFFER, on=True)

    def _bound(self, topic: str) -> None:
        """Pause a partition that has more than its share, or whose commit metadata is full."""
        workers, partitions = self._workers[topic], self._partitions.of((topic,))
        most = min(worker.capacity for worker in workers)
        share = max(MOST, 2 * most // max(1, len(partitions)))
        used = most - min(worker.room for worker in workers)
        for partition in partitions:
            count = max(worker.count(partition.place) for worker in workers)
            if count > share and used > most // 2:
                self._set(partition, Pause.SHARE, on=True)
            self.delivered(partition)
            if count <= share // 2:
                self._set(partition, Pause.SHARE, on=False)
                self._set(partition, Pause.METADATA, on=not partition.may_read_on())

    def _set(self, partition: Partition, reason: Pause, *, on: bool) -> None:
        if on != (reason in partition.paused):
            (partition.paused.add if on else partition.paused.discard)(reason)
            self.has_changed = True
