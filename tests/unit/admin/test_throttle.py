"""No more turns a second than the rate allows, evenly."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest

from laneway.admin import Throttle, Watcher, _redrive
from support.core import FakeClock

NO_STOP = Watcher()


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves when the throttle sleeps."""
    clock = FakeClock()
    monkeypatch.setattr(_redrive, "time", SimpleNamespace(sleep=clock.advance))
    return clock


def test_turns_are_spread_evenly(clock):
    """At ten a second the hundredth turn comes after 9.9 seconds."""
    pace = Throttle(10, clock)
    turns = []
    for _ in range(100):
        assert pace.await_turn(NO_STOP)
        turns.append(clock.now)

    assert turns[-1] - turns[0] == pytest.approx(9.9)
    assert max(b - a for a, b in pairwise(turns)) == pytest.approx(0.1)


def test_an_idle_time_gives_no_burst(clock):
    """A turn that was missed is made up for, but after a minute without turns only one of them is."""
    pace = Throttle(10, clock)
    pace.await_turn(NO_STOP)
    clock.advance(60)
    before = clock.now
    for _ in range(12):
        pace.await_turn(NO_STOP)

    assert clock.now - before == pytest.approx(1.0)


def test_without_a_rate_nothing_waits(monkeypatch):
    """There is always a turn."""
    monkeypatch.setattr(_redrive, "time", None)
    pace = Throttle(None, FakeClock())
    assert all(pace.await_turn(NO_STOP) for _ in range(1_000))


def test_a_stop_ends_the_wait(clock):
    """At one turn in a hundred seconds a stop is noticed within a fraction of one."""
    pace = Throttle(0.01, clock)
    pace.await_turn(NO_STOP)
    began = clock.now

    class StopsAfterASecond(Watcher):
        is_stopping = property(lambda _: clock.now - began > 1)

    assert not pace.await_turn(StopsAfterASecond())
    assert clock.now - began < 1.5
