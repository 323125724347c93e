"""Desk: where turns begin and end. It owns scheduler, ledger, failure path and outbox of one route in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway.errors import ProduceError, UnreachableStateError
from laneway.instrumentation import Histogram, Tally
from laneway.lanes import KeyQueue, Ledger, Scheduler
from laneway.pipeline._outbox import Letter, Outbox, is_hopeless
from laneway.retry import Failure, Reduction, TryAgain, Verdict, judge, parked_headers, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laneway._app import Route
    from laneway._clock import Clock
    from laneway._record import Record
    from laneway.pipeline._execute import Posted, Result
    from laneway.typing import Sender

__all__ = ["Desk"]

_MOST_A_TURN = 512  # records; more would not be faster, and a turn that fails late would give back more
_SLICE = 0.002  # seconds of work a lane takes at once: short enough that no other key waits noticeably


class Desk:
    """Gives turns to lanes and settles them.

    Not thread-safe: one thread owns it, or the runner's lock guards every call. The user's function is never called
    here, so the lock is never held while it runs.

    Args:
        route: whose records these are.
        app: the app's name, for the parked copies.
        lanes: how many lanes this process has for the route.
        sender: where messages and copies go.
        clock: the time.
        per_partition: lanes of each partition when they are strict.
        notice: told in words when something must wait, such as an error topic that cannot be written to.
    """

    def __init__(
        self,
        route: Route,
        app: str,
        *,
        lanes: int,
        sender: Sender,
        clock: Clock,
        per_partition: int | None = None,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self.route = route
        self.tally = Tally(lanes=lanes)
        self.scheduler: Scheduler[Record[Any]] = Scheduler(lanes, per_partition)
        self.ledger = Ledger()
        self.outbox = Outbox(sender, self.tally, notice)
        self.is_closing = False
        """Nothing more will be admitted: a batch need not wait to be full."""
        self._notice = notice
        self._app = app
        self._clock = clock
        self._order = route.kept_order
        self._most_records, self._most_size = route.buffer.records, int(route.buffer.size)
        self._is_batch = route.is_batch
        self._within = route.within.total_seconds()
        self._short_since: float | None = None
        self._pace = 0.0
        """Seconds a call takes, smoothed; rises at once and falls slowly, so a slow handler is never given too much."""
        self._latency = Histogram(self.tally.latency)

    @property
    def room(self) -> int:
        """How many more records may be read now."""
        # What waits for its acknowledgement is in memory too: without it a slow topic would be read without end.
        if self.scheduler.size + self.outbox.size >= self._most_size:
            return 0
        # A record may lead to many messages, and one message may stand for the records of a whole batch.
        held = max(self.scheduler.records + self.outbox.pending, self.ledger.outstanding)
        return max(0, self._most_records - held)

    @property
    def is_done(self) -> bool:
        """Whether everything admitted has reached its end."""
        return self.scheduler.is_idle and not self.outbox.pending

    @property
    def can_start(self) -> bool:
        """Whether a further lane could begin now. A turn that ends may make more ready than its own lane takes."""
        return bool(self.scheduler.ready) and self.scheduler.lanes_busy < self.scheduler.lanes

    @property
    def pace(self) -> float:
        """Seconds a call of the handler takes; 0 until the first call is over. A later task may be told it."""
        return self._pace

    @pace.setter
    def pace(self, seconds: float) -> None:
        self._pace = seconds

    def admit(self, records: Sequence[Record[Any]]) -> None:
        """Take over records that were read, those of each partition in offset order."""
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
        if self._order == "key" and self.route.order_by is not None:
            keys = [self.route.order_value(record) for record in records]
        elif self._order == "key":
            keys = [record.key for record in records]
        elif self._order == "partition":
            keys = [record.partition for record in records]
        else:
            keys = [None] * len(records)
        partitions = [record.partition for record in records] if self.route.strict else None
        self.scheduler.push(records, keys, partitions)
        self.tally.read += len(records)
        self.tally.size += sum([record.size for record in records])

    def take(self) -> list[KeyQueue[Record[Any]]] | None:
        """A turn for a free lane, or None."""
        scheduler = self.scheduler
        if not scheduler.ready:
            return None
        if self._is_batch:
            most = self.route.size
            if scheduler.ready < most and not self._is_due():
                return None
        else:
            most = self._most_a_turn()
        turn = scheduler.take(most)
        if turn:
            self._short_since = None
            self.tally.first = self.tally.first or self._clock.wall()
        return turn

    def settle(self, turn: list[KeyQueue[Record[Any]]], result: Result) -> None:
        """Act on what became of a turn."""
        tally, scheduler = self.tally, self.scheduler
        tally.calls += result.calls
        tally.seconds += result.seconds
        if result.calls:
            pace = result.seconds / result.calls
            self._pace = pace if pace > self._pace else self._pace * 0.9 + pace * 0.1
        if result.members:
            self._settle_members(turn, result)
        elif result.failures:
            self._settle_failures(turn, result)
        else:
            done = result.done
            for queue, count in zip(turn, done, strict=False):
                scheduler.settle(queue, count)
            for queue in turn[len(done) :]:
                scheduler.settle(queue, 0)
        scheduler.end_turn(turn)
        tally.handled += len(result.finished)
        tally.skipped += len(result.skipped)
        if result.finished:
            self._finish(result.finished)
        if result.skipped:
            self._finish(result.skipped)
        older = result.older
        if older:
            self._supersede([old for new in (*result.finished, *result.skipped) for old in older.get(id(new), ())])
        for records, posted in result.outputs:
            self._post(records, posted, [old for new in records for old in older.get(id(new), ())])

    def tick(self) -> None:
        """Let time pass: acknowledgements, repeats, postponed keys."""
        now = self._clock.monotonic()
        self.outbox.tick(now)
        self.scheduler.wake(now)

    def park_all(self, records: Sequence[Record[Any]], error: Exception) -> None:
        """Send records to the error topic that no queue holds (the rows of a columnar handler's table)."""
        failure = Failure.of(error)
        for record in records:
            self._park(record, failure, None)

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
        times = [time for time in (self.scheduler.next_wake, self.outbox.next_wake) if time is not None]
        if self._short_since is not None and self.scheduler.lanes_busy < self.scheduler.lanes:
            times.append(self._short_since + self._within)
        return min(times, default=None)

    def _most_a_turn(self) -> int:
        """As many records as a lane can work through in one slice, but never the work that free lanes could begin."""
        if not self._pace:
            return 1  # not known yet: several slow calls in a row would keep the other lanes idle
        if self._pace * _MOST_A_TURN < _SLICE:
            return _MOST_A_TURN
        return max(1, min(int(_SLICE / self._pace), self.scheduler.ready // self.scheduler.lanes))

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
            self._latency.add_all((now - record.timestamp,))
        else:
            self.ledger.finish_all([(record.partition, record.offset) for record in records])
            self._latency.add_all([now - record.timestamp for record in records])
        self.tally.last = wall

    def _settle_failures(self, turn: list[KeyQueue[Record[Any]]], result: Result) -> None:
        for index, queue in enumerate(turn):
            count = result.done[index] if index < len(result.done) else 0
            if index in result.failures:
                self._fail(queue, count, *result.failures[index])
            else:
                self.scheduler.settle(queue, count)

    def _fail(self, queue: KeyQueue[Record[Any]], done: int, record: Record[Any], error: Exception) -> None:
        verdict = judge(error, record.attempt, self.route.retry)
        if isinstance(verdict, TryAgain):
            self._try_again(record, error)
            self.scheduler.postpone(queue, done, self._clock.monotonic() + verdict.pause.total_seconds())
        else:
            self._park_members([(record, error)], lambda: self.scheduler.settle(queue, done + 1))

    def _settle_members(self, turn: list[KeyQueue[Record[Any]]], result: Result) -> None:
        """Members of a batch failed: each is judged for itself, and those that go on are tried again together."""
        errors: dict[int, dict[int, Exception]] = {}
        for index, record, error in result.members:
            errors.setdefault(index, {})[id(record)] = error
        verdicts: dict[tuple[int, int], Verdict] = {}
        now = self._clock.monotonic()  # one for all keys: a microsecond between them would tear the batch apart
        for index, queue in enumerate(turn):
            if index in errors:
                # In the order of the key: that of the members has those first that cannot be decoded.
                failed = [(record, errors[index][id(record)]) for record in queue.work() if id(record) in errors[index]]
                self._fail_members(queue, failed, verdicts, now, result.older)
            else:
                self.scheduler.settle(queue, queue.taken)

    def _fail_members(
        self,
        queue: KeyQueue[Record[Any]],
        failed: list[tuple[Record[Any], Exception]],
        verdicts: dict[tuple[int, int], Verdict],
        now: float,
        older: dict[int, list[Record[Any]]],
    ) -> None:
        until = now
        again: list[Record[Any]] = []
        parked: list[tuple[Record[Any], Exception]] = []
        for record, error in failed:
            # One verdict for the same error and attempt: a random pause each would tear the batch apart.
            name = (id(error), record.attempt)
            if name not in verdicts:
                verdicts[name] = judge(error, record.attempt, self.route.retry)
            verdict = verdicts[name]
            if isinstance(verdict, TryAgain):
                self._try_again(record, error)
                until = max(until, now + verdict.pause.total_seconds())
                again.append(record)
            else:
                parked.append((record, error))

        def settle() -> None:
            if again:
                # What a record supersedes waits with it.
                kept = [old for new in again for old in (*older.get(id(new), ()), new)]
                self.scheduler.retain(queue, kept)
                self.scheduler.postpone(queue, 0, until)
            else:
                self.scheduler.settle(queue, queue.taken)
            self._supersede([old for new, _ in parked for old in older.get(id(new), ())])

        self._park_members(parked, settle)

    def _try_again(self, record: Record[Any], error: Exception) -> None:
        self._note(record, error, "retried")
        self.tally.retried += 1
        record.attempt += 1

    def _park_members(self, members: Sequence[tuple[Record[Any], Exception]], then: Callable[[], None]) -> None:
        """Park records of one key, which stays out, without a lane, until each copy is acknowledged; *then* goes on."""
        left = len(members)

        def landed() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for record, error in members:
            self._note(record, error, "parked")
            self._park(record, Failure.of(error), landed)
        if not members:
            then()

    def _park(self, record: Record[Any], failure: Failure, then: Any) -> None:
        def landed() -> None:
            self.tally.parked += 1
            self._finish((record,))
            if then is not None:
                then()

        reductions: list[Reduction] = ["trace", "value"]

        def undeliverable(letter: Letter, error: Exception) -> bool:
            if is_hopeless(error) and reductions:
                # The trace is what we added; without it the copy is hardly larger than the record was. A copy without
                # the value still tells where the record is.
                letter.posted = self._copy(record, failure, reductions.pop(0))
                self.tally.reduced += len(reductions)  # once: at the first of the two
            return False

        self.outbox.post(Letter(self._copy(record, failure), landed, undeliverable))

    def _copy(self, record: Record[Any], failure: Failure, reduced: Reduction = "") -> Posted:
        now, value = int(self._clock.wall() * 1000), None if reduced == "value" else record.raw
        headers = parked_headers(record, failure, app=self._app, handler=self.route.name, now=now, reduced=reduced)
        # The record's own timestamp and no partition: records of one key stay together on the error topic.
        return (self.route.error_topic_of(self._app), record.key, value, headers, None, record.timestamp)

    def _supersede(self, records: Sequence[Record[Any]]) -> None:
        """The newest record of their key is finished, and so are these."""
        self.tally.superseded += len(records)
        if records:
            self._finish(records)

    def _post(self, records: Sequence[Record[Any]], posted: list[Posted], older: Sequence[Record[Any]] = ()) -> None:
        """Send the messages of records that were handled; they are finished when the last one is acknowledged."""
        left, is_parked = len(posted), False

        def landed() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.tally.handled += len(records)
                self._finish(records)
                self._supersede(older)

        def undeliverable(letter: Letter, error: Exception) -> bool:
            nonlocal is_parked
            if not is_hopeless(error):
                return False
            why = ProduceError(f"a message for {letter.posted[0]} cannot be delivered: {text_of(error)}")
            if records and not is_parked:
                is_parked = True
                self._park_members([(record, why) for record in records], lambda: self._supersede(older))
            elif not records and self._notice is not None:
                self._notice(
                    f"{why}; it is given up, since every record of its batch was marked and none can be parked"
                )
            return True

        if not posted:
            left = 1
            landed()
        for message in posted:
            self.outbox.post(Letter(message, landed, undeliverable))

    def _note(self, record: Record[Any], error: Exception, fate: str) -> None:
        place = (record.topic, record.partition, record.offset)
        self.tally.note(self.route.name, place, f"{type(error).__name__}: {text_of(error)}", fate)
