"""The backlog against a model: a list of the records that wait, each with its partition, key and step."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from laneway._core.deferred_keys import DeferredKeys
from support.core import make_record

KEYS = st.sampled_from([b"", b"a", b"b", 0, ("a",)])
PARTITIONS = st.integers(0, 2)
STEPS = st.integers(1, 4)
COPIES = st.lists(st.tuples(PARTITIONS, st.one_of(st.none(), KEYS), st.integers(0, 5)), max_size=4)


class BacklogMachine(RuleBasedStateMachine):
    """Whatever joins and leaves, a key goes behind the lowest step above its own that holds it in its partition."""

    def __init__(self):
        super().__init__()
        self.backlog = DeferredKeys()
        self.waiting = []
        self.oldest = {}

    @rule(partition=PARTITIONS, key=KEYS, step=STEPS)
    def join(self, partition, key, step):
        self.backlog.joined(partition, key, step)
        self.waiting.append((partition, key, step))

    @rule(copies=COPIES, step=STEPS, is_repeated=st.booleans())
    def load(self, copies, step, is_repeated):
        self._load(self.backlog, copies, step, is_repeated)

    @rule(copies=COPIES, step=STEPS, more=COPIES, is_repeated=st.booleans())
    def merge(self, copies, step, more, is_repeated):
        other = DeferredKeys()
        self._load(other, copies, step, is_repeated)
        self._load(other, more, step % 4 + 1, is_repeated)
        self.backlog.merge(other)
        for partition in range(3):
            other.forget(partition)  # it is not what was merged any more
        assert not other

    def _load(self, backlog, copies, step, is_repeated):
        """Load records; where each lies in *copies* is its offset on the retry topic."""
        records = [
            make_record(index, partition=partition, headers=_origin(partition, offset), topic="retry")
            for index, (partition, _, offset) in enumerate(copies)
        ]
        backlog.load(records, step, lambda record: copies[record.offset][1], "orders" if is_repeated else None)
        for partition, key, offset in copies:
            if key is not None:
                self.waiting.append((partition, key, step))
                if is_repeated:
                    name = (partition, key)
                    self.oldest[name] = min(offset, self.oldest.get(name, offset))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data):
        waits = data.draw(st.sampled_from(self.waiting))
        self.backlog.left(*waits)
        self.waiting.remove(waits)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def climb(self, data):
        partition, key, step = data.draw(st.sampled_from(self.waiting))
        self.backlog.joined(partition, key, step + 1)
        self.backlog.left(partition, key, step)
        self.waiting.remove((partition, key, step))
        self.waiting.append((partition, key, step + 1))

    @rule(partition=st.integers(0, 3), key=st.one_of(st.none(), KEYS), step=STEPS)
    def leave_without_having_joined(self, partition, key, step):
        if (partition, key, step) not in self.waiting:
            self.backlog.left(partition, key, step)

    @rule(partition=st.integers(0, 3))
    def forget(self, partition):
        self.backlog.forget(partition)
        self.waiting = [waits for waits in self.waiting if waits[0] != partition]
        self.oldest = {name: offset for name, offset in self.oldest.items() if name[0] != partition}

    @invariant()
    def nobody_is_held_up_too_long_or_too_little(self):
        assert len({waits[:2] for waits in self.waiting}) == len(self.backlog)
        assert bool(self.waiting) == bool(self.backlog)
        for partition in range(4):
            for key in (b"", b"a", b"b", 0, ("a",), b"unknown", None):
                found = [step for *name, step in self.waiting if name == [partition, key]]
                for step in range(6):
                    expected = min((above for above in found if above > step), default=None)
                    assert expected == self.backlog.behind(partition, key, step)

    @invariant()
    def a_record_that_is_read_again_is_known_to_be_older(self):
        for partition in range(4):
            for key in (b"", b"a", b"b", 0, ("a",), b"unknown"):
                for offset in range(7):
                    expected = offset < self.oldest.get((partition, key), -1)
                    assert expected == self.backlog.precedes(key, make_record(offset, partition=partition))


def _origin(partition, offset):
    return [
        ("laneway-origin-topic", b"orders"),
        ("laneway-origin-partition", b"%d" % partition),
        ("laneway-origin-offset", b"%d" % offset),
    ]


TestBacklog = BacklogMachine.TestCase
TestBacklog.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
