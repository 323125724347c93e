"""The scheduler against a model: a list of items for each key, and who holds the key."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from laneway._core.scheduler import Lanes, Scheduler, StrictScheduler

KEYS = st.sampled_from([None, None, b"", b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"])


@dataclass(eq=False)
class Item:
    number: int
    key: object
    size: int


@dataclass(eq=False)
class Line:
    """What the model knows about one key: items not settled, the partition of its first, and until when it is out."""

    lane: int
    items: list[Item] = field(default_factory=list)
    is_busy: bool = False
    until: float | None = None


@dataclass(eq=False)
class OpenTurn:
    lane: int
    queues: list
    unresolved: list


class SchedulerMachine(RuleBasedStateMachine):
    """Any order of pushes, takes, settlements, postponements, items kept and wake-ups keeps every promise."""

    @initialize(lanes=st.integers(1, 5), per_partition=st.sampled_from([None, 1, 2, 3]))
    def begin(self, lanes, per_partition):
        kind = Scheduler if per_partition is None else StrictScheduler
        self.scheduler = kind(Lanes(lanes, per_partition))
        self.per_partition = per_partition
        self.lines: dict[object, Line] = {}
        self.turns: list[OpenTurn] = []
        self.parked: list = []
        self.now = 0.0
        self.pushed: list[Item] = []
        self.settled: list[Item] = []
        self.overtook: set[int] = set()
        """Numbers of items that were finished with while earlier ones of the same turn were kept."""
        self.dropped: set[int] = set()

    def _line_key(self, item):
        return ("free", item.number) if item.key is None else item.key

    def _line_of(self, queue):
        return self.lines[self._line_key(queue.items[queue.start])]

    def _busy(self, lane):
        return sum(turn.lane == lane for turn in self.turns)

    def _takeable(self):
        limit = self.per_partition
        return [
            line
            for line in self.lines.values()
            if not line.is_busy and (limit is None or self._busy(line.lane) < limit)
        ]

    @rule(what=st.lists(st.tuples(KEYS, st.sampled_from([0, 0, 0, 1, 2]), st.integers(0, 9)), min_size=1, max_size=8))
    def push(self, what):
        items = []
        for key, lane, size in what:
            item = Item(len(self.pushed), key, size)
            self.pushed.append(item)
            items.append(item)
            self.lines.setdefault(self._line_key(item), Line(lane)).items.append(item)
        self.scheduler.push(items, [item.key for item in items], [lane for _, lane, _ in what])

    @rule(most=st.integers(1, 6))
    def take(self, most):
        takeable = self._takeable()
        turn = self.scheduler.take(most)
        if len(self.turns) >= self.scheduler.lanes.total or not takeable:
            assert turn is None
            return
        assert turn, "a lane is free and a key is ready, yet nothing was given"
        lanes = set()
        for queue in turn:
            line = self._line_of(queue)
            assert not line.is_busy, "a key is in two turns"
            work = queue.work()
            assert work == line.items[: len(work)]
            assert work
            line.is_busy = True
            lanes.add(line.lane)
        total = sum(len(queue.work()) for queue in turn)
        assert total <= most
        if self.per_partition is None:
            assert total == most or not self._takeable(), "the turn has room for a ready key"
        else:
            assert len(lanes) == 1
        self.turns.append(OpenTurn(next(iter(lanes)), list(turn), list(turn)))
        if self.per_partition is not None:
            assert self._busy(self.turns[-1].lane) <= self.per_partition

    def _advance(self, queue, done):
        line = self._line_of(queue)
        self.settled.extend(line.items[:done])
        key = self._line_key(line.items[0])
        del line.items[:done]
        if not line.items:
            del self.lines[key]
        return line

    def _pick(self, data):
        turn = data.draw(st.sampled_from([turn for turn in self.turns if turn.unresolved]))
        queue = data.draw(st.sampled_from(turn.unresolved))
        turn.unresolved.remove(queue)
        return queue

    @precondition(lambda self: any(turn.unresolved for turn in self.turns))
    @rule(data=st.data())
    def settle(self, data):
        queue = self._pick(data)
        done = data.draw(st.integers(0, queue.taken))
        self._advance(queue, done).is_busy = False
        self.scheduler.settle(queue, done)

    @precondition(lambda self: any(turn.unresolved for turn in self.turns))
    @rule(data=st.data())
    def settle_all(self, data):
        turn = data.draw(st.sampled_from([turn for turn in self.turns if turn.unresolved]))
        queues, turn.unresolved = turn.unresolved, []
        begun = data.draw(st.integers(0, len(queues)))
        done = [data.draw(st.integers(0, queue.taken)) for queue in queues[:begun]]
        for queue, count in zip_longest(queues, done, fillvalue=0):
            self._advance(queue, count).is_busy = False
        self.scheduler.settle_all(queues, done)

    @precondition(lambda self: any(turn.unresolved for turn in self.turns))
    @rule(data=st.data(), pause=st.integers(0, 5))
    def postpone(self, data, pause):
        queue = self._pick(data)
        # What is postponed is a record that failed, so at least one is left.
        done = data.draw(st.integers(0, queue.taken - 1))
        self._advance(queue, done).until = self.now + pause
        self.scheduler.advance(queue, done)
        self.scheduler.postpone(queue, self.now + pause)

    def _retain(self, data, queue, pause):
        """Some items of a turn are to be run again: they stay at the head, and the key stays out for a while."""
        line, work = self._line_of(queue), queue.work()
        kept = data.draw(st.lists(st.sampled_from(work), min_size=1, unique_by=id))
        kept = [item for item in work if item in kept]
        gone = [item for item in work if item not in kept]
        self.settled.extend(gone)
        self.overtook.update(item.number for item in gone)
        line.items[: len(work)] = kept
        line.until = self.now + pause
        self.scheduler.advance(queue, kept)
        assert queue.items[queue.start :][: len(kept)] == kept
        self.counts_are_exact(is_between=True)
        self.scheduler.postpone(queue, self.now + pause)

    @precondition(lambda self: any(turn.unresolved for turn in self.turns))
    @rule(data=st.data(), pause=st.integers(0, 5))
    def retain(self, data, pause):
        self._retain(data, self._pick(data), pause)

    @precondition(lambda self: self.parked)
    @rule(data=st.data(), pause=st.integers(0, 5))
    def retain_after_the_turn(self, data, pause):
        queue = data.draw(st.sampled_from(self.parked))
        self.parked.remove(queue)
        self._retain(data, queue, pause)

    @precondition(lambda self: self.turns)
    @rule(data=st.data())
    def end_turn(self, data):
        turn = data.draw(st.sampled_from(self.turns))
        self.turns.remove(turn)
        self.parked.extend(turn.unresolved)
        self.scheduler.end_turn(turn.queues)

    @precondition(lambda self: self.parked)
    @rule(data=st.data())
    def settle_after_the_turn(self, data):
        queue = data.draw(st.sampled_from(self.parked))
        self.parked.remove(queue)
        done = data.draw(st.integers(1, queue.taken))
        self._advance(queue, done).is_busy = False
        self.scheduler.settle(queue, done)

    @precondition(lambda self: self.pushed)
    @rule(data=st.data())
    def drop(self, data):
        unwanted = data.draw(st.sets(st.sampled_from(range(len(self.pushed)))))
        queues = [*self.parked, *(queue for turn in self.turns for queue in turn.unresolved)]
        held = {id(self._line_of(queue)): queue.taken for queue in queues}
        gone, waiting = [], []
        for name, line in list(self.lines.items()):
            at = held.get(id(line), 0)
            waiting += line.items[at:]
            gone += [item for item in line.items[at:] if item.number in unwanted]
            line.items[at:] = [item for item in line.items[at:] if item.number not in unwanted]
            if not line.items:
                del self.lines[name]
        self.dropped.update(item.number for item in gone)
        assert {item.number for item in self.scheduler.waiting()} == {item.number for item in waiting}
        assert self.scheduler.drop(lambda item: item.number in unwanted) == len(gone)

    @rule(passed=st.integers(0, 4))
    def wake(self, passed):
        self.now += passed
        due = [line for line in self.lines.values() if line.until is not None and line.until <= self.now]
        for line in due:
            line.until, line.is_busy = None, False
        assert len(due) == self.scheduler.wake(self.now)

    @invariant()
    def counts_are_exact(self, *, is_between=False):
        if not hasattr(self, "scheduler"):
            return
        scheduler, lines = self.scheduler, self.lines.values()
        assert sum(len(line.items) for line in lines) == scheduler.records
        assert sum(item.size for line in lines for item in line.items) == scheduler.size
        assert sum(len(line.items) for line in lines if not line.is_busy) == scheduler.ready
        assert len(self.turns) == scheduler.lanes.busy <= scheduler.lanes.total
        if is_between:
            return  # kept, and not yet postponed
        assert min((line.until for line in lines if line.until is not None), default=None) == scheduler.next_wake
        assert (not self.lines) == scheduler.is_idle

    def teardown(self):
        """Whatever was done before, the rest can be worked off, in order, with nothing lost and nothing twice."""
        if not hasattr(self, "scheduler"):
            return
        for turn in list(self.turns):
            self.turns.remove(turn)
            self.parked.extend(turn.unresolved)
            self.scheduler.end_turn(turn.queues)
        for queue in self.parked:
            self._advance(queue, 0).is_busy = False
            self.scheduler.settle(queue, 0)
        self.now += 100
        self.scheduler.wake(self.now)
        for line in self.lines.values():
            line.until, line.is_busy = None, False
        while not self.scheduler.is_idle:
            self.take(3)
            turn = self.turns.pop()
            done = [queue.taken for queue in turn.queues]
            for queue, count in zip(turn.queues, done, strict=True):
                self._advance(queue, count).is_busy = False
            self.scheduler.settle_all(turn.queues, done)
            self.scheduler.end_turn(turn.queues)
        self.counts_are_exact()
        left = [item.number for item in self.pushed if item.number not in self.dropped]
        assert sorted(item.number for item in self.settled) == left
        for key in {item.key for item in self.pushed if item.key is not None}:
            numbers = [item.number for item in self.settled if item.key == key and item.number not in self.overtook]
            assert sorted(numbers) == numbers


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=250, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
