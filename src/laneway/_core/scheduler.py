"""Scheduler: keys wait in line, a free lane takes the key that has been ready longest."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

__all__ = ["KeyQueue", "Scheduler", "Turn"]


class _Sized(Protocol):
    size: int


T = TypeVar("T", bound=_Sized)


class KeyQueue(msgspec.Struct, Generic[T], eq=False, gc=False):
    """The items of one key: finished ones up to `start`, then `taken` in work, then those that wait.

    One is made for nearly every record of a topic whose keys rarely repeat, so it is a struct, which is made in a third
    of the time of a class.
    """

    key: Any
    items: list[T]
    lane: int
    """The partition, when lanes are strict."""
    start: int = 0
    taken: int = 0
    is_out: bool = False
    """In work, waiting for its copy to be parked, or postponed: not to be given to a lane now."""

    def work(self) -> list[T]:
        """The items a lane has taken, in order."""
        return self.items[self.start : self.start + self.taken]


Turn = list[KeyQueue[T]]
"""What one lane works through: queues whose taken items no other lane touches."""


class Scheduler(Generic[T]):
    """Gives ready keys to free lanes; a key with an item in work is not ready.

    Lanes are a count, not a hash: any free lane takes the oldest ready key, so none idles while a key waits. With
    *per_partition* a partition may use no more than that many lanes at once (strict lanes).

    Not thread-safe: one thread owns it, or a lock of the owner guards it. Every operation is O(1) per item.

    Args:
        lanes: how many turns may be out at once.
        per_partition: most turns out for the items of one partition; None lets a busy partition borrow.
    """

    __slots__ = (
        "_blocked",
        "_busy",
        "_late",
        "_order",
        "_per_partition",
        "_queues",
        "_ready",
        "lanes",
        "lanes_busy",
        "ready",
        "records",
        "size",
    )

    def __init__(self, lanes: int, per_partition: int | None = None) -> None:
        self.lanes = max(1, lanes)
        self.lanes_busy = 0
        """Turns out now."""
        self.records = 0
        """Items pushed and not settled."""
        self.size = 0
        """Their bytes."""
        self.ready = 0
        """Items of keys that are not out: a lane could take them, unless strict lanes hold their partition back."""
        self._queues: dict[Hashable, KeyQueue[T]] = {}
        self._ready: deque[KeyQueue[T]] = deque()
        self._late: list[tuple[float, int, KeyQueue[T]]] = []
        self._order = count()  # ties of the heap fall to the earlier one, never to a comparison of queues
        self._per_partition = per_partition
        self._busy: dict[int, int] = {}
        self._blocked: dict[int, deque[KeyQueue[T]]] = {}

    def push(self, items: Iterable[T], keys: Iterable[Hashable], partitions: Iterable[int] | None = None) -> None:
        """Put items at the end of their keys' queues; an item whose key is None has no order and waits for nobody."""
        queues, ready = self._queues, self._ready
        added = takeable = size = 0
        for item, key, lane in zip(items, keys, partitions or repeat(0), strict=False):
            added += 1
            size += item.size
            if key is None:
                ready.append(KeyQueue(None, [item], lane))
                takeable += 1
                continue
            queue = queues.get(key)
            if queue is None:
                queues[key] = queue = KeyQueue(key, [item], lane)
                ready.append(queue)
                takeable += 1
            else:
                queue.items.append(item)
                if not queue.is_out:
                    takeable += 1
        self.records += added
        self.size += size
        self.ready += takeable

    def take(self, most: int) -> Turn[T] | None:
        """Give a free lane up to *most* items; None when no lane is free or nothing is ready."""
        ready = self._ready
        if not ready or self.lanes_busy >= self.lanes:
            return None
        if self._per_partition is not None:
            return self._take_strict(most)
        turn: Turn[T] = []
        left, given = most, 0
        while ready and left > 0:
            # As `_give`, written out: this loop runs for every record.
            queue = ready.popleft()
            waiting = len(queue.items) - queue.start
            given += waiting
            queue.taken = min(waiting, left)
            queue.is_out = True
            left -= waiting
            turn.append(queue)
        self.ready -= given
        self.lanes_busy += 1
        return turn

    def end_turn(self, turn: Sequence[KeyQueue[T]] = ()) -> None:
        """A lane is free again. Its queues are settled or postponed on their own; one that is not stays out."""
        self.lanes_busy -= 1
        if self._per_partition is not None and turn:
            lane = turn[0].lane
            self._busy[lane] -= 1
            self._unblock(lane)

    def settle(self, queue: KeyQueue[T], done: int) -> None:
        """The first *done* taken items are finished with; the rest, and what waits behind, become ready again."""
        items = queue.items
        if done == 1 == len(items):  # the commonest by far
            self.size -= items[0].size
            self.records -= 1
            if queue.key is not None:
                del self._queues[queue.key]
            return
        self._advance(queue, done)
        left = len(queue.items) - queue.start
        if left:
            queue.is_out = False
            self.ready += left
            self._ready.append(queue)
        elif queue.key is not None:
            del self._queues[queue.key]

    def settle_all(self, queues: Iterable[KeyQueue[T]], done: Iterable[int]) -> None:
        """As `settle` for each queue with its number; queues that have none were not begun.

        One whose number is negative is passed over: somebody else sees to it.
        """
        known = self._queues
        records = size = 0
        for queue, finished in zip(queues, chain(done, repeat(0)), strict=False):
            items, start = queue.items, queue.start
            if start + finished < len(items):
                if finished >= 0:
                    self.settle(queue, finished)
                continue
            for item in items[start:] if start else items:
                size += item.size
            records += finished
            if queue.key is not None:
                del known[queue.key]
        self.records -= records
        self.size -= size

    def retain(self, queue: KeyQueue[T], items: list[T]) -> None:
        """Of the taken items only these are still to be run, in this order; the others are finished with."""
        taken = queue.work()
        self.records -= len(taken) - len(items)
        self.size -= sum(item.size for item in taken) - sum(item.size for item in items)
        queue.items[queue.start : queue.start + queue.taken] = items
        queue.taken = len(items)

    def postpone(self, queue: KeyQueue[T], done: int, until: float) -> None:
        """As `settle`, but the key stays out until `wake` is called with a time of *until* or later."""
        self._advance(queue, done)
        heapq.heappush(self._late, (until, next(self._order), queue))

    def wake(self, now: float) -> int:
        """Make the postponed keys ready whose time has come, before those that wait already; returns how many."""
        woken = 0
        while self._late and self._late[0][0] <= now:
            queue = heapq.heappop(self._late)[2]
            queue.is_out = False
            self.ready += len(queue.items) - queue.start
            self._ready.appendleft(queue)
            woken += 1
        return woken

    def drop(self, is_unwanted: Callable[[T], bool]) -> int:
        """Take out items that no lane has taken yet, postponed ones too; returns how many. O(n) in all items."""
        late = {id(queue) for _, _, queue in self._late}
        queues = {id(queue): queue for queue in (*self._queues.values(), *self._ready)}
        queues |= {id(queue): queue for queue in (queue for line in self._blocked.values() for queue in line)}
        queues |= {id(queue): queue for _, _, queue in self._late}
        dropped = 0
        for name, queue in queues.items():
            # In place: a lane may be looking at what it has taken.
            at = queue.start + (queue.taken if queue.is_out and name not in late else 0)
            kept = [item for item in queue.items[at:] if not is_unwanted(item)]
            gone = len(queue.items) - at - len(kept)
            if not gone:
                continue
            dropped += gone
            self.size -= sum(item.size for item in queue.items[at:]) - sum(item.size for item in kept)
            if not queue.is_out:
                self.ready -= gone
            queue.items[at:] = kept
            if len(queue.items) == queue.start and (not queue.is_out or name in late) and queue.key is not None:
                del self._queues[queue.key]
        self.records -= dropped
        if dropped:
            self._forget_empty()
        return dropped

    def waiting(self) -> Iterator[T]:
        """The items that `drop` could take out."""
        late = {id(queue) for _, _, queue in self._late}
        keyless = [queue for queue in self._ready if queue.key is None]
        keyless += [queue for _, _, queue in self._late if queue.key is None]
        keyless += [queue for line in self._blocked.values() for queue in line if queue.key is None]
        for queue in (*self._queues.values(), *keyless):
            yield from queue.items[queue.start + (queue.taken if queue.is_out and id(queue) not in late else 0) :]

    def postponed(self, after: float) -> Iterator[T]:
        """The items of keys that `wake` leaves alone at that time."""
        for until, _, queue in self._late:
            if until > after:
                yield from queue.items[queue.start :]

    @property
    def next_wake(self) -> float | None:
        """When the first postponed key may run again."""
        return self._late[0][0] if self._late else None

    @property
    def is_idle(self) -> bool:
        """Whether every item pushed is finished with."""
        return self.records == 0

    def queue_of(self, key: Hashable) -> KeyQueue[T] | None:
        """The queue of a key, only to be looked at; None when nothing of it is here. Items without a key have none."""
        return self._queues.get(key)

    def _forget_empty(self) -> None:
        def is_full(queue: KeyQueue[T]) -> bool:
            return len(queue.items) > queue.start

        self._ready = deque(filter(is_full, self._ready))
        self._late = [entry for entry in self._late if is_full(entry[2])]
        heapq.heapify(self._late)
        # What was next in line of its partition may be gone: a turn sorts out again who must wait.
        self._ready.extend(queue for line in self._blocked.values() for queue in line if is_full(queue))
        self._blocked.clear()

    def _give(self, queue: KeyQueue[T], most: int) -> int:
        waiting = len(queue.items) - queue.start
        queue.taken = min(waiting, most)
        queue.is_out = True
        self.ready -= waiting
        return queue.taken

    def _take_strict(self, most: int) -> Turn[T] | None:
        """As `take`, one partition a turn, passing over partitions that use all of their lanes."""
        turn: Turn[T] = []
        lane, left = -1, most
        passed: list[KeyQueue[T]] = []
        while self._ready and left > 0:
            queue = self._ready.popleft()
            if not turn and self._busy.get(queue.lane, 0) >= (self._per_partition or 1):
                self._blocked.setdefault(queue.lane, deque()).append(queue)
                continue
            if turn and queue.lane != lane:
                passed.append(queue)
                # Looking further would make a turn cost as much as the line is long.
                if len(passed) >= 8:
                    break
                continue
            lane = queue.lane
            left -= self._give(queue, left)
            turn.append(queue)
        self._ready.extendleft(reversed(passed))
        if not turn:
            return None
        self._busy[lane] = self._busy.get(lane, 0) + 1
        self.lanes_busy += 1
        if self._busy[lane] < (self._per_partition or 1):
            # This turn may hold several keys that came back one for each lane: the next lane needs one too.
            self._unblock(lane)
        return turn

    def _unblock(self, lane: int) -> None:
        blocked = self._blocked.get(lane)
        if blocked:
            self._ready.append(blocked.popleft())

    def _advance(self, queue: KeyQueue[T], done: int) -> None:
        if done:
            start = queue.start
            for item in queue.items[start : start + done] if done > 1 else (queue.items[start],):
                self.size -= item.size
            self.records -= done
            queue.start = start = start + done
            # Cutting the list at each item would cost O(n); at half its length it costs O(1) each, and no more
            # finished items are kept in memory than unfinished ones.
            if start * 2 >= len(queue.items):
                del queue.items[:start]
                queue.start = 0
        queue.taken = 0
