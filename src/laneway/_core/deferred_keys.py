"""DeferredKeys: which keys have records waiting on the retry topics, so that later ones queue behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway._core.headers import origin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from laneway._core.scheduler import KeyQueue
    from laneway._declare.record import Record

__all__ = ["DeferredKeys"]


class DeferredKeys:
    """How many records of each partition and key wait on each step of a ladder in ``ordered`` mode.

    The records of a key on a higher step are older than those on a lower one, and all are older than those of the
    source topic. So a record goes behind the lowest step above its own that holds its key, and order is kept.

    A copy lies in the partition of the same number as its record, and records of different partitions have no order.
    So a key waits in each partition for itself, and a partition that is given away is forgotten with all that waits.

    Not thread-safe: the processor owns it.
    """

    __slots__ = ("_oldest", "_steps")

    def __init__(self) -> None:
        self._steps: dict[int, dict[Hashable, dict[int, int]]] = {}
        """By partition and key; none of these is ever empty."""
        self._oldest: dict[int, dict[Hashable, int]] = {}

    def __bool__(self) -> bool:
        """Whether anything waits; asked for each turn."""
        return bool(self._steps)

    def __len__(self) -> int:
        """How many keys wait; one that waits in two partitions counts twice."""
        return sum(map(len, self._steps.values()))

    def joined(self, partition: int, key: Hashable, step: int, count: int = 1) -> None:
        """Count copies of records of *key* that are on the topic of *step*, or on their way there."""
        steps = self._steps.setdefault(partition, {}).setdefault(key, {})
        steps[step] = steps.get(step, 0) + count

    def load(
        self,
        records: Iterable[Record[Any]],
        step: int,
        key_of: Callable[[Record[Any]], Hashable],
        source: str | None = None,
    ) -> None:
        """These records wait on the topic of *step*.

        Args:
            records: the copies.
            step: where they are.
            key_of: what orders them.
            source: the topic they came from at first; given after a crash, when records older than they are may be read
                again.
        """
        for record in records:
            key = key_of(record)
            if key is None:
                continue
            self.joined(record.partition, key, step)
            origin = None if source is None else origin_of(record, source)
            if origin is not None:
                self._waits_since(record.partition, key, origin.offset)

    def merge(self, other: DeferredKeys) -> None:
        """What *other* holds waits here too: a partition that was just given to this process has its own at first."""
        for partition, keys in other._steps.items():
            for key, steps in keys.items():
                for step, count in steps.items():
                    self.joined(partition, key, step, count)
        for partition, offsets in other._oldest.items():
            for key, offset in offsets.items():
                self._waits_since(partition, key, offset)

    def forget(self, partition: int) -> None:
        """A partition was given away: what waits there is another's concern."""
        self._steps.pop(partition, None)
        self._oldest.pop(partition, None)

    def precedes(self, key: Hashable, record: Record[Any]) -> bool:
        """Whether a record of *key* is older than all that wait in its partition.

        It had its end before those were copied, and is read again after a crash. To send it behind would let an old
        record have the last word; it runs where it is.
        """
        if not self._oldest:
            return False
        offset = record.offset if record.origin is None else record.origin.offset
        return offset < self._oldest.get(record.partition, {}).get(key, -1)

    def left(self, partition: int, key: Hashable, step: int) -> None:
        """A record of *key* that waited on *step* has reached its end there, or did not get there."""
        keys = self._steps.get(partition, {})
        steps = keys.get(key)
        if steps is None or step not in steps:
            return
        steps[step] -= 1
        if not steps[step]:
            del steps[step]
            if not steps:
                del keys[key]
                if not keys:
                    del self._steps[partition]

    def behind(self, partition: int, key: Hashable, step: int) -> int | None:
        """The step where a record of *key* that was read on *step* must wait; None when it may run."""
        keys = self._steps.get(partition)
        steps = None if keys is None else keys.get(key)
        return None if steps is None else min((found for found in steps if found > step), default=None)

    def cut(self, queue: KeyQueue[Record[Any]], step: int) -> int | None:
        """The step where the first records of a queue must wait, None when they may run; takes only these.

        The others have their answer when those are settled and the queue is taken again. A key that is not the
        record's own may have records of several partitions, and waits in each for itself.
        """
        items, start, key = queue.items, queue.start, queue.key
        record = items[start]
        partition = record.partition
        behind = self.behind(partition, key, step)
        answer = None if behind is None or self.precedes(key, record) else behind
        # By index: a copy of all that is taken, for the few that are left of it, would not be O(1) for each.
        for count in range(1, queue.taken):
            record = items[start + count]
            if record.partition != partition:
                partition = record.partition
                behind = self.behind(partition, key, step)
            if answer != (None if behind is None or self.precedes(key, record) else behind):
                queue.taken = count
                break
        return answer

    def _waits_since(self, partition: int, key: Hashable, offset: int) -> None:
        oldest = self._oldest.setdefault(partition, {})
        oldest[key] = min(offset, oldest.get(key, offset))
