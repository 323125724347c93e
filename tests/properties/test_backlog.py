"""The backlog against a model: a list of the records that wait, each with its key and step."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from laneway.pipeline import Backlog
from support.core import make_record

KEYS = st.sampled_from([b"", b"a", b"b", 0, ("a",)])
STEPS = st.integers(1, 4)


class BacklogMachine(RuleBasedStateMachine):
    """Whatever joins and leaves, a key goes behind the lowest step above its own that holds it."""

    def __init__(self):
        super().__init__()
        self.backlog = Backlog()
        self.waiting = []

    @rule(key=KEYS, step=STEPS)
    def join(self, key, step):
        self.backlog.joined(key, step)
        self.waiting.append((key, step))

    @rule(keys=st.lists(st.one_of(st.none(), KEYS), max_size=4), step=STEPS)
    def load(self, keys, step):
        records = [make_record(index) for index in range(len(keys))]
        self.backlog.load(records, step, lambda record: keys[record.offset])
        self.waiting += [(key, step) for key in keys if key is not None]

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data):
        key, step = data.draw(st.sampled_from(self.waiting))
        self.backlog.left(key, step)
        self.waiting.remove((key, step))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def climb(self, data):
        key, step = data.draw(st.sampled_from(self.waiting))
        self.backlog.joined(key, step + 1)
        self.backlog.left(key, step)
        self.waiting.remove((key, step))
        self.waiting.append((key, step + 1))

    @rule(key=st.one_of(st.none(), KEYS), step=STEPS)
    def leave_without_having_joined(self, key, step):
        if (key, step) not in self.waiting:
            self.backlog.left(key, step)

    @invariant()
    def nobody_is_held_up_too_long_or_too_little(self):
        assert len({key for key, _ in self.waiting}) == len(self.backlog)
        assert bool(self.waiting) == bool(self.backlog)
        for key in (b"", b"a", b"b", 0, ("a",), b"unknown", None):
            for step in range(6):
                steps = [found for own, found in self.waiting if own == key and found > step]
                assert (min(steps) if steps else None) == self.backlog.behind(key, step)


TestBacklog = BacklogMachine.TestCase
TestBacklog.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
