"""Ten thousand random schedules of desk, lanes and sender, some with retry topics and crashes, break no promise."""

from __future__ import annotations

import pytest

from simulation.simulator import simulate

SCHEDULES = 10_000
CHUNK = 1_000


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_no_schedule_breaks_a_promise(first):
    """Every record ends once, in key order, and nothing is committed, finished or kept that should not be."""
    for seed in range(first, first + CHUNK):
        simulate(seed)
