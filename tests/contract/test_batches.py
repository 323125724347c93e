"""Batch and columnar handlers."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from laneway import Json, Retry
from support.contract import Row, values_by_key
from support.contract_recorder import overlaps

if TYPE_CHECKING:
    from support.contract import World
    from support.contract_recorder import Call


@pytest.mark.engine_neutral("batch")
@pytest.mark.parametrize("kind", ["batch", "unique"])
def test_how_long_a_batch_that_is_not_full_waits(world: World, kind: str) -> None:
    """On the direct engine for `within`; a Spark task and the fake wait only for what is already in the topic."""
    app, topic, calls = world.app(), world.topic(1), world.recorder
    declare = app.batch_handler if kind == "batch" else app.unique_handler

    @declare(topic, size=10, within="1s" if world.waits_for_more else "1h")
    def store(batch):
        with calls.call(*batch.records):
            pass

    world.produce(topic, [Row(b"k%d" % number) for number in range(3)])
    _, began = world.now()
    tally = world.run(app)
    (call,) = calls.calls()
    assert (tally.handled, len(call.offsets)) == (3, 3)
    if world.waits_for_more:
        assert call.start - began >= 1.0
    else:
        assert call.start - began < 60.0


@pytest.mark.engine_neutral("async")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_batch_keeps_size_and_key_order(world: World, kind: str) -> None:
    """Batches hold at most `size` records, several of a key in order, and a key is never in two batches at once."""
    app, topic, calls = world.app(), world.topic(2), world.recorder

    if kind == "sync":

        @app.batch_handler(topic, size=10, within="2s", lanes=3)
        def store(batch):
            with calls.call(*batch.records):
                time.sleep(0.002)
    else:

        @app.batch_handler(topic, size=10, within="2s", lanes=3)
        async def store(batch):
            with calls.call(*batch.records):
                await asyncio.sleep(0.002)

    world.produce(topic, [Row(b"k%d" % (n % 6), b"%d" % n) for n in range(205)])
    tally = world.run(app)
    made = calls.calls()
    assert tally.handled == 205
    assert max(len(call.offsets) for call in made) == 10
    assert overlaps(made, lambda call: call.keys) == []
    by_key: dict[object, list[int]] = {}
    for call in made:
        for key, offset in zip(call.keys, call.offsets, strict=True):
            by_key.setdefault(key, []).append(offset)
    assert sum(map(len, by_key.values())) == 205
    assert all(offsets == sorted(offsets) for offsets in by_key.values())
    assert any(Counter(call.keys).most_common(1)[0][1] > 1 for call in made)


@pytest.mark.engine_neutral
def test_a_batch_that_fails_is_repeated_and_then_parked_member_by_member(world: World) -> None:
    """An exception fails the whole batch: all members are tried again together, then each is parked."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.batch_handler(topic, size=5, within="2s", retry=Retry(attempts=2, backoff="20ms"))
    def store(batch):
        with calls.call(*batch.records):
            raise OSError("disk full")

    world.produce(topic, [Row(b"k%d" % (n % 3), b"%d" % n) for n in range(5)])
    tally = world.run(app)
    assert [sorted(call.offsets) for call in calls.calls()] == [[0, 1, 2, 3, 4]] * 2
    assert [set(call.attempts) for call in calls.calls()] == [{1}, {2}]
    assert sorted(record.raw for record in world.errors(app)) == [b"0", b"1", b"2", b"3", b"4"]
    assert (tally.handled, tally.parked, tally.retried) == (0, 5, 5)


@pytest.mark.engine_neutral
def test_an_undecodable_member_is_parked_alone(world: World) -> None:
    """A member of a batch that cannot be decoded goes to the error topic while the others are handled."""
    app, topic, out = world.app(), world.topic(1, value=Json(int)), world.topic(1, value=Json(list))

    @app.batch_handler(topic, size=10, within="2s")
    def store(batch):
        return out.message(batch.values)

    world.produce(topic, [Row(b"k", b"1"), Row(b"k", b"{"), Row(b"k", b"3"), Row(b"other", b"4")])
    tally = world.run(app)
    assert sorted(value for record in world.output(out) for value in record.value) == [1, 3, 4]
    assert [record.raw for record in world.errors(app)] == [b"{"]
    assert (tally.handled, tally.parked) == (3, 1)


@pytest.mark.engine_neutral
def test_an_undecodable_member_is_parked_while_the_others_are_tried_again(world: World) -> None:
    """It does not wait for their attempts and uses none; nor do they lose one by it."""
    app, topic, calls = world.app(), world.topic(1, value=Json(int)), world.recorder

    @app.batch_handler(topic, size=10, within="2s", retry=Retry(attempts=3, backoff="20ms"))
    def store(batch):
        with calls.call(*batch.records):
            if batch.records[0].attempt < 3:
                raise OSError("disk full")

    world.produce(topic, [Row(b"k", b"1"), Row(b"k", b"{"), Row(b"k", b"3"), Row(b"other", b"4")])
    tally = world.run(app)
    assert [set(call.attempts) for call in calls.calls() if b"k" in call.keys] == [{1}, {2}, {3}]
    assert all(1 not in call.offsets for call in calls.calls())
    (parked,) = world.errors(app)
    assert (parked.raw, parked.header("laneway-attempts")) == (b"{", b"1")
    assert (tally.handled, tally.parked, tally.retried) == (3, 1, 6)
    assert world.committed(app, topic) == world.ends(topic)


@pytest.mark.engine_neutral("sync")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_marked_members_alone_are_tried_again_parked_or_skipped(world: World, kind: str) -> None:
    """All others are finished by the one call they were in, and a key's marked members come before its later ones."""
    app, topic, out, calls = world.app(), world.topic(1), world.topic(1, value=Json(list)), world.recorder

    def mark(batch):
        with calls.call(*batch.records):
            handled = []
            for record in batch:
                what = record.value.decode()
                if what == "reject":
                    batch.reject(record, "negative total")
                elif what == "skip":
                    batch.skip(record)
                elif what == "once" and record.attempt == 1:
                    batch.retry(record, "busy")
                elif what == "always":
                    batch.retry(record, "never there", after="30ms")
                else:
                    handled.append(record.offset)
            return out.message(handled) if handled else None

    async def mark_async(batch):
        await asyncio.sleep(0.001)
        return mark(batch)

    retry = Retry(attempts=3, backoff="20ms")
    app.batch_handler(topic, size=6, within="2s", retry=retry)(mark if kind == "sync" else mark_async)
    values = [b"ok", b"once", b"reject", b"always", b"ok", b"skip", b"ok", b"once", b"ok"]
    later = [b"ok", b"ok", b"ok"]
    world.produce(topic, [Row(b"k%d" % (n % 3), value) for n, value in enumerate(values + later)])
    tally = world.run(app)

    tries: Counter[int] = Counter(offset for call in calls.calls() for offset in call.offsets)
    assert tries == {**dict.fromkeys(range(12), 1), 1: 2, 7: 2, 3: 3}
    handled = sorted(offset for record in world.output(out) for offset in record.value)
    assert handled == [0, 1, 4, 6, 7, 8, 9, 10, 11]
    assert (tally.handled, tally.parked, tally.skipped, tally.retried) == (9, 2, 1, 4)
    assert overlaps(calls.calls(), lambda call: call.keys) == []
    for key in (b"k0", b"k1", b"k2"):
        waiting: list[int] = []
        for call in calls.calls():
            mine = [offset for offset, other in zip(call.offsets, call.keys, strict=True) if other == key]
            assert mine == sorted(mine)
            # Those that are to be tried again are the first of their key.
            assert mine[: len(waiting)] == waiting[: len(mine)]
            tries.subtract(mine)
            waiting = [offset for offset in sorted({*waiting, *mine}) if tries[offset]]
    assert world.committed(app, topic) == world.ends(topic)


@pytest.mark.engine_neutral
def test_copies_of_marked_members_tell_why_and_are_exact(world: World) -> None:
    """Each carries its own reason and attempts, and the bytes and headers it came with."""
    app, topic = world.app(), world.topic(1)

    @app.batch_handler(topic, size=10, within="2s", retry=Retry(attempts=2, backoff="10ms"))
    def store(batch):
        for record in batch:
            if record.header("do") == b"reject":
                batch.reject(record, f"refused {record.offset}")
            elif record.header("do") == b"retry":
                batch.retry(record, f"tried {record.offset}")

    rows = [
        Row(b"k", b"\x80", [("do", b"reject"), ("h", None)], 0, 1_700_000_000_001),
        Row(b"k", b"fine", (), 0, 1_700_000_000_002),
        Row(b"k", None, [("do", b"retry"), ("h", b"\xff"), ("h", b"")], 0, 1_700_000_000_003),
        Row(None, b"", [("do", b"retry")], 0, 1_700_000_000_004),
    ]
    world.produce(topic, rows)
    tally = world.run(app)
    parked = sorted(world.errors(app), key=lambda record: record.timestamp)
    failed = [rows[0], rows[2], rows[3]]
    assert [(p.key, p.raw, p.timestamp) for p in parked] == [(row.key, row.value, row.timestamp) for row in failed]
    assert [list(p.headers[: len(row.headers)]) for p, row in zip(parked, failed, strict=True)] == [
        list(row.headers) for row in failed
    ]
    told = [
        (p.header("laneway-error-type"), p.header("laneway-error-message"), p.header("laneway-attempts"))
        for p in parked
    ]
    assert told == [
        (b"laneway.errors.Reject", b"refused 0", b"1"),
        (b"laneway.errors.RetryAfter", b"tried 2", b"2"),
        (b"laneway.errors.RetryAfter", b"tried 3", b"2"),
    ]
    assert (tally.handled, tally.parked, tally.retried) == (1, 3, 2)
    assert world.committed(app, topic) == world.ends(topic)


@pytest.mark.engine_neutral
def test_marks_of_a_call_that_raises_do_not_count(world: World) -> None:
    """The whole batch is tried again, also what was marked as skipped or rejected."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.batch_handler(topic, size=3, within="2s", retry=Retry(attempts=2, backoff="10ms"))
    def store(batch):
        with calls.call(*batch.records):
            if batch.records[0].attempt == 1:
                batch.skip(batch.records[0])
                batch.reject(batch.records[1])
                raise OSError("disk full")

    world.produce(topic, [Row(b"k", b"%d" % n) for n in range(3)])
    tally = world.run(app)
    assert [call.offsets for call in calls.calls()] == [[0, 1, 2]] * 2
    assert (tally.handled, tally.skipped, tally.parked, tally.retried) == (3, 0, 0, 3)
    assert world.errors(app) == []


def test_a_columnar_handler_gets_the_bytes_as_they_are(world: World) -> None:
    """Tables have the seven columns, byte-exact keys, values and headers, nulls apart from empties, and hold order."""
    app, topic, calls = world.app(), world.topic(2), world.recorder

    @app.columnar_handler(topic, size=4)
    def load(table):
        rows = table.to_pylist()
        seen = [
            [
                row["topic"],
                row["partition"],
                row["offset"],
                row["timestamp"],
                None if row["key"] is None else row["key"].hex(),
                None if row["value"] is None else row["value"].hex(),
                [[h["name"], None if h["value"] is None else h["value"].hex()] for h in row["headers"] or []],
            ]
            for row in rows
        ]
        with calls.call(columns=table.column_names, rows=seen):
            pass

    now = 1_700_000_000_000
    rows = [
        Row(b"\xff\x00", b"\x80", [("a", b"\xff"), ("a", None)], 0, now),
        Row(None, None, (), 0, now + 1),
        Row(b"", b"", [("e", b"")], 0, now + 2),
        *[Row(b"k", b"%d" % n, (), 1, now) for n in range(8)],
    ]
    world.produce(topic, rows)
    tally = world.run(app)
    made = calls.calls()
    columns = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert all(call.facts["columns"] == columns for call in made)
    assert max(len(call.facts["rows"]) for call in made) <= 4
    seen = [row for call in made for row in call.facts["rows"]]
    assert [row for row in seen if row[1] == 0] == [
        [topic.name, 0, 0, now, "ff00", "80", [["a", "ff"], ["a", None]]],
        [topic.name, 0, 1, now + 1, None, None, []],
        [topic.name, 0, 2, now + 2, "", "", [["e", ""]]],
    ]
    assert [row[2] for row in seen if row[1] == 1] == list(range(8))
    assert tally.handled == 11
    assert world.committed(app, topic) == world.ends(topic)


def test_a_columnar_handler_that_fails_parks_its_rows(world: World) -> None:
    """A table that fails is tried again, then parked row by row with keys and values as they were."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.columnar_handler(topic, size=10, retry=Retry(attempts=2, backoff="10ms"))
    def load(table):
        with calls.call():
            raise OSError("warehouse away")

    world.produce(topic, [Row(b"k", b"1", [("h", b"\xff")]), Row(b"k", None), Row(None, b"")])
    tally = world.run(app)
    assert (tally.parked, tally.retried, tally.handled) == (3, 1, 0)
    parked = world.errors(app)
    assert values_by_key(parked) == {b"k": [b"1", None], None: [b""]}
    assert {record.header("laneway-attempts") for record in parked} == {b"2"}
    assert world.committed(app, topic) == world.ends(topic)


def _check_key_order(made: list[Call]) -> None:
    """Whenever a record is called, each earlier one of its key is in the same call or has had its last call."""
    keys = {offset: key for call in made for offset, key in zip(call.offsets, call.keys, strict=True)}
    last = {offset: call.began for call in made for offset in call.offsets}
    for call in made:
        for offset, key in zip(call.offsets, call.keys, strict=True):
            earlier = [other for other in keys if other < offset and keys[other] == key]
            assert [other for other in earlier if other not in call.offsets and last[other] > call.began] == []
            mine = [other for other in call.offsets if keys[other] == key]
            assert mine == sorted(mine)


@pytest.mark.engine_neutral
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("bad", [{337}, {0, 250, 499}])
def test_bad_records_do_not_drag_a_bisected_batch_along(world: World, kind: str, bad: set[int]) -> None:
    """Of 500 records all but the bad ones are handled, for about 2·log2(500) more calls for each of these."""
    app, topic, out, calls = world.app(), world.topic(1), world.topic(1, value=Json(list)), world.recorder

    def store(batch):
        with calls.call(*batch.records):
            if bad & {record.offset for record in batch}:
                raise ValueError("bad record")
            return out.message([record.offset for record in batch])

    async def store_async(batch):
        await asyncio.sleep(0.001)
        return store(batch)

    # With this many lanes Spark's first batch takes all 500 at once.
    handler = app.batch_handler(topic, size=500, within="20s", lanes=8, bisect=True)
    handler(store if kind == "sync" else store_async)
    world.produce(topic, [Row(b"k%d" % n, b"%d" % n) for n in range(500)])
    tally = world.run(app)

    assert sorted(offset for record in world.output(out) for offset in record.value) == sorted({*range(500)} - bad)
    assert sorted(int(record.raw or b"") for record in world.errors(app)) == sorted(bad)
    assert {record.header("laneway-error-message") for record in world.errors(app)} == {b"bad record"}
    assert (tally.handled, tally.parked, tally.retried) == (500 - len(bad), len(bad), 0)
    made = calls.calls()
    assert tally.calls == len(made) <= 1 + 2 * 9 * len(bad)
    assert len(made[0].offsets) == 500
    assert all([offset] in [call.offsets for call in made] for offset in bad)
    assert world.committed(app, topic) == world.ends(topic)


@pytest.mark.engine_neutral
@pytest.mark.parametrize("attempts", [1, 2])
def test_a_bisected_batch_keeps_the_order_of_its_keys(world: World, attempts: int) -> None:
    """Once a record has failed, later ones of its key wait until it has had its verdict, also through a retry."""
    app, topic, calls = world.app(), world.topic(2), world.recorder

    @app.batch_handler(topic, size=40, within="2s", lanes=2, bisect=True, retry=Retry(attempts, backoff="20ms"))
    def store(batch):
        with calls.call(*batch.records):
            for record in batch:
                if record.value in (b"bad", b"once") and record.attempt <= (1 if record.value == b"once" else 9):
                    raise ValueError("bad record")

    values = {7: b"bad", 23: b"once", 24: b"bad", 60: b"bad", 61: b"once"}
    # Both partitions have the same records; the offsets tell them apart.
    rows = [Row(b"%d k%d" % (part, n % 5), values.get(n, b"fine"), (), part) for n in range(100) for part in (0, 1)]
    world.produce(topic, rows)
    tally = world.run(app)

    for partition in (0, 1):
        _check_key_order([_only(call, partition) for call in calls.calls()])
    once_is_parked = attempts == 1
    parked = 2 * (5 if once_is_parked else 3)
    assert (tally.handled, tally.parked) == (200 - parked, parked)
    assert tally.retried == (0 if once_is_parked else 2 * 5)
    assert Counter(record.raw for record in world.errors(app)) == Counter(
        {b"bad": 6, **({b"once": 4} if once_is_parked else {})}
    )
    assert world.committed(app, topic) == world.ends(topic)


def _only(call: Call, partition: int) -> Call:
    """What of a call is of one partition."""
    places = [place for place, found in enumerate(call.partitions) if found == partition]
    offsets, keys = [call.offsets[place] for place in places], [call.keys[place] for place in places]
    return replace(call, offsets=offsets, keys=keys)


@pytest.mark.engine_neutral
def test_a_bisected_unique_batch_keeps_older_records_with_the_newest(world: World) -> None:
    """Only the newest of each key is called and parked; what it superseded is finished with it."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.unique_handler(topic, size=100, within="2s", bisect=True)
    def keep(batch):
        with calls.call(*batch.records):
            if any(record.key == b"k3" for record in batch):
                raise ValueError("bad record")

    world.produce(topic, [Row(b"k%d" % (n % 8), b"%d" % n) for n in range(24)])
    tally = world.run(app)

    assert [record.raw for record in world.errors(app)] == [b"19"]
    assert (tally.handled, tally.parked, tally.superseded) == (7, 1, 16)
    assert len(calls.calls()) <= 1 + 2 * 3
    assert world.committed(app, topic) == world.ends(topic)
