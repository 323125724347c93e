"""The ledger against a model: a set of unfinished offsets for each partition."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from laneway._core.ledger import Ledger

PARTITIONS = st.sampled_from([0, 1, 7])


class LedgerMachine(RuleBasedStateMachine):
    """The committable offset never passes an unfinished one and never goes back."""

    def __init__(self):
        super().__init__()
        self.ledger = Ledger()
        self.unfinished: dict[int, set[int]] = {}
        self.finished: dict[int, set[int]] = {}
        self.next: dict[int, int] = {}
        self.committed: dict[int, int] = {}

    @rule(
        partition=PARTITIONS,
        first=st.sampled_from([0, 1, 5, 1000, 2**53 + 1, 2**60]),
        gaps=st.lists(st.sampled_from([1, 1, 1, 2, 3, 1000, 2**54]), max_size=8),
    )
    def see(self, partition, first, gaps):
        at = self.next.get(partition, 0) + first
        offsets = [at]
        offsets.extend(at := at + gap for gap in gaps)
        self.ledger.see(partition, offsets)
        self.unfinished.setdefault(partition, set()).update(offsets)
        self.next[partition] = offsets[-1] + 1

    @rule(partition=PARTITIONS)
    def see_nothing(self, partition):
        self.ledger.see(partition, [])

    @precondition(lambda self: self.next)
    @rule(data=st.data())
    def see_what_was_seen_before(self, data):
        partition = data.draw(st.sampled_from(sorted(self.next)))
        again = data.draw(st.integers(max(0, self.next[partition] - 5), self.next[partition] - 1))
        with pytest.raises(ValueError, match="was seen before"):
            self.ledger.see(partition, [again, self.next[partition] + 3])

    @rule(partition=PARTITIONS, steps=st.lists(st.integers(0, 4), min_size=2, max_size=6))
    def see_what_does_not_ascend(self, partition, steps):
        base = self.next.get(partition, 0)
        offsets = [base, *(base + step for step in steps)]
        if all(after > before for before, after in pairwise(offsets)):
            offsets[-1] = offsets[-2]
        with pytest.raises(ValueError, match="do not ascend"):
            self.ledger.see(partition, offsets)

    @precondition(lambda self: any(self.unfinished.values()))
    @rule(data=st.data())
    def finish(self, data):
        partition = data.draw(st.sampled_from(sorted(p for p, offsets in self.unfinished.items() if offsets)))
        offset = data.draw(st.sampled_from(sorted(self.unfinished[partition])))
        if data.draw(st.booleans()):
            self.ledger.finish(partition, offset)
        else:
            self.ledger.finish_all([(partition, offset)])
        self.unfinished[partition].remove(offset)
        self.finished.setdefault(partition, set()).add(offset)

    @precondition(lambda self: any(self.finished.values()))
    @rule(data=st.data())
    def finish_twice(self, data):
        partition = data.draw(st.sampled_from(sorted(self.finished)))
        offset = data.draw(st.sampled_from(sorted(self.finished[partition])))
        with pytest.raises(KeyError):
            self.ledger.finish(partition, offset)
        with pytest.raises(KeyError):
            self.ledger.finish_all([(partition, offset)])

    @rule(partition=PARTITIONS, beyond=st.integers(0, 10))
    def finish_what_was_never_seen(self, partition, beyond):
        with pytest.raises(KeyError):
            self.ledger.finish(partition, self.next.get(partition, 0) + beyond)

    @rule(partition=PARTITIONS)
    def forget(self, partition):
        self.ledger.forget(partition)
        for known in (self.unfinished, self.finished, self.next, self.committed):
            known.pop(partition, None)

    @invariant()
    def commits_are_safe(self):
        for partition in (0, 1, 7):
            unfinished = sorted(self.unfinished.get(partition, ()))
            committable = self.ledger.committable(partition)
            assert (unfinished[0] if unfinished else self.next.get(partition)) == committable
            assert tuple(unfinished) == self.ledger.unfinished(partition)
            if committable is not None:
                assert committable >= self.committed.get(partition, 0), "a commit would go backwards"
                self.committed[partition] = committable
        assert sum(map(len, self.unfinished.values())) == self.ledger.outstanding


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
