"""Desk: where turns begin and end. It owns scheduler, ledger, failure path and outbox of one route in one process."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from laneway._core.acks import Acks
from laneway._core.breaker import BreakerState, Gate
from laneway._core.copies import Copies
from laneway._core.ladder import Ladder
from laneway._core.ledger import Ledger
from laneway._core.members import Members
from laneway._core.outbox import Outbox
from laneway._core.overdue import Overdue
from laneway._core.relief import Relief
from laneway._core.replies import Replies
from laneway._core.result import Result
from laneway._core.scheduler import KeyQueue, Scheduler
from laneway._core.telling import Telling
from laneway._core.turn_size import TurnSize
from laneway._declare.retry import Defer, Park, TryAgain, Verdict, judge
from laneway.errors import Unacknowledged, UnreachableStateError
from laneway.observe import Histogram, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laneway._clock import Clock
    from laneway._core.deferred_keys import DeferredKeys
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway.observe import Event
    from laneway.typing import Sender

__all__ = ["Desk"]

_first = itemgetter(0)
_ELSEWHERE = -1  # in place of how many records of a queue are done with: that of one which failed is told apart


class Desk:
    """Gives turns to lanes and settles them.

    Not thread-safe: one thread owns it, or the runner's lock guards every call. No user function is called under it.

    Args:
        route: whose records these are.
        app: the app's name, for the parked copies.
        lanes: how many lanes this process has for the route.
        sender: where messages and copies go.
        clock: the time.
        per_partition: lanes of each partition when they are strict.
        notice: told in words when something must wait, such as an error topic that cannot be written to.
        backlog: the keys that have records waiting on retry topics, when later ones queue behind them.
        listener: told of each event at once; without one they are only kept in the tally.
        breaker: state of the handler's breaker, when it is to outlive this desk.
    """

    def __init__(  # noqa: PLR0913 - what it owns, each by its keyword
        self,
        route: HandlerSpec,
        app: str,
        *,
        lanes: int,
        sender: Sender,
        clock: Clock,
        per_partition: int | None = None,
        notice: Callable[[str], None] | None = None,
        backlog: DeferredKeys | None = None,
        listener: Callable[[Event], None] | None = None,
        breaker: BreakerState | None = None,
    ) -> None:
        self.route = route
        self.tally = Tally(lanes=lanes)
        self.scheduler: Scheduler[Record[Any]] = Scheduler(lanes, per_partition)
        self.ledger = Ledger()
        self.telling = Telling(route, self.tally, listener, notice)
        self.gate = Gate.of(route, breaker, tally=self.tally, telling=self.telling, clock=clock, notice=notice)
        """Holds calls back while the handler's breaker is open; None when it has none."""
        self.outbox = Outbox(sender, self.tally, notice, self.telling.copy_failed)
        self.is_closing = False
        """Nothing more will be admitted: a batch need not wait to be full."""
        self.relief = Relief(clock)
        """Sees to it that a call that hangs holds up its own key only."""
        self._clock = clock
        self._ladder = Ladder(route, self.tally, clock, backlog, self.telling)
        self._overdue = Overdue(self.scheduler)
        self._copies = Copies(
            route,
            app,
            outbox=self.outbox,
            overdue=self._overdue,
            tally=self.tally,
            telling=self.telling,
            clock=clock,
            finish=self._finish,
            joined=self._ladder.joined,
            turned_back=self._ladder.turned_back,
        )
        self._members = Members(
            self.scheduler, self._copies, clock, judge=self._judge, again=self._try_again, supersede=self._supersede
        )
        self._replies = Replies(self.outbox, self._copies, handled=self._handled, notice=notice)
        self.acks = Acks(settle=self.scheduler.settle, finish=self._acknowledged, fail=self._fail, copy=self._give_up)
        self._order = route.kept_order
        self._most_records, self._most_size = route.buffer.records, int(route.buffer.size)
        self._is_batch = route.is_batch
        self._within = route.within.total_seconds()
        self._short_since: float | None = None
        self._idle_since: float | None = None
        self._pace = TurnSize()
        self._is_plain = self.gate is None and not self.telling.tells_ends
        """Whether nobody is to be told of a record that was handled."""
        self._latency = Histogram(self.tally.latency)

    @property
    def room(self) -> int:
        """How many more records may be read now."""
        if self.gate is not None and not self.gate.lets_read(has_records=not self.scheduler.is_idle):
            return 0
        # What waits for its acknowledgement is in memory too: without it a slow topic would be read without end.
        if self.scheduler.size + self.outbox.size >= self._most_size:
            return 0
        # A record may lead to many messages, and one message may stand for the records of a whole batch.
        held = max(self.scheduler.records + self.outbox.pending, self.ledger.outstanding)
        return max(0, self._most_records - held)

    @property
    def is_done(self) -> bool:
        """Whether everything admitted has reached its end."""
        return self.scheduler.is_idle and not self.outbox.pending and not self.acks

    @property
    def can_start(self) -> bool:
        """Whether a further lane could begin now. A turn that ends may make more ready than its own lane takes."""
        if self.gate is not None and self.gate.is_shut:
            return False
        return bool(self.scheduler.ready) and self.scheduler.lanes_busy < self.scheduler.lanes

    @property
    def pace(self) -> float:
        """Seconds a call of the handler takes; 0 until the first call is over. A later task may be told it."""
        return self._pace.seconds

    @pace.setter
    def pace(self, seconds: float) -> None:
        self._pace.learn(seconds)

    @property
    def is_pace_believed(self) -> bool:
        """Whether enough calls were seen to go by their pace."""
        return self._pace.is_believed

    def admit(self, records: Sequence[Record[Any]]) -> None:
        """Take over records that were read, those of each partition in offset order."""
        if self.route.source:
            records = self._ladder.recall(records)
        by_partition: dict[int, list[int]] = {}
        for record in records:
            offsets = by_partition.get(record.partition)
            if offsets is None:
                by_partition[record.partition] = [record.offset]
            else:
                offsets.append(record.offset)
        for partition, offsets in by_partition.items():
            self.ledger.see(partition, offsets)
        keys: Any
        if self._order == "key" and self.route.order_by is None:
            keys = [record.key for record in records]
        else:
            keys = [self.route.lane_key(record) for record in records]
        partitions = [record.partition for record in records] if self.route.strict else None
        self.scheduler.push(records, keys, partitions)
        self.tally.read += len(records)
        self.tally.size += sum([record.size for record in records])

    def take(self, lanes: int | None = None) -> list[KeyQueue[Record[Any]]] | None:
        """A turn for a free lane, or None; with *lanes* of a size as if there were only so many to share the work."""
        scheduler = self.scheduler
        if self.gate is not None and not self.gate.lets_begin():
            return None
        if not scheduler.ready:
            return None
        if self._is_batch:
            most = self.route.size
            if scheduler.ready < most and not self._is_due():
                return None
        else:
            is_probe = self.gate is not None and self.gate.is_open
            most = 1 if is_probe else self._pace.most_a_turn(scheduler.ready, lanes or scheduler.lanes)
        turn = scheduler.take(most)
        if turn:
            self._short_since = None  # whatever becomes of it: a moment that is over would wake the runner for ever
        while turn and (self._ladder.backlog or self._overdue) and not (turn := self._without_waiting(turn)):
            turn = scheduler.take(most)
        if turn:
            self.tally.first = self.tally.first or self._clock.wall()
            if self.gate is not None:
                self.gate.began(turn)
            if len(turn) > 1 and not self._is_batch:
                self.relief.began(turn)
        return turn

    def settle(self, turn: list[KeyQueue[Record[Any]]], result: Result) -> None:
        """Act on what became of a turn."""
        was_good = self.relief.ended(turn, result)
        self.tally.calls += result.calls
        self.tally.seconds += result.seconds
        self._pace.saw(result.calls, result.seconds)
        if self.gate is not None:
            self.gate.ended(turn, result, was_good=was_good)
        self._act(turn, result)
        self.scheduler.end_turn(turn)
        result.let_go()

    def _act(self, turn: list[KeyQueue[Record[Any]]], result: Result) -> None:
        """Act on what became of queues."""
        tally = self.tally
        if self.telling.tells_ends:
            self.telling.settled(result)  # before the failures, because that is the order in which they came
        if result.members or result.failures or result.back:
            self._settle_failures(turn, result)
        else:
            self.scheduler.settle_all(turn, result.done)
        tally.handled += len(result.finished)
        tally.skipped += len(result.skipped)
        for ended in (result.finished, result.skipped):
            if ended:
                self._finish(ended)
        older = result.older
        if older:
            self._supersede([old for new in (*result.finished, *result.skipped) for old in older.get(id(new), ())])
        for records, posted in result.outputs:
            self._replies.send(records, posted, [old for new in records for old in older.get(id(new), ())])

    def settle_one(
        self, turn: list[KeyQueue[Record[Any]]], record: Record[Any], result: Result | None, seconds: float
    ) -> None:
        """As `settle`, for a turn of one record; without a result it was handled and has led to nothing."""
        if result is None and self._is_plain:
            tally = self.tally
            tally.calls += 1
            tally.seconds += seconds
            tally.handled += 1
            self._pace.saw(1, seconds)
            self.scheduler.settle(turn[0], 1)
            self.scheduler.end_turn(turn)
            self._finish((record,))
            return
        result = result or Result.of(record)
        result.seconds = seconds
        self.settle(turn, result)

    def tick(self) -> None:
        """Let time pass: acknowledgements, repeats, postponed keys."""
        now = self._clock.monotonic()
        if self._idle_since is not None:
            self.tally.waited += now - self._idle_since
        is_idle = not (self.scheduler.lanes_busy or self.can_start)
        self.outbox.tick(now, is_idle=is_idle, is_awaited=is_idle and self.is_closing)
        self._overdue.look(now)
        self._relieve(now)
        self.acks.tick()
        self.scheduler.wake(now)
        is_idle = not (self.scheduler.lanes_busy or self.can_start)  # by now: acknowledgements make keys ready
        self._idle_since = now if is_idle and self.scheduler.records and not self.outbox.pending else None

    def copy_all(self, records: Sequence[Record[Any]], error: Exception, verdict: Defer | Park) -> None:
        """Send records that no queue holds (the rows of a columnar handler's table) to a retry or error topic."""
        self._ladder.recall_called(records)
        self._copies.send_all([(record, error, verdict) for record in records], lambda: None)

    def close(self) -> Tally:
        """Check that nothing is left and give the tally.

        Raises:
            UnreachableStateError: when a record has not reached its end.
        """
        if not self.is_done or self.ledger.outstanding:
            raise UnreachableStateError(
                f"{self.ledger.outstanding} records of handler {self.route.name!r} are unfinished at the end of a "
                "task. This should never happen. Please open an issue."
            )
        span = self.tally.last - self.tally.first
        # The time all lanes spent in calls, over the time that passed: how many were busy on average.
        self.tally.lanes_busy = self.tally.seconds / span if span > 0 else 0.0
        return self.tally

    @property
    def next_wake(self) -> float | None:
        """When `tick` has something to do even if nothing else happens."""
        wakes = (self.scheduler.next_wake, self.outbox.next_wake, self.relief.next_wake)
        times = [time for time in wakes if time is not None]
        if self.gate is not None and self.gate.is_open:
            times += self.gate.next_wakes(can_read=self.scheduler.is_idle and not self.is_closing)
        elif self._short_since is not None and self.scheduler.lanes_busy < self.scheduler.lanes:
            times.append(self._short_since + self._within)
        return min(times, default=None)

    def _relieve(self, now: float) -> None:
        for back, over, result in self.relief.due(now):
            for queue in back:
                self.scheduler.settle(queue, 0)
            self._act(over, result)

    def _is_due(self) -> bool:
        if self.is_closing or not self.room:
            return True  # nothing more can come to fill the batch
        now = self._clock.monotonic()
        if self._short_since is None:
            self._short_since = now
        return now - self._short_since >= self._within

    def _finish(self, records: Sequence[Record[Any]]) -> None:
        """The outcome of these records is durable."""
        wall = self._clock.wall()
        now = int(wall * 1000)
        if len(records) == 1:  # by far the commonest with a slow handler: no lists
            record = records[0]
            self.ledger.finish(record.partition, record.offset)
            self._latency.add(now - record.timestamp)
        else:
            self.ledger.finish_all([(record.partition, record.offset) for record in records])
            self._latency.add_all([now - record.timestamp for record in records])
        self.tally.last = wall
        if self._ladder.leaves:
            self._ladder.left(records)

    def _settle_failures(self, turn: list[KeyQueue[Record[Any]]], result: Result) -> None:
        if not result.failures:
            self._members.settle(turn, result)
            return
        done = result.done
        failed = []
        for index, (record, error) in sorted(result.failures.items(), key=_first):
            done += [0] * (index + 1 - len(done))
            failed.append((turn[index], done[index], record, error))
            done[index] = _ELSEWHERE
        self.scheduler.settle_all(turn, done)
        for failure in failed:
            self._fail(*failure)

    def _fail(self, queue: KeyQueue[Record[Any]], done: int, record: Record[Any], error: Exception) -> None:
        if isinstance(error, Unacknowledged):
            self.acks.keep(queue, done, record, error.ack)  # type: ignore[arg-type]  # it knows no rooms above it
            return
        verdict = self._judge(record, error)
        if isinstance(verdict, TryAgain):
            self._try_again(record, error, verdict)
            self.scheduler.postpone(queue, done, self._clock.monotonic() + verdict.pause.total_seconds())
        elif isinstance(verdict, Defer) and not self.route.parks_behind:  # those behind it overtake it anyway
            self._copies.send_along(record, error, verdict, queue.key)
            self.scheduler.settle(queue, done + 1)
        else:  # the key stays out, without a lane, until the copy is safe
            self._copies.send(record, error, verdict, partial(self.scheduler.settle, queue, done + 1))

    def _acknowledged(self, record: Record[Any]) -> None:
        self._handled((record,), (), is_parked=False)

    def _give_up(self, record: Record[Any], error: Exception) -> None:
        """A record failed whose key has gone on: it cannot be tried again in its place."""
        verdict = self._judge(record, error)
        self._copies.send(record, error, Park() if isinstance(verdict, TryAgain) else verdict, lambda: None)

    def _try_again(self, record: Record[Any], error: Exception, verdict: TryAgain) -> None:
        self.telling.retried(record, error, verdict.pause)
        self.tally.retried += 1
        record.attempt += 1

    def _judge(self, record: Record[Any], error: Exception) -> Verdict:
        return judge(error, record.attempt - record.before, self.route.retry, self.route.step)

    def _without_waiting(self, turn: list[KeyQueue[Record[Any]]]) -> list[KeyQueue[Record[Any]]]:
        """What of a turn may run; keys with records on a retry topic send these behind them. None may: a free lane."""
        may_run, behind = self._ladder.parted(self._overdue.parted(turn) if self._overdue else turn)
        for queue, step in behind:
            self._send_behind(queue, step)
        if not may_run:
            self.scheduler.end_turn(turn)
        return may_run

    def _send_behind(self, queue: KeyQueue[Record[Any]], step: int) -> None:
        self._copies.queue_behind(queue.work(), step, lambda: self.scheduler.settle(queue, queue.taken))

    def _handled(self, records: Sequence[Record[Any]], older: Sequence[Record[Any]], *, is_parked: bool) -> None:
        """The messages of these records are acknowledged, or the records are parked instead."""
        if not is_parked:
            self.tally.handled += len(records)
            if self.telling.tells_ends:
                self.telling.handled(records)
            self._finish(records)
        self._supersede(older)

    def _supersede(self, records: Sequence[Record[Any]]) -> None:
        """The newest record of their key is finished, and so are these."""
        self.tally.superseded += len(records)
        if records:
            self._finish(records)
