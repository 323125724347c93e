"""Which records run side by side and which one after the other."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from laneway import Reject, Retry, Skip
from support.contract import Row
from support.contract_recorder import most_at_once, overlaps

if TYPE_CHECKING:
    from support.contract import World
    from support.contract_recorder import Call


def offsets_by(calls: list[Call], part: str) -> dict[object, list[int]]:
    """Offsets of each key or partition in the order in which their calls began."""
    found: dict[object, list[int]] = {}
    for call in calls:
        found.setdefault((call.partition, getattr(call, part)), []).append(call.offset)
    return found


def skewed(count: int) -> list[Row]:
    """Records of which one key has every third and forty others share the rest."""
    rng = random.Random(4)
    return [Row(b"hot" if n % 3 == 0 else f"k{rng.randrange(40)}".encode(), b"%d" % n) for n in range(count)]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_key_runs_in_order_and_never_twice_at_once(world: World, kind: str) -> None:
    """With many lanes and skewed keys the records of a key run in offset order without overlap, each once."""
    app, topic, calls = world.app(), world.topic(), world.recorder

    if kind == "sync":

        @app.handler(topic, lanes=16)
        def handle(record):
            with calls.call(record):
                time.sleep(0.001 * (record.offset % 3))
    else:

        @app.handler(topic, lanes=16)
        async def handle(record):
            with calls.call(record):
                await asyncio.sleep(0.001 * (record.offset % 3))

    world.produce(topic, skewed(400))
    tally = world.run(app)
    made = calls.calls()
    assert (tally.read, tally.handled) == (400, 400)
    assert Counter((call.partition, call.offset) for call in made).most_common(1)[0][1] == 1
    assert overlaps(made, lambda call: call.keys) == []
    assert all(offsets == sorted(offsets) for offsets in offsets_by(made, "key").values())


@pytest.mark.engine_neutral("async")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_large_backlog_keeps_order_through_failures(world: World, kind: str) -> None:
    """Thousands of fast records, some of which fail, are each finished once and in the order of their keys."""
    app, topic, calls = world.app(), world.topic(), world.recorder

    def work(record):
        number = int(record.value)
        with calls.call(record):
            if number % 97 == 0 and record.attempt == 1:
                raise ConnectionError
            if number % 101 == 0:
                raise Reject
            if number % 103 == 0:
                raise Skip

    async def work_async(record):
        work(record)

    app.handler(topic, lanes=32, retry=Retry(attempts=2, backoff="5ms"))(work if kind == "sync" else work_async)
    world.produce(topic, [Row(b"k%d" % (n * n % 211), b"%d" % n) for n in range(6000)])
    tally = world.run(app)
    retried, parked = len(range(0, 6000, 97)), len(range(0, 6000, 101))
    skipped = sum(1 for n in range(0, 6000, 103) if n % 101)
    assert (tally.read, tally.retried, tally.parked, tally.skipped) == (6000, retried, parked, skipped)
    assert tally.finished == 6000
    made = calls.calls()
    last = [call for call in made if call.error != "ConnectionError"]
    assert (len(made), len(last)) == (6000 + retried, 6000)
    assert overlaps(made, lambda call: call.keys) == []
    assert all(offsets == sorted(offsets) for offsets in offsets_by(made, "key").values())
    assert all(len(set(offsets)) == len(offsets) for offsets in offsets_by(last, "key").values())
    assert len(world.errors(app)) == parked
    assert world.committed(app, topic) == world.ends(topic)


def test_more_keys_are_in_work_than_there_are_partitions(world: World) -> None:
    """Two partitions with 20 lanes each keep well over two calls of an async handler under way at once."""
    app, topic, calls = world.app(), world.topic(2), world.recorder

    @app.handler(topic, lanes=20)
    async def handle(record):
        with calls.call(record):
            await asyncio.sleep(0.05)

    world.produce(topic, [Row(b"k%d" % n) for n in range(200)])
    world.run(app)
    assert 20 < most_at_once(calls.calls()) <= 40


# The fake calls sync handlers one at a time.
side_by_side = pytest.mark.parametrize(
    "world",
    [
        pytest.param("direct", marks=[pytest.mark.broker]),
        pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.broker]),
    ],
    indirect=True,
)


@side_by_side
def test_more_sync_keys_are_in_work_than_there_are_partitions(world: World) -> None:
    """Lanes of a sync handler that waits are threads, so more keys are in work than there are partitions."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=12)
    def handle(record):
        with calls.call(record):
            time.sleep(0.03)

    world.produce(topic, [Row(b"k%d" % n) for n in range(96)])
    world.run(app)
    assert 6 < most_at_once(calls.calls()) <= 12


@pytest.mark.engine_neutral("sync")
@side_by_side
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_call_that_hangs_blocks_only_its_key(world: World, kind: str) -> None:
    """Nor when the handler is so fast that a lane has hundreds of keys. It hangs until nothing moves any more."""
    app, topic, calls, seen = world.app(), world.topic(1), world.recorder, []

    def look(record):
        if record.key == b"k300":
            last = max(seen, default=0)
            left = [n for n in range(301, last) if n not in seen and n != 1800]  # that one is of the same key
            with calls.call(record, last=last, left=left[:20]):
                pass
        seen.append(record.offset)

    def goes_on(before):
        return len(seen) > before

    if kind == "sync":

        @app.handler(topic, lanes=4)
        def handle(record):
            before = -1
            while record.offset == 300 and goes_on(before):
                before = len(seen)
                time.sleep(3)
            look(record)

    else:

        @app.handler(topic, lanes=4)
        async def handle_async(record):
            before = -1
            while record.offset == 300 and goes_on(before):
                before = len(seen)
                await asyncio.sleep(3)
            look(record)

    world.produce(topic, [Row(b"k%d" % (n % 1500)) for n in range(3000)])
    world.run(app)
    hung, later = calls.calls()
    assert (hung.offset, later.offset) == (300, 1800)
    # A batch of Spark may hold fewer than there are, and an earlier one may have run in another process.
    assert hung.facts["last"] > 400
    assert hung.facts["left"] == []
    assert world.committed(app, topic) == world.ends(topic)


def test_slow_records_run_side_by_side_from_the_first_on(world: World) -> None:
    """As many slow records as there are lanes all begin before the first one ends."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=10)
    async def handle(record):
        with calls.call(record):
            await asyncio.sleep(0.3)

    world.produce(topic, [Row(b"k%d" % n) for n in range(10)])
    world.run(app)
    assert most_at_once(calls.calls()) == 10


@pytest.mark.engine_neutral("0")
@pytest.mark.parametrize("lanes", [0, 1])
def test_core_mode_works_through_a_partition_one_record_at_a_time(world: World, lanes: int) -> None:
    """With 0 lanes as with 1 a partition has one record in work, in offset order, while partitions run side by side."""
    app, topic, calls = world.app(), world.topic(3), world.recorder

    @app.handler(topic, lanes=lanes)
    async def handle(record):
        with calls.call(record):
            await asyncio.sleep(0.005)

    world.produce(topic, [Row(b"k%d" % n, b"", (), n % 3) for n in range(60)])
    world.run(app)
    made = calls.calls()
    assert overlaps(made, lambda call: call.partitions) == []
    assert all(offsets == list(range(20)) for offsets in offsets_by(made, "partition").values())
    assert 2 <= most_at_once(made) <= 3


@pytest.mark.engine_neutral
def test_partition_order_holds_whatever_the_keys(world: World) -> None:
    """With order="partition" many lanes do not let two records of a partition overlap."""
    app, topic, calls = world.app(), world.topic(2), world.recorder

    @app.handler(topic, lanes=8, order="partition")
    async def handle(record):
        with calls.call(record):
            await asyncio.sleep(0.002)

    world.produce(topic, [Row(b"k%d" % n, b"", (), n % 2) for n in range(40)])
    world.run(app)
    made = calls.calls()
    assert overlaps(made, lambda call: call.partitions) == []
    assert all(offsets == list(range(20)) for offsets in offsets_by(made, "partition").values())


@pytest.mark.engine_neutral
def test_without_order_one_key_uses_all_lanes(world: World) -> None:
    """With order="none" records of one key are in work at the same time."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=10, order="none")
    async def handle(record):
        with calls.call(record):
            await asyncio.sleep(0.03)

    world.produce(topic, [Row(b"same") for _ in range(60)])
    tally = world.run(app)
    made = calls.calls()
    assert tally.handled == 60
    assert overlaps(made, lambda call: call.keys) != []
    assert 5 < most_at_once(made) <= 10


@pytest.mark.engine_neutral
def test_no_key_has_no_order_and_an_empty_key_is_a_key(world: World) -> None:
    """Records without a key spread over the lanes; those with an empty key run one after the other."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=10)
    async def handle(record):
        with calls.call(record):
            await asyncio.sleep(0.02)

    world.produce(topic, [Row(None if n % 2 else b"", b"", (), 0) for n in range(80)])
    world.run(app)
    made = calls.calls()
    empty = [call for call in made if call.key == b""]
    null = [call for call in made if call.key is None]
    assert (len(empty), len(null)) == (40, 40)
    assert overlaps(empty, lambda call: call.keys) == []
    assert [call.offset for call in empty] == sorted(call.offset for call in empty)
    assert most_at_once(null) > 4


def test_lanes_are_a_pool_unless_they_are_strict(world: World) -> None:
    """A partition with all the work borrows the lanes of the idle ones, and with strict lanes it does not."""
    pooled, strict, topic, calls = world.app(), world.app(), world.topic(4), world.recorder

    @pooled.handler(topic, lanes=3)
    async def borrow(record):
        with calls.call(record, by="pooled"):
            await asyncio.sleep(0.03)

    @strict.handler(topic, lanes=3, strict=True)
    async def keep(record):
        with calls.call(record, by="strict"):
            await asyncio.sleep(0.03)

    world.produce(topic, [Row(b"k%d" % n, b"", (), 2) for n in range(72)])
    world.run(pooled)
    world.run(strict)
    made = calls.calls()
    assert 3 < most_at_once([call for call in made if call.facts["by"] == "pooled"]) <= 12
    assert most_at_once([call for call in made if call.facts["by"] == "strict"]) == 3
