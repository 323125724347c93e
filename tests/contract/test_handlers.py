"""What handlers take and return."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from laneway import Json, Text
from support.contract import Row, values_by_key

if TYPE_CHECKING:
    from support.contract import World


def test_a_handler_returns_no_message_one_or_several(world: World) -> None:
    """Every message returned is on its topic with key, value and headers when the run is over."""
    app, topic, out = world.app(), world.topic(value=Json(int)), world.topic(3, value=Json(dict))

    @app.handler(topic, lanes=4)
    def fan_out(record):
        made = [
            out.message(
                {"n": record.value, "copy": copy}, key=record.key, headers=[("from", record.key), ("none", None)]
            )
            for copy in range(record.value % 3)
        ]
        return made[0] if len(made) == 1 else made or None

    world.produce(topic, [Row(b"k%d" % (n % 7), b"%d" % n) for n in range(60)])
    tally = world.run(app)
    records = world.output(out)
    assert Counter((record.value["n"], record.value["copy"]) for record in records) == Counter(
        (n, copy) for n in range(60) for copy in range(n % 3)
    )
    assert all(record.key == b"k%d" % (record.value["n"] % 7) for record in records)
    assert {tuple(record.headers) for record in records} == {(("from", b"k%d" % k), ("none", None)) for k in range(7)}
    assert (tally.handled, tally.produced) == (60, 60)


@pytest.mark.engine_neutral
def test_messages_of_an_async_handler_keep_the_order_of_their_key(world: World) -> None:
    """What an async handler returns for a key is written in the order of that key's records."""
    app, topic, out = world.app(), world.topic(value=Text()), world.topic(value=Text())

    @app.handler(topic, lanes=8)
    async def forward(record):
        await asyncio.sleep(0.001 * (record.offset % 2))
        return out.message(record.value.upper(), key=record.key)

    world.produce(topic, [Row(b"k%d" % (n % 5), b"v%03d" % n) for n in range(100)])
    world.run(app)
    assert values_by_key(world.output(out)) == {b"k%d" % k: [f"V{n:03d}" for n in range(k, 100, 5)] for k in range(5)}


@pytest.mark.engine_neutral
def test_messages_with_an_empty_key_stay_together(world: World) -> None:
    """An empty key is a key for what goes out too: its messages share a partition, those without a key do not."""
    app, topic, out = world.app(), world.topic(1), world.topic(4)

    @app.handler(topic)
    def forward(record):
        return [out.message(record.value, key=""), out.message(record.value)]

    world.produce(topic, [Row(b"k", b"%d" % n) for n in range(40)])
    world.run(app)
    records = world.output(out)
    assert [record.value for record in records if record.key == b""] == [b"%d" % n for n in range(40)]
    assert len({record.partition for record in records if record.key == b""}) == 1


@pytest.mark.engine_neutral
def test_a_tombstone_is_not_an_empty_value(world: World) -> None:
    """A null value reaches the handler as None, past the codec, and leaves as a null; an empty one stays empty."""
    app, topic, out = world.app(), world.topic(1, value=Text()), world.topic(1)

    @app.handler(topic)
    def relay(record):
        text = f"{record.value!r} {record.is_tombstone}"
        return [out.message(text.encode(), key="seen"), out.message(record.raw, key="relayed")]

    world.produce(topic, [Row(b"k", None), Row(b"k", b""), Row(b"k", b"x")])
    world.run(app)
    assert values_by_key(world.output(out)) == {
        b"seen": [b"None True", b"'' False", b"'x' False"],
        b"relayed": [None, b"", b"x"],
    }


def test_a_record_carries_its_place_time_and_headers(world: World) -> None:
    """Topic, partition, offset, timestamp, duplicate, binary and null headers reach the handler as they were sent."""
    app, topic, out = world.app(), world.topic(2), world.topic(1, value=Json(list))
    headers = [("a", b"\xff\x00"), ("a", b""), ("b", None)]

    @app.handler(topic)
    def tell(record):
        seen = [[name, None if value is None else value.hex()] for name, value in record.headers]
        return out.message([record.topic, record.partition, record.offset, record.timestamp, seen, record.attempt])

    world.produce(topic, [Row(b"k", b"v", headers, 1, 1_700_000_000_123)])
    world.run(app)
    (record,) = world.output(out)
    assert record.value == [topic.name, 1, 0, 1_700_000_000_123, [["a", "ff00"], ["a", ""], ["b", None]], 1]


def test_two_handlers_of_one_topic_each_get_every_record(world: World) -> None:
    """Each handler of an app sees each record once, and offsets are committed when both are done."""
    app, topic, calls = world.app(), world.topic(2), world.recorder

    @app.handler(topic, lanes=2)
    def one(record):
        with calls.call(record, by="one"):
            pass

    @app.handler(topic, lanes=2)
    async def other(record):
        with calls.call(record, by="other"):
            pass

    world.produce(topic, [Row(b"k%d" % n) for n in range(30)])
    tally = world.run(app)
    seen = Counter(call.facts["by"] for call in calls.calls())
    assert seen == {"one": 30, "other": 30}
    assert tally.handled == 60
    assert world.committed(app, topic) == world.ends(topic)


def test_hooks_run_once_per_process(world: World) -> None:
    """Whatever the number of topics: setup before the first record, cleanup after the last, when the process ends."""
    app, topics, calls = world.app(), [world.topic(2), world.topic(2)], world.recorder

    @app.setup
    def prepare():
        calls.note("sync setup")

    @app.setup
    async def prepare_more():
        await asyncio.sleep(0.001)
        calls.note("async setup")

    @app.cleanup
    def tidy():
        calls.note("sync cleanup")

    @app.cleanup
    async def tidy_more():
        await asyncio.sleep(0.001)
        calls.note("async cleanup")

    @app.handler(topics[0], lanes=2)
    def first(record):
        with calls.call(record):
            pass

    @app.handler(topics[1], lanes=2)
    def second(record):
        with calls.call(record):
            pass

    # On Spark processes outlive a run, so after several runs each has most likely seen both topics.
    for _ in range(4 if world.keeps_processes else 1):
        for topic in topics:
            world.produce(topic, [Row(b"k%d" % n) for n in range(10)])
        assert world.run(app).handled == 20
    notes, made = calls.notes(), calls.calls()
    for pid in {call.pid for call in made}:
        own = [(place, text) for place, owner, text in notes if owner == pid]
        before = [text for place, text in own if place < min(call.began for call in made if call.pid == pid)]
        after = [text for place, text in own if place > max(call.ended for call in made if call.pid == pid)]
        assert before == ["sync setup", "async setup"]
        # Spark keeps a process for the session, but ends one that has been idle for a minute.
        assert after == ["sync cleanup", "async cleanup"] or (world.keeps_processes and after == [])
        assert len(own) == len(before) + len(after)


def test_a_handler_may_end_a_program_that_it_started(world: World) -> None:
    """The signals that laneway keeps from its own workers reach other programs."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=2)
    def handle(record):
        with subprocess.Popen(["sleep", "600"]) as program:
            program.terminate()
            try:
                code = program.wait(20)
            except subprocess.TimeoutExpired:
                program.kill()
                raise
        with calls.call(record, code=code):
            pass

    world.produce(topic, [Row(b"k")])
    assert world.run(app).handled == 1
    assert [call.facts["code"] for call in calls.calls()] == [-signal.SIGTERM]
