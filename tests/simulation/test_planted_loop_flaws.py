"""The checker of whole loops is checked: each planted flaw is found within a few hundred schedules."""

from __future__ import annotations

import pytest

from laneway._core.finished_map import FinishedMap
from laneway._core.processor import Processor
from laneway._runtime.flow import Flow
from laneway._runtime.partition import Partition, Pause
from laneway._runtime.rebalance import Rebalance
from laneway._runtime.recovery import Recovery
from laneway.testing._consumer import FakeConsumer
from simulation.loops import simulate_loops
from simulation.parts import Flaw

SEEDS = 200


def finds(text):
    """Some schedule breaks the promise that *text* names, and says how to run it again."""
    for seed in range(SEEDS):
        try:
            simulate_loops(seed)
        except Flaw as flaw:
            if text in str(flaw) and f"simulate_loops({seed})" in str(flaw):
                return
    pytest.fail(f"{SEEDS} schedules did not find it")


def test_a_source_that_repeats_an_offset_is_found(monkeypatch):
    """The ledger takes no offset twice."""
    given = FakeConsumer._given

    def repeated(self, place, most):
        found = given(self, place, most)
        if found and found[-1].offset % 5 == 4 and found[-1].epoch:
            self._next[place] = found[-1].offset + (found[-1].offset in vars(self).setdefault("again", set()))
            self.again.add(found[-1].offset)
        return found

    monkeypatch.setattr(FakeConsumer, "_given", repeated)
    finds("was seen before")


def test_a_source_that_leaves_an_offset_out_is_found(monkeypatch):
    """A record that is never read is lost."""
    given = FakeConsumer._given
    monkeypatch.setattr(
        FakeConsumer, "_given", lambda self, *asked: [each for each in given(self, *asked) if each.offset != 3]
    )
    finds("says that")


def test_a_commit_that_goes_one_too_far_is_found(monkeypatch):
    """What is committed before it is finished would be lost by a crash."""
    progress = Partition.progress

    def ahead(self):
        low, end, unfinished = progress(self)
        return (low + 1, end, unfinished[1:]) if unfinished else (low, end, unfinished)

    monkeypatch.setattr(Partition, "progress", ahead)
    finds("says that")


def test_a_map_that_says_too_much_is_found(monkeypatch):
    """An offset that the last owner had not finished is not to be passed over."""
    has = FinishedMap.has
    monkeypatch.setattr(FinishedMap, "has", lambda self, offset: has(self, offset) or has(self, offset - 1))
    finds("says that")


def test_a_rebalance_that_waits_for_nothing_is_found(monkeypatch):
    """Calls that are under way when their partition goes run again at the next owner."""
    monkeypatch.setattr(Rebalance, "is_drained", lambda self, places: True)
    finds("more than once without a crash")


def test_a_partition_that_is_given_back_without_a_commit_is_found(monkeypatch):
    """The next owner runs again what was finished since the last regular commit."""

    def give_back(self, places, deadline):
        self._give_up(places)

    monkeypatch.setattr(Rebalance, "give_back", give_back)
    finds("more than once")


def test_a_fence_that_is_skipped_is_found(monkeypatch):
    """What was read by a former ownership counts for nothing."""
    monkeypatch.setattr(Processor, "fence", lambda self, *place: None)
    finds("KeyError")  # its result arrives where nothing is known of it


def test_a_recovery_that_finds_nothing_is_found(monkeypatch):
    """Records whose copies are safe are copied again."""
    monkeypatch.setattr(Recovery, "look_up", lambda self, *asked: [])
    finds("parked more than once")


def test_a_pause_that_stays_is_found(monkeypatch):
    """What stays paused is never read."""
    begin = Flow.begin

    def held(self, partition):
        begin(self, partition)
        if self.is_holding:
            partition.paused.add(Pause.USER)

    monkeypatch.setattr(Flow, "begin", held)
    finds("it does not end")


def test_an_ownership_that_says_nothing_is_found(monkeypatch):
    """Without its first commit a crash leaves no trace of what was under way."""
    monkeypatch.setattr(Partition, "first_commit", lambda self: None)
    finds("parked more than once")
