"""Step: one topic of a handler, its source or a retry topic, as its processor sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway._core.copy_index import CopyIndex
from laneway._core.headers import recall
from laneway._core.ledger import Ledger
from laneway._core.scheduler import Scheduler, StrictScheduler
from laneway.errors import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from laneway._clock import Clock
    from laneway._core.events import EventEmitter
    from laneway._core.finished_map import FinishedMap
    from laneway._core.scheduler import Lanes
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway.observe import Tally

__all__ = ["Step"]

_SKEW = 1_000  # milliseconds that clocks may differ without it being worth a count


class Step:
    """The key queues and unfinished offsets of one topic, and which of its partitions are owned.

    A partition is *released* first: what no lane has begun is dropped, stays unfinished, and is the next owner's. When
    what was begun has ended, or time is up, it is *fenced*: results of records that were read before change nothing.

    Args:
        spec: the handler, on this step.
        lanes: those of the handler.
    """

    def __init__(self, spec: HandlerSpec, lanes: Lanes) -> None:
        self.spec = spec
        kind: type[Scheduler[Record[Any]]] = Scheduler if lanes.per_partition is None else StrictScheduler
        self.scheduler = kind(lanes)
        self.ledger = Ledger()
        self.copied = CopyIndex.of(spec)
        """Copies that a killed process has left of records that are read again."""
        self.inherited: dict[int, FinishedMap] = {}
        """Partition to what was finished of it before, where others read it again."""
        self.closed: set[int] = set()
        """Partitions of which nothing more is begun."""
        self.short_since: float | None = None
        """Since when there are records, but not enough for a batch."""
        self._is_columnar = spec.kind == "columnar"
        self._fences: dict[int, int] = {}
        """Partition to the last epoch whose records are stale."""
        self._released: set[int] = set()
        self._dropped: dict[int, int] = {}
        """Partition to how many of its records were taken out unfinished: they are not finished here."""

    @property
    def left(self) -> int:
        """How many records have not reached their end, except those that were dropped."""
        return self.ledger.outstanding - sum(self._dropped.values())

    @property
    def is_plain(self) -> bool:
        """Whether every record that is read is run."""
        return not (len(self.copied) or self.inherited) and self.spec.rerun is None

    def is_inherited(self, record: Record[Any]) -> bool:
        """Whether a record was finished before."""
        finished = self.inherited.get(record.partition)
        return finished is not None and finished.has(record.offset)

    @property
    def is_guarded(self) -> bool:
        """Whether some partition was given away, now or earlier."""
        return bool(self.closed or self._fences)

    def fence(self, partition: int, epoch: int) -> None:
        """From now on nothing that was read of a partition up to *epoch* counts. Any thread may call it."""
        self._fences[partition] = epoch

    def is_stale(self, record: Record[Any]) -> bool:
        """Whether a record was read before its partition was given away."""
        return record.epoch <= self._fences.get(record.partition, -1)

    def is_foreign(self, record: Record[Any]) -> bool:
        """Whether a record's partition was revoked, so its outcome does not count."""
        if self._is_columnar:
            # Rows have lost their epoch on the way through a table; the ledger knows those that are awaited.
            return not self.ledger.has(record.partition, record.offset)
        return bool(self._fences) and self.is_stale(record)

    def is_gone(self, record: Record[Any]) -> bool:
        """Whether a record is not to be begun."""
        return record.partition in self.closed or self.is_stale(record)

    def open(self, partition: int) -> None:
        """Take records of a partition."""
        self.closed.discard(partition)
        self._start_over(partition)

    def release(self, partition: int) -> None:
        """Begin nothing more of a partition."""
        self.closed.add(partition)
        self.drop(lambda record: record.partition == partition)
        self._released.add(partition)  # last: who asks whether it is drained must find them counted

    def close(self, partition: int) -> None:
        """Drop all that is known of a partition, which was fenced."""
        self.drop(lambda record: record.partition == partition and self.is_stale(record))
        self._start_over(partition)
        self.closed.discard(partition)  # late results are stale

    def is_drained(self, partition: int) -> bool:
        """Whether a released partition has no record left that was begun. Any thread may ask."""
        if partition not in self._released:
            return False
        found = self.ledger.snapshot(partition)
        return found is None or len(found[1]) <= self._dropped.get(partition, 0)

    def drop(self, is_unwanted: Callable[[Record[Any]], bool]) -> None:
        """Take records out that no lane works on; they stay unfinished."""
        dropped = self._dropped

        def counted(record: Record[Any]) -> bool:
            if not is_unwanted(record):
                return False
            if not self.is_stale(record):  # those that are stale are not in the ledger
                dropped[record.partition] = dropped.get(record.partition, 0) + 1
            return True

        self.scheduler.drop(counted)

    def drop_past_begun(self) -> None:
        """Drop what lies past everything begun, so that no finished record lies past an unfinished one."""
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
        self.drop(lambda record: record.offset >= cuts[record.partition])

    def drop_untried(self) -> None:
        """Drop what no lane has begun, except what was tried."""
        kept: set[Hashable] = set()
        lane_key = self.spec.lane_key
        if self.spec.kind == "unique":
            # With the newest of a key go those that it stands in for: one that is read again would have the last word.
            kept = {lane_key(record) for record in self.scheduler.waiting() if _is_tried(record)}
        self.drop(lambda record: not (_is_tried(record) or (kept and lane_key(record) in kept)))

    def drop_postponed(self, after: float) -> None:
        """Drop records that wait for a try which is due later than that."""
        late = {id(record) for record in self.scheduler.postponed(after)}
        if late:
            self.drop(lambda record: id(record) in late)

    def restored(
        self, records: Sequence[Record[Any]], tally: Tally, clock: Clock, events: EventEmitter
    ) -> Sequence[Record[Any]]:
        """Give records of a retry or error topic what they had when they were first read.

        Returns:
            Those that are to be run; of an error topic that need not be all.
        """
        spec = self.spec
        if not spec.source:
            return records
        if spec.rerun is not None:
            return [
                record for record in records if spec.rerun.takes(record) and self._is_run(record, tally, clock, events)
            ]
        now, delay = clock.wall() * 1000, spec.delay.total_seconds() * 1000
        for record in records:
            tally.early_due += record.timestamp + delay > now + _SKEW
            tally.invalid_headers += not recall(record, spec.source, spec.retry.attempts * spec.step)
        return records

    def _is_run(self, record: Record[Any], tally: Tally, clock: Clock, events: EventEmitter) -> bool:
        """Whether a record of an error topic is run; one that is not never enters the ledger, and so is finished."""
        rerun = self.spec.rerun
        if rerun is None:
            return True
        tally.invalid_headers += not rerun.recall(record, self.spec.source, clock.wall() * 1000)
        reason = rerun.refusal(record)
        if reason is not None:
            tally.read += 1
            tally.size += record.size
            tally.skipped += 1
            events.skipped((record,), {id(record): Skip(reason)})
        return reason is None

    def _start_over(self, partition: int) -> None:
        self._released.discard(partition)
        self._dropped.pop(partition, None)
        self.ledger.forget(partition)


def _is_tried(record: Record[Any]) -> bool:
    return record.attempt - record.before > 1
