"""Processor: one handler at work. Records are admitted, taken in turns, called, decided on, and finished."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway._core.decide import Copy, decide
from laneway._core.deliveries import Deliveries
from laneway._core.messages import Reply
from laneway._core.state import HANGS, Close, Command, Drain, Inherit, Load, Open, Release, SetLanes
from laneway._core.turn import TurnReport, records_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._core.scheduler import KeyQueue
    from laneway._core.step import Step
    from laneway._declare.record import Record

    Turn = list[KeyQueue[Record[Any]]]

__all__ = ["Processor"]

_SOON = 1.0  # seconds: a try that is due sooner is still waited for at the end


class Processor(Deliveries):
    """All work of one handler in one process: its keys, calls, retries, copies and messages.

    ``admit`` -> ``take`` -> (a lane calls the handler) -> ``settle`` -> ``decide`` -> outcomes are applied -> ``tick``
    completes what was sent -> the offsets are finished in the ledger of their step.

    Not thread-safe: one thread owns it, or the runner's lock guards every call. Only `post`, `fence` and what says so
    may be called by other threads. No user function is called under it, except error interceptors and the last step.
    """

    def post(self, command: Command) -> None:
        """Let the processor's own thread obey before it does anything else. Any thread may call it."""
        self._inbox.append(command)

    def awaits(self, command: Command) -> bool:
        """Whether a command was posted and not obeyed yet. Any thread may ask."""
        return command in tuple(self._inbox)

    def obey(self) -> None:
        """Do what was posted."""
        inbox = self._inbox
        while inbox:
            self._handle(inbox[0])
            inbox.popleft()  # only now: others may ask whether it was obeyed

    def fence(self, topic: str, partition: int, epoch: int) -> None:
        """From now on nothing that was read of a partition up to *epoch* counts. Any thread may call it."""
        self.step_of(topic).fence(partition, epoch)

    def _handle(self, command: Command) -> None:  # noqa: C901 - one match
        match command:
            case Open(topic, partition):
                self.step_of(topic).open(partition)
                self._withdraw_stale()
            case Release(topic, partition):
                self.step_of(topic).release(partition)
            case Close(topic, partition):
                step = self.step_of(topic)
                step.close(partition)
                self._withdraw_stale()
                # The source's step alone: a retry step that is late would undo what the next owner's start has loaded.
                if self.deferred is not None and not step.spec.step:
                    self.deferred.forget(partition)
                if self.dedup is not None:
                    self.dedup.leave(topic, partition)
            case Load(deferred, gone):
                for partition in gone:
                    deferred.forget(partition)
                if self.deferred is not None:
                    self.deferred.merge(deferred)
            case Inherit(topic, partition, finished):
                self.step_of(topic).inherited[partition] = finished
            case SetLanes(lanes):
                self.lanes.total = self.tally.lanes = max(1, lanes)
            case Drain():
                self._drain = command
                self._drop_unwanted()

    def admit(self, records: Sequence[Record[Any]]) -> None:
        """Take over records that were read, those of each partition in offset order."""
        if self._inbox:
            self.obey()
        if self._only is not None:
            self._admit(self._only, records)
        else:
            by_topic: dict[str, list[Record[Any]]] = {}
            for record in records:
                by_topic.setdefault(record.topic, []).append(record)
            for topic, found in by_topic.items():
                self._admit(self._by_topic[topic], found)
        if self._drain is not None:
            self._drop_unwanted()

    def ours(self, records: Sequence[Record[Any]]) -> Sequence[Record[Any]]:
        """Those that may be begun."""
        self.obey()
        found = ((record, self.step_of(record.topic)) for record in records)
        return [record for record, step in found if not (step.is_gone(record) or step.is_inherited(record))]

    def _admit(self, step: Step, records: Sequence[Record[Any]]) -> None:
        if step.is_guarded:
            records = [record for record in records if not step.is_gone(record)]
        if not records:
            return
        if step.is_plain:
            self._push(step, records)
            return
        open_ = [record for record in records if not step.is_inherited(record)]
        fresh = step.copied.fresh(open_)
        if len(fresh) < len(open_):
            kept = set(map(id, fresh))
            self._leave(step, [record for record in open_ if id(record) not in kept])
        self._push(step, fresh)
        # What is left out, here or because a run over an error topic does not take it up, is finished.
        for partition, offset in {record.partition: record.offset for record in records}.items():
            step.ledger.pass_to(partition, offset + 1)

    def _push(self, step: Step, records: Sequence[Record[Any]]) -> None:
        spec, tally = self.spec, self.tally
        if step.spec.source:
            records = step.restored(records, tally, self._clock, self.events)
        by_partition: dict[int, list[int]] = {}
        for record in records:
            offsets = by_partition.get(record.partition)
            if offsets is None:
                by_partition[record.partition] = [record.offset]
            else:
                offsets.append(record.offset)
        for partition, offsets in by_partition.items():
            step.ledger.see(partition, offsets)
        keys: Any
        if self._is_ordered_by_key:
            keys = [record.key for record in records]
        else:
            keys = [spec.lane_key(record) for record in records]
        partitions = [record.partition for record in records] if spec.strict else None
        step.scheduler.push(records, keys, partitions)
        tally.read += len(records)
        tally.size += sum([record.size for record in records])

    def take(self, lanes: int | None = None) -> Turn | None:
        """A turn for a free lane, or None; *lanes* is how many share the work, all by default."""
        if self._inbox:
            self.obey()  # partitions may have been lost since the last tick
        breaker = self.breaker
        if not self.is_sure or self.is_store_away or (breaker is not None and not breaker.lets_begin()):
            return None
        step = self._only
        turn = self._take_next(lanes) if step is None else self._take_of(step, lanes)
        if turn:
            tally = self.tally
            tally.first = tally.first or self._clock.wall()
            since = (self._clock.monotonic(), turn)
            self.begun[id(turn)] = since
            if len(turn) > 1 and not self._is_batch and self.call is not None:
                self._several[id(turn)] = since
            if breaker is not None:
                breaker.began(turn)
        return turn

    def _take_next(self, lanes: int | None) -> Turn | None:
        """A turn of the next step that has one: each has its go."""
        steps = self.steps
        for offset in range(len(steps)):
            at = (self._next_step + offset) % len(steps)
            turn = self._take_of(steps[at], lanes)
            if turn:
                self._next_step = (at + 1) % len(steps)
                return turn
        return None

    def _take_of(self, step: Step, lanes: int | None) -> Turn | None:
        scheduler = step.scheduler
        if not scheduler.ready:
            return None
        if self._is_batch:
            most = self.spec.size
            if scheduler.ready < most and not self._is_due(step):
                return None
        elif self.breaker is not None and self.breaker.is_open:
            most = 1  # a probe
        else:
            most = self._turn_size.most_a_turn(scheduler.ready, lanes or self.lanes.total)
        turn = scheduler.take(most)
        if turn:
            step.short_since = None  # in any case: a moment that is over would wake the runner forever
        while turn and (self.deferred or self._late) and not (turn := self._runnable(step, turn)):
            turn = scheduler.take(most)
        return turn

    def _is_due(self, step: Step) -> bool:
        """Whether a batch is begun that is not full."""
        if self.is_closing or not self.room:
            return True  # nothing more can come to fill it
        now = self._clock.monotonic()
        if step.short_since is None:
            step.short_since = now
        return now - step.short_since >= self._within

    def _runnable(self, step: Step, turn: Turn) -> Turn:
        """What of a turn may run. Keys with late copies wait; those with records on a retry topic queue behind them."""
        may_run = []
        for queue in turn:
            late = self._late.get((step.spec.step, queue.key)) if self._late and queue.key is not None else None
            if late:
                queue.taken = 0  # no lane works on it: what a partition that is given away has in it may be dropped
                for copy in late:
                    copy.queue = queue
                step.scheduler.hold(queue, len(late))
                continue
            behind = None
            if self.deferred and queue.key is not None:
                behind = self.deferred.cut(queue, step.spec.step)
            if behind is None:
                may_run.append(queue)
            else:
                self._apply(step, queue, queue.taken, [Copy(record, behind, None) for record in queue.work()])
        if not may_run:
            step.scheduler.end_turn(turn)
        return may_run

    def settle(self, turn: Turn, report: TurnReport) -> None:
        """Act on what happened in a turn."""
        if not self.is_sure:
            self._unsettled.append((turn, report))
            return
        self.begun.pop(id(turn), None)
        self._several.pop(id(turn), None)
        tally, was_good, rest = self.tally, False, report
        tally.calls += report.calls
        tally.seconds += report.seconds
        self._turn_size.saw(report.calls, report.seconds)
        if self._parts and (part := self._parts.pop(id(turn), None)) is not None:
            rest, was_good = report.without(part), part.has_success or bool(part.skipped)
        step = self._step_of_turn(turn)
        is_outage = self.breaker is not None and self.breaker.ended(turn, rest, was_good=was_good)
        self._settle(step, turn, rest, is_outage=is_outage)
        step.scheduler.end_turn(turn)
        report.forget_errors()
        rest.forget_errors()

    def settle_one(self, turn: Turn, record: Record[Any], report: TurnReport | None, seconds: float) -> None:
        """As `settle`, for a turn of one record; without a report it was handled and has led to nothing."""
        if report is None and self._is_plain and self.is_sure and self._drain is None:
            step = self._step_of_turn(turn)
            if not step.is_guarded or not step.is_gone(record):
                tally = self.tally
                self.begun.pop(id(turn), None)
                tally.calls += 1
                tally.seconds += seconds
                tally.handled += 1
                self._turn_size.saw(1, seconds)
                step.scheduler.settle(turn[0], 1)
                step.scheduler.end_turn(turn)
                self._finish((record,))
                return
        report = report or TurnReport.of(record)
        report.seconds = seconds
        self.settle(turn, report)

    def _settle(self, step: Step, turn: Turn, report: TurnReport, *, is_outage: bool) -> None:
        """Act on what happened to queues."""
        tally, handled, skipped, duplicates = self.tally, report.handled, report.skipped, report.duplicates
        dedup = self.dedup
        called = [] if dedup is None else records_of(turn)
        # Also of partitions that were given away meanwhile: the effect is there.
        over = [] if dedup is None else dedup.mark([*handled, *skipped])
        comes_back = (step.is_guarded or self._drain is not None) and not _is_whole(turn, report)
        has_gone = comes_back and any(step.is_gone(record) for queue in turn for record in queue.work())
        if step.is_guarded:
            handled = [record for record in handled if not step.is_stale(record)]
            skipped = [record for record in skipped if not step.is_stale(record)]
            duplicates = [record for record in duplicates if not step.is_stale(record)]
        if self.events.wants_ends:  # before the failures, because that is the order in which they came
            self.events.handled(handled)
            self.events.skipped(skipped, report.reasons)
            self.events.deduplicated(duplicates)
        if report.is_smooth:
            step.scheduler.settle_all(turn, report.done)
        else:
            self._settle_failures(step, turn, report, is_outage=is_outage)
        tally.handled += len(handled)
        tally.skipped += len(skipped)
        tally.duplicates += len(duplicates)
        for ended in filter(None, (handled, skipped) if dedup is None else (duplicates, over)):
            self._finish_of(step, ended)
            self._supersede(report.older_than(ended))
        for records, messages in report.outputs:
            if not records or not all(map(step.is_stale, records)):
                self._produce(Reply(records, report.superseded, len(messages)), messages)
        if dedup is not None:
            dedup.ended(called)
        if has_gone:
            step.drop(step.is_gone)  # what comes back of a partition that is gone is not begun again
        if comes_back and self._drain is not None and self._drain.is_last:
            self._drop_unwanted(only_postponed=True)

    def _settle_failures(self, step: Step, turn: Turn, report: TurnReport, *, is_outage: bool) -> None:
        decision = decide(turn, report, step.spec, now=self._clock.monotonic(), is_outage=is_outage)
        done = [*report.done, *([0] * (len(turn) - len(report.done)))]
        for key in decision.keys:
            done[key.at] = -1
        step.scheduler.settle_all(turn, done)
        for key in decision.keys:
            self._apply(step, turn[key.at], key.over, key.outcomes)
        self.tally.retried += decision.given_back

    def tick(self) -> None:
        """Let time pass: acknowledgements, repeats, postponed keys, turns that hang."""
        self.obey()
        if not self.is_sure:
            return
        unsettled, self._unsettled = self._unsettled, []
        for turn, report in unsettled:
            self.settle(turn, report)
        now = self._clock.monotonic()
        self._complete(now)
        if self._several:
            self._take_back(now)
        if self.acks.has_news:
            self._act_on_acks(now)
        if self.dedup is not None and (marked := self.dedup.confirmed()):
            self._finish(marked)
        for step in self.steps:
            step.scheduler.wake(now)
        if self._drain is not None and not self._drain.is_last and self.records:
            self._drop_unwanted()  # what lanes have given back since

    def _take_back(self, now: float) -> None:
        """Take from turns that hang what their lanes have not begun, and settle what is over of them.

        Only the queue that the lane is at stays with it, so a call that hangs blocks its own key and no other.
        """
        while self._several and self.call is not None:
            name, (since, turn) = next(iter(self._several.items()))
            if now - since < HANGS:
                return
            del self._several[name]
            found = self.call.unbegun(turn)
            if found is None:
                self._several[name] = (now, turn)
                continue
            back, report = found
            del turn[len(turn) - len(back) :]
            # The lane will ask for no further queue, so the list may be cut at its front, too. One stays, if only for
            # its partition.
            count = min(len(report.done), len(turn) - 1)
            over = turn[:count]
            del turn[:count]
            part = self._parts[name] = report.of_first(over)
            step = self._step_of_turn(turn)
            if self.dedup is not None:
                self.dedup.ended(records_of(back))
            for queue in back:
                step.scheduler.settle(queue, 0)
            if step.is_guarded:
                step.drop(step.is_gone)
            self._settle(step, over, part, is_outage=False)
            part.forget_errors()

    def _step_of_turn(self, turn: Turn) -> Step:
        if self._only is not None:
            return self._only
        queue = turn[0]
        return self._by_topic[queue.items[queue.start].topic]

    def _drop_unwanted(self, *, only_postponed: bool = False) -> None:
        """Drop what is not to be run any more; for the counts it was not read."""
        records, size, after = self.records, self.size, self._clock.monotonic() + _SOON
        for step in self.steps:
            if self._drain is not None and not self._drain.is_last:
                step.drop_untried()
                continue
            if not only_postponed:
                step.drop_past_begun()
            step.drop_postponed(after)
        self.tally.read -= records - self.records
        self.tally.size -= size - self.size


def _is_whole(turn: Turn, report: TurnReport) -> bool:
    """Whether nothing of a turn comes back to be run again."""
    if not report.is_smooth or len(report.done) < len(turn):
        return False
    return all(count >= queue.taken for queue, count in zip(turn, report.done, strict=True))
