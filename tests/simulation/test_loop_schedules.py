"""Random schedules of whole loops, with rebalances, crashes, retries and failing writes, break no promise."""

from __future__ import annotations

import random

import pytest

from simulation.loops import simulate_loops


def test_no_schedule_of_a_group_breaks_a_promise():
    """Nothing is lost, keys stay in order, no commit says too much, and without a crash nothing runs twice."""
    first = random.SystemRandom().randrange(1 << 40)  # a failure names its own seed
    for seed in range(first, first + 1_000):
        simulate_loops(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 10_000, 1_000))
def test_no_schedule_of_ten_thousand_groups_breaks_a_promise(first):
    """The same ten thousand in every run."""
    for seed in range(first, first + 1_000):
        simulate_loops(seed)
