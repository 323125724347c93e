"""OwnedDesk: a desk whose partitions come and go."""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from laneway._core.copy_index import CopyIndex
from laneway._core.desk import Desk
from laneway._core.result import Result
from laneway._runtime.lease import Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laneway._core.deferred_keys import DeferredKeys
    from laneway._core.outbox import Letter
    from laneway._core.scheduler import KeyQueue
    from laneway._declare.record import Record

__all__ = ["OwnedDesk"]

_LOOK = 0.05  # seconds between looks while it is not known whether the partitions are still ours
_SOON = 1.0  # seconds: a try that is due sooner is still waited for at the end


class OwnedDesk(Desk):
    """Leaves records alone whose partition has been given away.

    The thread that reads orders what is to be done about a partition; the runner's own thread obeys before it does
    anything else. Only `order` and `fence` may be called from other threads.

    A partition is *released* first: what no lane has begun is dropped, stays unfinished in the ledger, and is the next
    owner's. When what was begun has ended, or time is up, it is *fenced*: results of records that were read before
    change nothing, however late they come.

    While the *lease* has run out nothing begins, and a call that ends is settled later, when it is known whether its
    partition is still ours: until then nothing is sent either.
    """

    def __init__(
        self, *args: Any, backlog: DeferredKeys | None = None, lease: Lease | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, backlog=backlog, **kwargs)
        self.lease = lease or Lease(math.inf)
        self.outbox.is_void = self._is_void_letter
        self._unsettled: list[Callable[[], None]] = []
        """What ended while the lease had run out."""
        self._backlog = backlog
        self._is_columnar = self.route.kind == "columnar"
        self._orders: deque[Callable[[], None]] = deque()
        self._closed: set[int] = set()
        self._fences: dict[int, int] = {}
        """Partition to the last epoch whose records are void."""
        self.copied = CopyIndex.of(self.route)
        """Copies that a killed process has left of records that are read again."""
        self._released: set[int] = set()
        self._dropped: dict[int, int] = {}
        """Partition to how many of its records were taken out unfinished: nobody will finish them here."""
        self._is_winding_up = False
        self.begun: dict[int, tuple[float, list[KeyQueue[Record[Any]]]]] = {}
        """The turns that are out, by their ids, and since when: one entry a turn, however many records it holds."""

    def order(self, deed: Callable[[], None]) -> None:
        """Let the runner's own thread do something before its next look at the records."""
        self._orders.append(deed)

    def open(self, partition: int) -> None:
        """A partition is ours. By order only."""
        self._closed.discard(partition)
        self._start_over(partition)

    def set_lanes(self, lanes: int) -> None:
        """Have so many lanes from now on; those that are busy end their turns. By order only."""
        self.scheduler.lanes = self.tally.lanes = lanes

    def load(self, backlog: DeferredKeys, gone: set[int]) -> None:
        """So much waits on the retry topics of partitions that became ours, but for those gone since. By order only."""
        for partition in gone:
            backlog.forget(partition)
        if self._backlog is not None:
            self._backlog.merge(backlog)

    def release(self, partition: int) -> None:
        """Begin nothing more of a partition. By order only."""
        self._closed.add(partition)
        self._drop(lambda record: record.partition == partition)
        self._released.add(partition)  # last: whoever asks whether it is drained must find them counted

    def wind_up(self) -> None:
        """Begin nothing that lies past everything begun, so that no finished record lies past an unfinished one.

        By order only. What is left to do is as little as a clean end allows; a record that waits for its next try is
        not waited for.
        """
        waiting: dict[int, set[int]] = {}
        for record in self.scheduler.waiting():
            waiting.setdefault(record.partition, set()).add(record.offset)
        cuts: dict[int, int] = {}
        for partition, offsets in waiting.items():
            seen = self.ledger.snapshot(partition)
            cut = 0 if seen is None else seen[0]
            while cut - 1 in offsets:
                cut -= 1
            cuts[partition] = cut
        self._drop(lambda record: record.offset >= cuts[record.partition])
        self._drop_late()
        self._is_winding_up = True

    def fence(self, partition: int, epoch: int) -> None:
        """From now on nothing that was read of a partition up to *epoch* counts. Any thread may call it."""
        self._fences[partition] = epoch

    def forget(self, partition: int) -> None:
        """Drop all that is known of a partition. By order only."""
        self._drop(lambda record: record.partition == partition and self._is_void(record))
        self._start_over(partition)
        self._closed.discard(partition)  # what may still come of it is void
        # All steps share the backlog, and the lowest one loads it: a higher one that is late would undo that.
        if self._backlog is not None and not self.route.step:
            self._backlog.forget(partition)

    def is_drained(self, partition: int) -> bool:
        """Whether a released partition has no record left that was begun. Any thread may ask."""
        if partition not in self._released:
            return False
        found = self.ledger.snapshot(partition)
        return found is None or len(found[1]) <= self._dropped.get(partition, 0)

    def ours(self, records: Sequence[Record[Any]]) -> Sequence[Record[Any]]:
        """Obey orders, and leave out records of partitions that are gone. Only the runner's own thread may call it."""
        self._obey()
        if self._closed or self._fences:
            return [record for record in records if record.partition not in self._closed and not self._is_void(record)]
        return records

    def admit(self, records: Sequence[Record[Any]]) -> None:
        """Take over records that were read, but for those of partitions that are gone."""
        records = self.ours(records)
        if not records:
            return
        if len(self.copied) or self.route.rerun is not None:
            fresh = self.copied.fresh(list(records))
            if self._ladder.leaves and len(fresh) < len(records):
                kept = set(map(id, fresh))
                self._ladder.left([record for record in records if id(record) not in kept])
            super().admit(fresh)
            # What is left out, here or because a run over an error topic does not take it up, is finished.
            for partition, offset in {record.partition: record.offset for record in records}.items():
                self.ledger.pass_to(partition, offset + 1)
        else:
            super().admit(records)

    def tick(self) -> None:
        """Obey orders and let time pass."""
        self._obey()
        if self.lease.is_valid:
            unsettled, self._unsettled = self._unsettled, []
            for settle in unsettled:
                settle()
            super().tick()

    def take(self, lanes: int | None = None) -> list[KeyQueue[Record[Any]]] | None:
        """A turn for a free lane, or None."""
        if not self.lease.is_valid:
            return None
        if self._orders:
            self._obey()  # partitions may have been lost since the last tick
        turn = super().take(lanes)
        if turn:
            self.begun[id(turn)] = (self._clock.monotonic(), turn)
        return turn

    def settle(self, turn: list[KeyQueue[Record[Any]]], result: Result) -> None:
        """Act on what became of a turn."""
        if not self.lease.is_valid:
            self._unsettled.append(partial(self.settle, turn, result))
            return
        self.begun.pop(id(turn), None)
        super().settle(turn, result)

    def settle_one(
        self, turn: list[KeyQueue[Record[Any]]], record: Record[Any], result: Result | None, seconds: float
    ) -> None:
        """Act on what became of a turn of one record."""
        if not self.lease.is_valid:
            self._unsettled.append(partial(self.settle_one, turn, record, result, seconds))
            return
        if result is None and (self._closed or self._is_winding_up or self._is_void(record)):
            result = Result.of(record)
        if result is None:
            self.begun.pop(id(turn), None)
        super().settle_one(turn, record, result, seconds)

    @property
    def can_start(self) -> bool:
        """Whether a further lane could begin now."""
        return super().can_start and self.lease.is_valid

    @property
    def next_wake(self) -> float | None:
        """When `tick` has something to do even if nothing else happens."""
        return super().next_wake if self.lease.is_valid else self._clock.monotonic() + _LOOK

    def _relieve(self, now: float) -> None:
        had = self.scheduler.ready
        super()._relieve(now)
        if self.scheduler.ready > had and (self._closed or self._fences):
            self._drop(self._is_gone)

    def _act(self, turn: list[KeyQueue[Record[Any]]], result: Result) -> None:
        if not (self._closed or self._is_winding_up or self._has_void(turn)):
            super()._act(turn, result)
            return
        self._leave_out(result)
        comes_back = not _is_whole(turn, result)
        has_gone = comes_back and any(self._is_gone(record) for queue in turn for record in queue.work())
        super()._act(turn, result)
        if has_gone:
            self._drop(self._is_gone)  # what comes back of a partition that is gone is not begun again
        if comes_back and self._is_winding_up:
            self._drop_late()

    def _obey(self) -> None:
        while self._orders:
            self._orders.popleft()()

    def _start_over(self, partition: int) -> None:
        self._released.discard(partition)
        self._dropped.pop(partition, None)
        self.ledger.forget(partition)

    def _drop(self, is_unwanted: Callable[[Record[Any]], bool]) -> None:
        """Take records out that no lane works on; they stay unfinished."""
        dropped = self._dropped

        def counted(record: Record[Any]) -> bool:
            if not is_unwanted(record):
                return False
            if not self._is_void(record):  # those that are void are not in the ledger
                dropped[record.partition] = dropped.get(record.partition, 0) + 1
            return True

        self.scheduler.drop(counted)

    def _drop_late(self) -> None:
        late = {id(record) for record in self.scheduler.postponed(self._clock.monotonic() + _SOON)}
        if late:
            self._drop(lambda record: id(record) in late)

    def _is_gone(self, record: Record[Any]) -> bool:
        return record.partition in self._closed or self._is_void(record)

    def _is_void(self, record: Record[Any]) -> bool:
        return record.epoch <= self._fences.get(record.partition, -1)

    def _is_void_letter(self, letter: Letter) -> bool:
        if not self._fences or self._is_columnar:  # rows have lost their epoch
            return False
        return bool(letter.records) and all(map(self._is_void, letter.records))

    def _has_void(self, turn: list[KeyQueue[Record[Any]]]) -> bool:
        # Fences stay for as long as the process: one that is a while old must not cost each turn the slow way.
        return bool(self._fences) and any(self._is_void(record) for queue in turn for record in queue.work())

    def _leave_out(self, result: Result) -> None:
        """Forget results of void records: another process has them now. Their keys go on."""
        if not self._fences:
            return
        is_void = self._is_void
        result.finished = [record for record in result.finished if not is_void(record)]
        result.skipped = [record for record in result.skipped if not is_void(record)]
        result.outputs = [
            (records, posted) for records, posted in result.outputs if not records or not all(map(is_void, records))
        ]
        result.members = [member for member in result.members if not is_void(member[1])]
        for index, (record, _) in list(result.failures.items()):
            if is_void(record):
                del result.failures[index]
                result.done[index] += 1

    def _fail(self, queue: KeyQueue[Record[Any]], done: int, record: Record[Any], error: Exception) -> None:
        if self._is_void(record):  # acknowledged by hand, and late
            self.scheduler.settle(queue, done + 1)
        else:
            super()._fail(queue, done, record, error)

    def _give_up(self, record: Record[Any], error: Exception) -> None:
        if not self._is_void(record):
            super()._give_up(record, error)

    def _finish(self, records: Sequence[Record[Any]]) -> None:
        if self._is_columnar:
            # Rows have lost their epoch on the way through a table; the ledger knows those whose copies are awaited.
            records = [record for record in records if self.ledger.has(record.partition, record.offset)]
        elif self._fences:
            records = [record for record in records if not self._is_void(record)]
        if records:
            super()._finish(records)


def _is_whole(turn: list[KeyQueue[Record[Any]]], result: Result) -> bool:
    """Whether nothing of a turn comes back to be run again."""
    if result.failures or result.members or result.back or len(result.done) < len(turn):
        return False
    return all(count >= queue.taken for queue, count in zip(turn, result.done, strict=True))
