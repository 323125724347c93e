"""Members of a group that come, go and die, on the fake; `tests/scenarios/direct` has the same claims with a broker."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from laneway import App, Breaker, Level, Retry, Topic
from laneway.events import OffsetsCommitted, PartitionsAssigned, PartitionsRevoked
from laneway.testing import FakeKafka, running

ORDERS = Topic("orders")
KEYS = [f"k{number}" for number in range(12)]


class Scene:
    """An app whose calls take a second, and what was called."""

    def __init__(self, seed: int | None, **options):
        self.kafka, self.seed = FakeKafka(), seed
        self.app, self.calls, self.at_work = App("billing"), [], Counter()
        self.app.handler(ORDERS, **{"lanes": 4, **options})(self.handle)

    async def handle(self, record):
        assert not self.at_work[record.key], "two calls of one key at a time"
        self.at_work[record.key] += 1
        self.calls.append((record.key, int(record.value)))
        try:
            await asyncio.sleep(1)
        finally:
            self.at_work[record.key] -= 1

    def run(self, members):
        return running(self.app, kafka=self.kafka, seed=self.seed, members=members)

    def members(self):
        return self.kafka.members(self.app)

    def produce(self, count):
        for number in range(count):
            for key in KEYS:
                self.kafka.produce(ORDERS.message(b"%d" % number, key=key))

    @property
    def counts(self):
        return Counter(self.calls)

    def finish(self, count):
        """Everything has run, in the order of its key."""
        self.kafka.finish()
        assert set(self.calls) == {(key.encode(), number) for key in KEYS for number in range(count)}
        for key in KEYS:
            first = {}
            for at, (_, number) in enumerate(call for call in self.calls if call[0] == key.encode()):
                first.setdefault(number, at)
            assert sorted(first, key=first.__getitem__) == list(range(count))
        assert self.kafka.committed(self.app, ORDERS) == self.kafka.ends(ORDERS)


@pytest.fixture(params=["fake", "shuffled"])
def scene(request):
    return lambda **options: Scene(7 if request.param == "shuffled" else None, **options)


def test_partitions_have_one_owner_each(scene):
    """Each partition is one member's, and every member has as many as the others."""
    made = scene()
    with made.run(3):
        made.produce(1)
        made.kafka.drain()
        owned = [place for member in made.members() for place in member.partitions]
        assert sorted(owned) == [("orders", partition) for partition in range(4)]
        assert sorted(len(member.partitions) for member in made.members()) == [1, 1, 2]
        made.finish(1)


@pytest.mark.parametrize("members", [1, 2, 3])
def test_a_rebalance_repeats_nothing_when_calls_end_in_time(scene, members):
    """What was begun is finished and committed first: nothing is lost, nothing runs twice, keys stay in order."""
    made = scene()
    with made.run(members):
        made.produce(10)
        for _ in range(6):
            made.kafka.advance("700ms")
            made.kafka.rebalance(made.app)
        made.finish(10)
    assert set(made.counts.values()) == {1}


def test_members_that_come_and_go_repeat_nothing(scene):
    """One that joins takes over partitions, one that leaves gives them back."""
    made = scene()
    with made.run(1):
        made.produce(10)
        made.kafka.advance("1500ms")
        with made.run(2):
            made.kafka.advance("2500ms")
            assert all(member.partitions for member in made.members())
            made.members()[0].stop()
            made.kafka.advance("2500ms")
            assert made.members()[0].partitions == []
            made.finish(10)
    assert set(made.counts.values()) == {1}


def test_a_call_that_outlasts_the_rebalance_runs_again(scene):
    """Giving back ends after a while whatever is under way; what such a call returns does not count."""
    made, slept = scene(lanes=1), []

    async def handle(record):
        slept.append(record.key)
        await asyncio.sleep(600 if len(slept) == 1 else 1)

    made.app = App("slow")
    made.app.handler(ORDERS)(handle)
    made.kafka.produce(ORDERS.message(b"0", key="k"))
    with made.run(2):
        made.kafka.advance("1s")
        made.kafka.rebalance(made.app)
        made.kafka.advance("2m")
        assert (slept, made.kafka.tally.handled) == ([b"k", b"k"], 1)
        made.kafka.finish()
        assert made.kafka.tally.handled == 1
    assert sum(made.kafka.committed(made.app, ORDERS).values()) == 1


def test_a_member_that_is_expelled_changes_nothing(scene):
    """Others take over at once; what its calls return does not count, and nothing is lost."""
    made = scene()
    told = []
    made.app.on(PartitionsRevoked)(lambda event: told.append(event.is_lost))
    with made.run(2):
        made.produce(6)
        made.kafka.advance("1500ms")
        made.at_work = _NoCheck()  # both members are at work on what was taken
        made.members()[0].expel()
        made.kafka.advance("500ms")
        assert True in told
        made.finish(6)
    assert max(made.counts.values()) == 2


def test_a_member_that_dies_loses_nothing(scene):
    """Its partitions go to the others, which run what it had not committed; those of others run once."""
    made = scene()
    with made.run(2):
        made.produce(6)
        made.kafka.advance("1500ms")
        first, second = made.members()
        dead = {place[1] for place in second.partitions}
        made.at_work = _NoCheck()
        second.crash()
        made.kafka.advance("1s")
        assert (len(first.partitions), second.partitions) == (4, [])
        made.finish(6)
        partition_of = {record.key: record.partition for record in made.kafka.records(ORDERS)}
        repeated = {partition_of[key] for (key, _), count in made.counts.items() if count > 1}
        assert repeated <= dead
        second.restart()
        made.kafka.drain()
        assert len(second.partitions) == 2


def test_what_was_finished_out_of_order_survives_a_crash(scene):
    """Commits carry which offsets past the lowest unfinished one are finished: only the others run again."""
    made = scene(lanes=8)
    calls = []

    async def handle(record):
        calls.append(record.key)
        await asyncio.sleep(3600 if record.key == b"slow" and calls.count(b"slow") == 1 else 0)

    made.app = App("gaps")
    made.app.handler(ORDERS, lanes=8)(handle)
    with made.run(1):
        for key in ("slow", "a", "b", "c"):
            made.kafka.produce(ORDERS.message(b"", key=key, partition=0))
        made.kafka.advance("1s")
        assert made.kafka.committed(made.app, ORDERS)[0] == 0
        made.kafka.crash()
        made.kafka.finish()
    assert sorted(calls) == [b"a", b"b", b"c", b"slow", b"slow"]
    assert made.kafka.committed(made.app, ORDERS)[0] == 4


def test_retries_follow_their_partitions(scene):
    """What waits on a retry topic runs at the next owner when it is due, and blocks its key there too."""
    made, calls = scene(), []

    async def handle(record):
        calls.append((record.key, record.value, record.attempt))
        if record.value == b"0" and record.attempt == 1:
            raise ConnectionError

    made.app = App("ladder")
    made.app.handler(ORDERS, lanes=4, retry=Retry.steps("10s", mode="ordered"))(handle)
    with made.run(2):
        made.produce(1)
        made.kafka.advance("1s")
        made.kafka.rebalance(made.app)
        made.kafka.advance("1s")
        for key in KEYS:
            made.kafka.produce(ORDERS.message(b"1", key=key))
        made.kafka.finish()
    for key in KEYS:
        own = [(value, attempt) for found, value, attempt in calls if found == key.encode()]
        assert own == [(b"0", 1), (b"0", 2), (b"1", 1)]


def test_what_blocks_a_record_is_said_in_virtual_time(scene):
    """`health` and `why` of a member judge by the fake clock, as an engine does by the real one."""
    made = scene()

    async def handle(record):
        await asyncio.sleep(3600)

    made.app = App("stuck")
    made.app.handler(ORDERS)(handle)
    with made.run(1):
        [member] = made.members()
        assert member.health().has("stopped")
        made.kafka.drain()
        assert (member.health().level, member.why()) == (Level.OK, [])
        made.kafka.produce(ORDERS.message(b"", key="k"))
        made.kafka.advance("40s")
        [stall] = member.why("30s")
        assert (stall.code, stall.key, stall.age.total_seconds()) == ("running", b"k", 40.0)
        assert [found.place for found in made.app.why()] == [stall.place]
        assert member.health().level is Level.WARNING
        assert member.health().has("stalled")
        made.kafka.finish()
        assert member.health().is_ok
        assert member.why() == []


def test_an_open_breaker_and_a_topic_that_cannot_be_written_are_said(scene):
    """As on the other engines."""
    made = scene()

    def handle(record):
        if record.value == b"bad":
            raise ConnectionError("no courier")
        return Topic("receipts").message(b"paid")

    made.app = App("trouble")
    made.app.handler(ORDERS, breaker=Breaker(1, "1h", "1h"))(handle)
    with made.run(1):
        [member] = made.members()
        made.kafka.fail_writes("receipts")
        made.kafka.produce(ORDERS.message(b"", key="k", partition=0))
        made.kafka.advance("30s")
        assert member.health().has("cannot-write")
        made.kafka.produce(ORDERS.message(b"bad", key="other", partition=1))
        made.kafka.advance("30s")
        assert member.health().has("breaker-open")
        assert {stall.code for stall in member.why()} == {"copy", "breaker"}


def test_a_pause_holds_a_member_and_no_other(scene):
    """It stays in the group and begins nothing; the state says when nothing runs any more."""
    made = scene()
    with made.run(2):
        made.kafka.drain()
        first, second = made.members()
        first.pause()
        made.produce(1)
        made.kafka.advance("10s")
        assert (str(first.state.value), str(second.state.value)) == ("paused", "consuming")
        partition_of = {record.key: record.partition for record in made.kafka.records(ORDERS)}
        held = {partition for _, partition in first.partitions}
        assert {partition_of[key] for key, _ in made.calls} == set(range(4)) - held
        first.resume()
        made.finish(1)
        assert first.state.value == "consuming"


def test_subscribers_hear_of_partitions_and_commits(scene):
    """As on the direct engine."""
    made, told = scene(), []
    made.app.on(PartitionsAssigned, PartitionsRevoked, OffsetsCommitted)(told.append)
    with made.run(1):
        made.produce(1)
        made.kafka.finish()
    kinds = [type(event) for event in told]
    assert kinds[0] is PartitionsAssigned
    assert kinds[-1] is PartitionsRevoked
    assert told[0].partitions == (0, 1, 2, 3)
    assert OffsetsCommitted in kinds


class _NoCheck(Counter):
    """Takes any number of calls of a key: a member that died or was expelled goes on with its own."""

    def __getitem__(self, key):
        return 0
