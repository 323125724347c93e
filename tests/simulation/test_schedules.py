"""Random schedules of core, lanes and sender, some with retry topics and crashes, break no promise."""

from __future__ import annotations

import random

import pytest

from simulation.simulator import simulate


def test_no_schedule_breaks_a_promise():
    """Every record ends once, in key order, and nothing is committed, finished or kept that should not be."""
    first = random.SystemRandom().randrange(1 << 40)  # a failure names its own seed
    for seed in range(first, first + 1_000):
        simulate(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 10_000, 1_000))
def test_no_schedule_of_ten_thousand_breaks_a_promise(first):
    """The same ten thousand in every run."""
    for seed in range(first, first + 1_000):
        simulate(seed)
