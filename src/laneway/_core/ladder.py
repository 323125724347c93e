"""Ladder: what a desk knows of retry and error topics: records that come back, and keys that wait on one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway._core.headers import recall
from laneway.errors import Skip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._clock import Clock
    from laneway._core.deferred_keys import DeferredKeys
    from laneway._core.error_run_filter import ErrorRunFilter
    from laneway._core.scheduler import KeyQueue
    from laneway._core.telling import Telling
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway.observe import Tally

__all__ = ["Ladder"]

_SKEW = 1_000  # milliseconds that clocks may differ without it being worth a count


class Ladder:
    """The retry topics, as the desk of one step sees them.

    Args:
        route: the handler, as it runs on this step.
        tally: where records that are odd are counted.
        clock: the time.
        backlog: the keys that have records waiting on retry topics, when later ones queue behind them.
        telling: what tells of records that are not run again.
    """

    def __init__(
        self,
        route: HandlerSpec,
        tally: Tally,
        clock: Clock,
        backlog: DeferredKeys | None,
        telling: Telling | None = None,
    ) -> None:
        self._route = route
        self._tally = tally
        self._clock = clock
        self._telling = telling
        self.backlog = backlog if route.parks_behind else None
        """Empty or None: no key waits, and every one may run."""
        self.leaves = self.backlog is not None and route.step > 0
        """Whether a record that is finished here has waited on a retry topic."""

    def recall(self, records: Sequence[Record[Any]]) -> Sequence[Record[Any]]:
        """Records come back: give them what they had when they were first read.

        Returns:
            Those that are to be run; of an error topic that need not be all.
        """
        route, tally = self._route, self._tally
        if route.rerun is not None:
            return [record for record in records if route.rerun.takes(record) and self._is_run(record, route.rerun)]
        now, delay = self._clock.wall() * 1000, route.delay.total_seconds() * 1000
        for record in records:
            tally.early_due += record.timestamp + delay > now + _SKEW
            tally.invalid_headers += not recall(record, route.source, route.retry.attempts * route.step)
        return records

    def recall_called(self, records: Sequence[Record[Any]]) -> None:
        """As `recall`, of records that were called before anybody looked at what they had; of the source, nothing."""
        if not self._route.source:
            return
        calls = [record.attempt for record in records]
        self.recall(records)
        for record, count in zip(records, calls, strict=True):
            record.attempt = record.before + count

    def _is_run(self, record: Record[Any], rerun: ErrorRunFilter) -> bool:
        """Whether a record of an error topic is run; one that is not never enters the ledger, and so is finished."""
        tally = self._tally
        tally.invalid_headers += not rerun.recall(record, self._route.source, self._clock.wall() * 1000)
        reason = rerun.refusal(record)
        if reason is not None:
            tally.read += 1
            tally.size += record.size
            tally.skipped += 1
            if self._telling is not None:
                self._telling.skipped((record,), {id(record): Skip(reason)})
        return reason is None

    def parted(
        self, turn: list[KeyQueue[Record[Any]]]
    ) -> tuple[list[KeyQueue[Record[Any]]], list[tuple[KeyQueue[Record[Any]], int]]]:
        """Which queues of a turn may run, and which must wait on a retry topic, each with its step.

        A queue is left with as many of its taken records as have the same answer. The others have theirs when those are
        settled and it is taken again.
        """
        backlog = self.backlog
        if backlog is None:
            return turn, []
        may_run, behind = [], []
        for queue in turn:
            step = None if queue.key is None else self._cut(queue, backlog)
            if step is None:
                may_run.append(queue)
            else:
                behind.append((queue, step))
        return may_run, behind

    def _cut(self, queue: KeyQueue[Record[Any]], backlog: DeferredKeys) -> int | None:
        """The step where the first records of a queue must wait, None when they may run; takes only these.

        A key that is not the record's own may have records of several partitions, and waits in each for itself.
        """
        items, start, key = queue.items, queue.start, queue.key
        record = items[start]
        partition = record.partition
        step = backlog.behind(partition, key, self._route.step)
        answer = None if step is None or backlog.precedes(key, record) else step
        if queue.taken == 1:  # the commonest by far
            return answer
        # By index: a copy of all that is taken, for the few that are left of it, would not be O(1) for each.
        for count in range(1, queue.taken):
            record = items[start + count]
            if record.partition != partition:
                partition = record.partition
                step = backlog.behind(partition, key, self._route.step)
            if answer != (None if step is None or backlog.precedes(key, record) else step):
                queue.taken = count
                break
        return answer

    def joined(self, record: Record[Any], step: int) -> None:
        """A copy of a record is on its way to the retry topic of a step."""
        if self.backlog is not None:
            key = self._route.lane_key(record)
            if key is not None:
                self.backlog.joined(record.partition, key, step)

    def turned_back(self, record: Record[Any], step: int) -> None:
        """That copy will never be there."""
        if self.backlog is not None:
            self.backlog.left(record.partition, self._route.lane_key(record), step)

    def left(self, records: Sequence[Record[Any]]) -> None:
        """Records that waited on the retry topic of this step are finished."""
        if self.backlog is not None:
            for record in records:
                self.backlog.left(record.partition, self._route.lane_key(record), self._route.step)
