"""No more than so many a second, evenly."""

from __future__ import annotations

from itertools import pairwise

import pytest

from laneway.admin import Throttle
from support.core import FakeClock


def test_turns_are_spread_evenly():
    """At ten a second the hundredth turn comes after 9.9 seconds."""
    clock = FakeClock()
    pace = Throttle(10, clock, clock.advance)
    turns = []
    for _ in range(100):
        assert pace.await_turn(lambda: False)
        turns.append(clock.now)

    assert turns[-1] - turns[0] == pytest.approx(9.9)
    assert max(b - a for a, b in pairwise(turns)) == pytest.approx(0.1)


def test_an_idle_time_gives_no_burst():
    """A turn that was missed is made up for, but after a minute without turns only one of them is."""
    clock = FakeClock()
    pace = Throttle(10, clock, clock.advance)
    pace.await_turn(lambda: False)
    clock.advance(60)
    before = clock.now
    for _ in range(12):
        pace.await_turn(lambda: False)

    assert clock.now - before == pytest.approx(1.0)


def test_without_a_rate_nothing_waits():
    """There is always a turn."""
    clock = FakeClock()
    pace = Throttle(None, clock, lambda seconds: pytest.fail("it slept"))
    assert all(pace.await_turn(lambda: False) for _ in range(1_000))


def test_a_stop_ends_the_wait():
    """At one turn in a hundred seconds a stop is noticed within a fraction of one."""
    clock = FakeClock()
    pace = Throttle(0.01, clock, clock.advance)
    pace.await_turn(lambda: False)
    began = clock.now

    assert not pace.await_turn(lambda: clock.now - began > 1)
    assert clock.now - began < 1.5
