"""Scheduler: keys wait in line, a free lane takes the key that has been ready longest."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

__all__ = ["KeyQueue", "Lanes", "Scheduler", "StrictScheduler", "Turn"]


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
    is_busy: bool = False
    """In work, postponed or held: not to be given to a lane now."""
    held: int = 0
    """Deliveries and acknowledgements that must arrive before the key continues."""
    until: float = 0.0
    """When its head may run again after they have arrived; 0 for at once."""
    error: str = ""
    """What the last call of its head failed with, when that is tried again."""

    def work(self) -> list[T]:
        """The items a lane has taken, in order."""
        return self.items[self.start : self.start + self.taken]


Turn = list[KeyQueue[T]]
"""What one lane works through: queues whose taken items no other lane touches."""


class Lanes:
    """How many turns may run at once, and how many do. All schedulers of a handler share one.

    Args:
        total: how many may run at once.
        per_partition: most turns at once for the items of one partition (strict lanes); None lets a busy partition
            use the lanes of the others.
    """

    __slots__ = ("busy", "busy_by_partition", "per_partition", "strict", "total")

    def __init__(self, total: int, per_partition: int | None = None) -> None:
        self.total = max(1, total)
        self.busy = 0
        self.per_partition = per_partition
        self.busy_by_partition: dict[int, int] = {}
        self.strict: list[StrictScheduler[Any]] = []
        """The schedulers that share strict lanes."""


class Scheduler(Generic[T]):
    """Gives ready keys to free lanes; a key with an item in work is not ready.

    Lanes are a count, not a hash: any free lane takes the oldest ready key, so none idles while a key waits.

    Not thread-safe: one thread owns it, or a lock of the owner guards it. Every operation is O(1) per item.

    Args:
        lanes: those that its turns use.
    """

    __slots__ = (
        "_late",
        "_order",
        "_queues",
        "_ready",
        "lanes",
        "ready",
        "records",
        "size",
    )

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.records = 0
        """Items pushed and not settled."""
        self.size = 0
        """Their bytes."""
        self.ready = 0
        """Items of keys that are not busy: a lane could take them, unless strict lanes hold their partition back."""
        self._queues: dict[Hashable, KeyQueue[T]] = {}
        self._ready: deque[KeyQueue[T]] = deque()
        self._late: list[tuple[float, int, KeyQueue[T]]] = []
        self._order = count()  # ties of the heap fall to the earlier one, never to a comparison of queues

    def push(self, items: Iterable[T], keys: Iterable[Hashable], partitions: Iterable[int] | None = None) -> None:
        """Put items at the end of their keys' queues; an item whose key is None has no order and does not wait."""
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
                if not queue.is_busy:
                    takeable += 1
        self.records += added
        self.size += size
        self.ready += takeable

    def take(self, most: int) -> Turn[T] | None:
        """Give a free lane up to *most* items; None when no lane is free or nothing is ready."""
        ready = self._ready
        lanes = self.lanes
        if not ready or lanes.busy >= lanes.total:
            return None
        turn: Turn[T] = []
        left, given = most, 0
        while ready and left > 0:
            queue = ready.popleft()
            waiting = len(queue.items) - queue.start
            given += waiting
            queue.taken = min(waiting, left)
            queue.is_busy = True
            left -= waiting
            turn.append(queue)
        self.ready -= given
        lanes.busy += 1
        return turn

    def end_turn(self, turn: Sequence[KeyQueue[T]] = ()) -> None:  # noqa: ARG002 - strict lanes need it
        """A lane is free again. Its queues are settled, postponed or held on their own; one that is not stays busy."""
        self.lanes.busy -= 1

    def settle(self, queue: KeyQueue[T], done: int) -> None:
        """`advance` and `release` in one: what is left becomes ready again."""
        items = queue.items
        if done == 1 == len(items):  # the commonest by far
            self.size -= items[0].size
            self.records -= 1
            if queue.key is not None:
                del self._queues[queue.key]
            return
        self.advance(queue, done)
        self.release(queue)

    def settle_all(self, queues: Iterable[KeyQueue[T]], done: Iterable[int]) -> None:
        """As `settle` for each queue with its number; queues that have none were not begun.

        One whose number is negative is left alone.
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

    def advance(self, queue: KeyQueue[T], over: int | list[T]) -> None:
        """Remove finished items from the queue: this number of taken ones, or all of them except these."""
        if isinstance(over, list):
            taken = queue.work()
            self.records -= len(taken) - len(over)
            self.size -= sum(item.size for item in taken) - sum(item.size for item in over)
            queue.items[queue.start : queue.start + queue.taken] = over
        elif over:
            start = queue.start
            for item in queue.items[start : start + over] if over > 1 else (queue.items[start],):
                self.size -= item.size
            self.records -= over
            queue.start = start = start + over
            # Cutting the list at each item would cost O(n); at half its length it costs O(1) each, and no more
            # finished items are kept in memory than unfinished ones.
            if start * 2 >= len(queue.items):
                del queue.items[:start]
                queue.start = 0
        queue.taken = 0

    def release(self, queue: KeyQueue[T]) -> None:
        """The key continues: what is left of it becomes ready."""
        left = len(queue.items) - queue.start
        if left:
            queue.is_busy = False
            self.ready += left
            self._ready.append(queue)
        elif queue.key is not None:
            del self._queues[queue.key]

    def postpone(self, queue: KeyQueue[T], until: float) -> None:
        """The key stays busy until `wake` is called with a time of *until* or later."""
        heapq.heappush(self._late, (until, next(self._order), queue))

    def hold(self, queue: KeyQueue[T], count: int, until: float = 0.0) -> None:
        """The key stays busy until *count* more deliveries or acknowledgements have arrived, and then until a time."""
        queue.held += count
        queue.until = max(queue.until, until)

    def arrived(self, queue: KeyQueue[T]) -> None:
        """One of them has arrived; after the last one the key continues."""
        queue.held -= 1
        if queue.held:
            return
        until, queue.until = queue.until, 0.0
        if until and len(queue.items) > queue.start:
            self.postpone(queue, until)
        else:
            self.release(queue)

    def wake(self, now: float) -> int:
        """Make the postponed keys ready whose time has come, before those that wait already; returns how many."""
        woken = 0
        while self._late and self._late[0][0] <= now:
            queue = heapq.heappop(self._late)[2]
            queue.is_busy = False
            self.ready += len(queue.items) - queue.start
            self._ready.appendleft(queue)
            woken += 1
        return woken

    def drop(self, is_unwanted: Callable[[T], bool]) -> int:
        """Take out items that no lane has taken yet, postponed ones too; returns how many. O(n) in all items."""
        late = {id(queue) for _, _, queue in self._late}
        queues = {id(queue): queue for queue in (*self._queues.values(), *self._lined_up())}
        queues |= {id(queue): queue for _, _, queue in self._late}
        dropped = 0
        for name, queue in queues.items():
            # In place: a lane may be looking at what it has taken.
            at = queue.start + (queue.taken if queue.is_busy and name not in late else 0)
            kept = [item for item in queue.items[at:] if not is_unwanted(item)]
            gone = len(queue.items) - at - len(kept)
            if not gone:
                continue
            dropped += gone
            self.size -= sum(item.size for item in queue.items[at:]) - sum(item.size for item in kept)
            if not queue.is_busy:
                self.ready -= gone
            queue.items[at:] = kept
            if len(queue.items) == queue.start and (not queue.is_busy or name in late) and queue.key is not None:
                del self._queues[queue.key]
        self.records -= dropped
        if dropped:
            self._forget_empty()
        return dropped

    def waiting(self) -> Iterator[T]:
        """The items that `drop` could take out."""
        late = {id(queue) for _, _, queue in self._late}
        keyless = [queue for queue in self._lined_up() if queue.key is None]
        keyless += [queue for _, _, queue in self._late if queue.key is None]
        for queue in (*self._queues.values(), *keyless):
            yield from queue.items[queue.start + (queue.taken if queue.is_busy and id(queue) not in late else 0) :]

    def postponed(self, after: float) -> Iterator[T]:
        """The items of keys that `wake` leaves alone at that time."""
        for until, _, queue in self._late:
            if until > after:
                yield from queue.items[queue.start :]

    def late(self) -> Iterator[tuple[float, KeyQueue[T]]]:
        """The postponed keys, and when each may run again; only to be looked at."""
        for until, _, queue in self._late:
            yield until, queue

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

    def _lined_up(self) -> Iterable[KeyQueue[T]]:
        """The keys that are ready."""
        return self._ready

    def _forget_empty(self) -> None:
        def is_full(queue: KeyQueue[T]) -> bool:
            return len(queue.items) > queue.start

        self._ready = deque(filter(is_full, self._ready))
        self._late = [entry for entry in self._late if is_full(entry[2])]
        heapq.heapify(self._late)


class StrictScheduler(Scheduler[T]):
    """A scheduler whose partitions have lanes of their own (strict lanes). A turn has keys of one partition."""

    __slots__ = ("_blocked", "_per_partition")

    def __init__(self, lanes: Lanes) -> None:
        super().__init__(lanes)
        self._per_partition = lanes.per_partition or 1
        self._blocked: dict[int, deque[KeyQueue[T]]] = {}
        """Partition to its ready keys that wait for one of its lanes."""
        lanes.strict.append(self)

    def take(self, most: int) -> Turn[T] | None:
        """As of a `Scheduler`, passing over partitions that use all of their lanes."""
        lanes = self.lanes
        if lanes.busy >= lanes.total:
            return None
        turn: Turn[T] = []
        busy = lanes.busy_by_partition
        lane, left = -1, most
        passed: list[KeyQueue[T]] = []
        while self._ready and left > 0:
            queue = self._ready.popleft()
            if not turn and busy.get(queue.lane, 0) >= self._per_partition:
                self._blocked.setdefault(queue.lane, deque()).append(queue)
                continue
            if turn and queue.lane != lane:
                passed.append(queue)
                # Looking further would make a turn cost as much as the line is long.
                if len(passed) >= 8:
                    break
                continue
            lane = queue.lane
            waiting = len(queue.items) - queue.start
            queue.taken = min(waiting, left)
            queue.is_busy = True
            self.ready -= waiting
            left -= queue.taken
            turn.append(queue)
        self._ready.extendleft(reversed(passed))
        if not turn:
            return None
        busy[lane] = busy.get(lane, 0) + 1
        lanes.busy += 1
        if busy[lane] < self._per_partition:
            # This turn may hold several keys that came back one for each lane: the next lane needs one too.
            self.unblock(lane)
        return turn

    def end_turn(self, turn: Sequence[KeyQueue[T]] = ()) -> None:
        """A lane of the partition is free again, for the keys of every scheduler of the handler."""
        super().end_turn()
        if turn:
            lane = turn[0].lane
            self.lanes.busy_by_partition[lane] -= 1
            for scheduler in self.lanes.strict:
                scheduler.unblock(lane)

    def _lined_up(self) -> Iterable[KeyQueue[T]]:
        return chain(self._ready, *self._blocked.values())

    def _forget_empty(self) -> None:
        # What was next in line of its partition may be gone: a turn sorts out again which keys must wait.
        self._ready = deque(self._lined_up())
        self._blocked.clear()
        super()._forget_empty()

    def unblock(self, lane: int) -> None:
        """A partition has a free lane: one of its keys that had to wait for it may be taken."""
        blocked = self._blocked.get(lane)
        if blocked:
            self._ready.append(blocked.popleft())
