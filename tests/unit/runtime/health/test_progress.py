"""Since when partitions stand still, and why."""

from __future__ import annotations

from datetime import timedelta

import pytest

from laneway._runtime.health.progress import Progress
from support.watched import Seen

HERE = ("orders", 0)


class Clock:
    """Time that a test moves."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(Followed, "clock", found, raising=False)
    return found


class Followed:
    """A cluster and its progress."""

    def __init__(self, **lows):
        self.seen = Seen()
        self.progress = Progress(self.seen, self.clock)

    def stalls(self, after=30.0, *, is_paused=False):
        return self.progress.stalls(self.progress.look(is_paused=is_paused), after)

    def late(self):
        self.progress.look(is_paused=False)
        return self.progress.uncommitted()


def test_an_idle_partition_does_not_stand_still(clock):
    """A record that comes after an hour of silence is not an hour late."""
    followed = Followed()
    followed.seen.low[HERE] = followed.seen.ends[HERE] = 5
    assert followed.stalls() == []
    clock.now += 3600
    followed.seen.ends[HERE] = 6
    assert followed.stalls() == []
    clock.now += 31

    [stall] = followed.stalls()
    assert (stall.code, stall.offset, stall.age) == ("unread", 5, timedelta(seconds=31))
    assert stall.words == "1 record to read; the brokers return none"
    assert followed.stalls(is_paused=True) == []


def test_a_record_that_was_begun_is_located(clock):
    """With the words of what it waits for, its handler and its key."""
    followed = Followed()
    followed.seen.low[HERE], followed.seen.delivered[HERE] = 3, 4
    assert followed.stalls() == []
    clock.now += 40

    [stall] = followed.stalls()
    assert (stall.code, stall.offset, stall.handler, stall.key, stall.has_key) == ("running", 3, "charge", b"k", True)
    assert stall.words == "handler 'charge' has been running for 7s"
    assert stall.age == timedelta(seconds=40)


def test_a_partition_that_is_held_for_its_commit_says_so(clock):
    """The record that blocks it is named, and why nothing behind it is read."""
    followed = Followed()
    followed.seen.low[HERE], followed.seen.delivered[HERE] = 3, 4
    followed.seen.full.add(HERE)
    [stall] = followed.stalls(0.0)

    assert (stall.code, stall.offset) == ("running", 3)
    assert "the partition is paused until it is finished, because the commit metadata is full" in stall.words


def test_what_holds_a_partition_back_is_said(clock):
    """Why nothing is read of it."""
    followed = Followed()
    followed.seen.low[HERE], followed.seen.ends[HERE] = 5, 6
    followed.seen.waits[HERE] = "what its former owner has left is being looked up"
    followed.stalls()
    clock.now += 31

    [stall] = followed.stalls()
    assert stall.words == "1 record to read; what its former owner has left is being looked up"


def test_records_that_wait_for_their_delay_do_not_stand_still(clock):
    """Until the delay is over, and a little more: they are reported as what they are."""
    followed = Followed()
    followed.seen.low[HERE], followed.seen.ends[HERE] = 5, 7
    followed.seen.delays["orders"] = 600.0
    followed.stalls()
    clock.now += 600
    [stall] = followed.stalls()
    assert (stall.code, stall.words) == ("delay", "2 records to read; each is handled when it is 10m old")
    clock.now += 31
    assert [stall.code for stall in followed.stalls()] == ["unread"]


def test_partitions_that_are_gone_are_not_reported(clock):
    """After a rebalance there is nothing about what another process reads, and what comes back begins at zero."""
    followed, other = Followed(), ("orders", 1)
    followed.seen.low |= {HERE: 5, other: 5}
    followed.seen.ends |= {HERE: 9, other: 9}
    followed.stalls()
    clock.now += 60
    assert len(followed.stalls()) == 2

    del followed.seen.low[other]
    assert [stall.partition for stall in followed.stalls()] == [0]
    assert followed.seen.look().lag == {HERE: 4}

    # It went and came back between two looks, at the same offset.
    followed.seen.epochs[HERE] = 7
    assert followed.stalls() == []


def test_commits_that_do_not_arrive_are_late(clock):
    """More is finished than the brokers know of, for longer than a few commits take; one that arrives ends that."""
    followed = Followed()
    followed.seen.low[HERE] = followed.seen.committed[HERE] = 5
    followed.late()
    for _ in range(12):
        followed.seen.low[HERE] += 10
        clock.now += 1
        followed.late()
    assert followed.late() == {HERE: 11.0}

    followed.seen.committed[HERE] = followed.seen.low[HERE]
    assert followed.late() == {}


def test_a_partition_that_moves_on_is_committed_in_time(clock):
    """On a busy topic there is always something finished that is not committed yet."""
    followed = Followed()
    followed.seen.low[HERE] = followed.seen.committed[HERE] = 5
    for _ in range(60):
        followed.seen.low[HERE] += 10
        assert followed.late() == {}
        followed.seen.committed[HERE] = followed.seen.low[HERE] - 5
        clock.now += 1
