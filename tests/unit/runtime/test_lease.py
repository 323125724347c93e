"""For how long calls may begin without a sign of the group."""

from __future__ import annotations

import pytest

from laneway._runtime.lease import Lease
from support.core import FakeClock


@pytest.fixture
def clock(monkeypatch):
    made = FakeClock()
    monkeypatch.setattr(Lease, "now", staticmethod(made.monotonic))
    return made


def test_polls_keep_it(clock):
    """Each in time makes it last longer."""
    lease = Lease(10.0)
    for _ in range(5):
        clock.now += 9.9
        assert lease.renew()
        assert lease.is_valid


def test_a_poll_that_is_late_does_not_bring_it_back(clock):
    """The client may not know yet what the group has decided; an answer to a question says it."""
    lease = Lease(10.0)
    clock.now += 10.0
    assert not lease.is_valid
    assert not lease.renew()
    assert not lease.is_valid

    lease.confirm(clock.now)
    clock.now += 9.9
    assert lease.is_valid
    assert lease.renew()


def test_an_answer_counts_from_its_question(clock):
    """The group may have given the member up since; and a question from before a further stop says nothing."""
    lease = Lease(10.0)
    clock.now += 50.0
    asked, clock.now = clock.now, clock.now + 30.0
    lease.confirm(asked)
    assert not lease.is_valid
