"""What interceptors may change, and what they may not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from laneway import Json, Reject, Retry, Topic
from laneway.events import InterceptorFailed, RecordDropped, RecordSkipped
from support import context_handlers
from support.contract import Row

if TYPE_CHECKING:
    from support.contract import World


def test_the_handler_sees_the_changed_record_and_the_copy_is_the_original(world: World) -> None:
    """At each attempt; those for all handlers run first, whatever the order of declaration."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.consume_interceptor(of="handle")
    def second(record):
        return record.replaced(value=record.value + b"-own", headers=[*record.headers, ("by", b"own")])

    @app.consume_interceptor()
    def first(record):
        return record.replaced(value=record.value + b"-all", key=b"changed")

    @app.handler(topic, lanes=4, retry=Retry(attempts=2, backoff="10ms"))
    def handle(record):
        with calls.call(record, value=record.value.decode(), by=record.header("by").decode()):
            if record.value.startswith(b"bad"):
                raise ValueError("no")

    world.produce(topic, [Row(b"k", b"bad", [("own", b"1")]), Row(b"k", b"good")])
    tally = world.run(app)

    made = calls.calls()
    assert [(call.facts["value"], call.attempt, call.facts["by"]) for call in made] == [
        ("bad-all-own", 1, "own"),
        ("bad-all-own", 2, "own"),
        ("good-all-own", 1, "own"),
    ]
    assert {call.key for call in made} == {b"changed"}
    assert (tally.handled, tally.parked, tally.retried) == (1, 1, 1)
    (parked,) = world.errors(app)
    assert (parked.key, parked.raw, parked.headers[0], parked.header("by")) == (b"k", b"bad", ("own", b"1"), None)


@pytest.mark.engine_neutral
def test_a_dropped_record_is_skipped(world: World) -> None:
    """It is finished, its key goes on, and the reason names the interceptor; an async handler is no different."""
    app, topic, calls, told = world.app(), world.topic(1), world.recorder, []

    @app.handler(topic, lanes=4)
    async def handle(record):
        with calls.call(record):
            await asyncio.sleep(0)

    @app.consume_interceptor(of=handle)
    def only_even(record):
        return None if record.offset % 2 else record

    app.on(RecordSkipped)(told.append)
    world.produce(topic, [Row(b"k", b"") for _ in range(6)])
    tally = world.run(app)

    assert [call.offset for call in calls.calls()] == [0, 2, 4]
    assert (tally.handled, tally.skipped) == (3, 3)
    assert [(event.offset, event.error) for event in told] == [
        (offset, "dropped by consume interceptor 'only_even'") for offset in (1, 3, 5)
    ]
    assert world.committed(app, topic) == world.ends(topic)


@pytest.mark.engine_neutral
def test_an_interceptor_that_raises_sends_its_record_up_the_ladder(world: World) -> None:
    """The handler is not called with it; it is tried again, then parked, and no other record is affected."""
    app, topic, calls = world.app(), world.topic(1, value=Json(dict)), world.recorder

    @app.handler(topic, lanes=4, retry=Retry(attempts=3, backoff="10ms"))
    def handle(record):
        with calls.call(record, number=record.value["n"]):
            pass

    @app.consume_interceptor()
    def check(record):
        if record.value["n"] == 1 or (record.value["n"] == 2 and record.attempt < 3):
            raise LookupError("unknown customer")
        return record

    world.produce(topic, [Row(b"%d" % number, b'{"n": %d}' % number) for number in range(4)])
    tally = world.run(app)

    assert sorted(call.facts["number"] for call in calls.calls()) == [0, 2, 3]
    assert (tally.handled, tally.parked, tally.retried) == (3, 1, 4)
    (parked,) = world.errors(app)
    assert (parked.raw, parked.header("laneway-attempts")) == (b'{"n": 1}', b"3")
    assert parked.header("laneway-error-message") == b"unknown customer"


@pytest.mark.engine_neutral
def test_members_of_a_batch_stand_for_their_originals(world: World) -> None:
    """A rewritten member that is rejected parks the record behind it; dropped ones never are in the batch."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.batch_handler(topic, size=10, within="10ms")
    def handle(batch):
        with calls.call(*batch.records, values=[value.decode() for value in batch.values]):
            for record in batch:
                if record.value == b"BAD":
                    batch.reject(record, "bad")

    @app.consume_interceptor()
    def shout(record):
        return None if record.value == b"noise" else record.replaced(value=record.value.upper())

    world.produce(topic, [Row(b"k", b"a"), Row(b"k", b"noise"), Row(b"k", b"bad"), Row(b"l", b"b")])
    tally = world.run(app)

    values = [value for call in calls.calls() for value in call.facts["values"]]
    assert sorted(values) == ["A", "B", "BAD"]
    assert (tally.handled, tally.skipped, tally.parked) == (2, 1, 1)
    assert [record.raw for record in world.errors(app)] == [b"bad"]
    assert world.committed(app, topic) == world.ends(topic)


@pytest.mark.engine_neutral
def test_a_unique_handler_sees_the_changed_newest_record(world: World) -> None:
    """Only the newest of a key passes, and what it supersedes is finished with it."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.unique_handler(topic, size=10, within="10ms")
    def handle(batch):
        with calls.call(*batch.records, values=[value.decode() for value in batch.values]):
            pass

    @app.consume_interceptor()
    def shout(record):
        with calls.call(record, passed=True):
            return record.replaced(value=record.value.upper())

    world.produce(topic, [Row(b"k", b"old"), Row(b"k", b"new")])
    tally = world.run(app)

    assert [call.offset for call in calls.calls() if "passed" in call.facts] == [1]
    assert [call.facts["values"] for call in calls.calls() if "values" in call.facts] == [["NEW"]]
    assert (tally.handled, tally.superseded) == (1, 1)


@pytest.mark.engine_neutral
def test_messages_are_changed_or_dropped_before_they_are_encoded(world: World) -> None:
    """The record is handled when those that are left are safe, or when none is."""
    app, topic = world.app(), world.topic(1)
    out = world.topic(1, value=Json(dict))

    @app.handler(topic, lanes=1)
    def handle(record):
        return [out.message({"n": number}, key=record.key) for number in range(3)] if record.offset else []

    @app.produce_interceptor()
    def stamp(message):
        if message.value["n"] == 1:
            return None
        return message.replaced(value={**message.value, "by": "us"}, headers=[("v", b"2")])

    world.produce(topic, [Row(b"k", b""), Row(b"k", b"")])
    tally = world.run(app)

    assert [(record.value, list(record.headers)) for record in world.output(out)] == [
        ({"n": 0, "by": "us"}, [("v", b"2")]),
        ({"n": 2, "by": "us"}, [("v", b"2")]),
    ]
    assert (tally.handled, tally.produced) == (2, 2)


@pytest.mark.engine_neutral
def test_parked_copies_are_masked_or_dropped(world: World) -> None:
    """A header is added and the value hidden; a copy that is dropped finishes its record, which counts as dropped."""
    app, topic, told = world.app(), world.topic(1), []

    @app.handler(topic, lanes=4)
    def handle(record):
        if record.value != b"fine":
            raise Reject(f"because of {record.value.decode()}")

    @app.error_interceptor()
    def mask(message, record, error):
        if record.value == b"noise":
            return None
        return message.replaced(value=b"***", headers=[*message.headers, ("told", str(error).encode())])

    app.on(RecordDropped)(told.append)
    world.produce(topic, [Row(b"k", b"secret", [("own", b"1")]), Row(b"k", b"noise"), Row(b"k", b"fine")])
    tally = world.run(app)

    assert (tally.parked, tally.dropped, tally.handled, tally.finished) == (1, 1, 1, 3)
    (parked,) = world.errors(app)
    assert (parked.key, parked.raw) == (b"k", b"***")
    assert (parked.header("own"), parked.header("told")) == (b"1", b"because of secret")
    assert parked.header("laneway-origin-topic") == topic.name.encode()
    assert [(event.topic, event.error) for event in told] == [(topic.name, "Reject: because of noise")]
    assert world.committed(app, topic) == world.ends(topic)


@pytest.mark.engine_neutral
def test_an_error_interceptor_that_fails_loses_nothing(world: World) -> None:
    """The copy goes out as it was, and the failure is reported."""
    app, topic, told = world.app(), world.topic(1), []

    @app.handler(topic)
    def handle(record):
        raise Reject("no")

    @app.error_interceptor()
    def broken(message, record, error):
        raise KeyError("card")

    app.on(InterceptorFailed)(told.append)
    world.produce(topic, [Row(b"k", b"v", [("own", b"1")])])
    tally = world.run(app)

    assert (tally.parked, tally.dropped) == (1, 0)
    (parked,) = world.errors(app)
    assert (parked.raw, parked.header("own"), parked.header("laneway-error-message")) == (b"v", b"1", b"no")
    (event,) = told
    assert (event.handler, event.interceptor, event.topic, event.offset) == ("handle", "broken", topic.name, 0)
    assert event.error == "KeyError: 'card'"


@pytest.mark.engine_neutral
def test_only_what_is_parked_passes_an_error_interceptor(world: World) -> None:
    """The copy on a retry topic is the record as it came, or it could not be handled there."""
    app, topic = world.app(), world.topic(1)

    @app.handler(topic, retry=Retry.steps("200ms"))
    def handle(record):
        raise ValueError(record.value.decode())

    @app.error_interceptor()
    def mask(message, record, error):
        return message.replaced(value=b"***")

    world.produce(topic, [Row(b"k", b"secret")])
    tally = world.finish(app)

    assert (tally.deferred, tally.parked) == (1, 1)
    waited = world.output(Topic(app.routes[0].retry_topic_of(app.name, 1)))
    assert [record.raw for record in waited] == [b"secret"]
    (parked,) = world.errors(app)
    assert (parked.raw, parked.header("laneway-attempts")) == (b"***", b"2")


@pytest.mark.parametrize("kind", ["sync", "async", "processes"])
def test_the_current_record_is_right_wherever_a_handler_runs(world: World, kind: str) -> None:
    """On threads, on an event loop and in processes, handler and produce interceptor see the record in work."""
    app, topic = world.app(), world.topic(3)
    out = f"{topic.name}-out"
    world.create(out, 3)
    function = context_handlers.handle_async if kind == "async" else context_handlers.handle
    app.handler(topic, lanes=8, processes=2 if kind == "processes" else 0)(function)
    app.produce_interceptor()(context_handlers.correlate)
    rows = [Row(b"k%d" % n, b"", [("id", b"id-%d" % n), ("out", out.encode())]) for n in range(60)]
    world.produce(topic, rows)
    tally = world.run(app)
    assert (tally.handled, tally.produced) == (60, 60)
    came = {
        record.header("id"): (record.key, b"%d:%d" % (record.partition, record.offset))
        for record in world.output(topic.name)
    }
    left = {record.header("id"): (record.key, record.raw) for record in world.output(out)}
    assert left == came
