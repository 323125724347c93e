"""How a record ends whose handler raises."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from laneway import Json, Reject, Retry, RetryAfter, Skip
from support.contract import Row
from support.contract_recorder import overlaps
from support.doors import ERROR_HEADERS

if TYPE_CHECKING:
    from support.contract import World


@pytest.mark.engine_neutral
def test_reject_parks_at_once_and_skip_finishes(world: World) -> None:
    """Reject is never repeated, whatever the attempts; Skip is counted and leaves nothing; the key goes on."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=4, retry=Retry(attempts=5, backoff="10ms"))
    def handle(record):
        with calls.call(record):
            if record.value == b"reject":
                raise Reject("negative total")
            if record.value == b"skip":
                raise Skip

    world.produce(topic, [Row(b"k", b"1"), Row(b"k", b"reject"), Row(b"k", b"skip"), Row(b"k", b"4")])
    tally = world.run(app)
    assert [call.offset for call in calls.calls()] == [0, 1, 2, 3]
    assert (tally.handled, tally.parked, tally.skipped, tally.retried) == (2, 1, 1, 0)
    (parked,) = world.errors(app)
    assert (parked.raw, parked.header("laneway-attempts")) == (b"reject", b"1")
    assert parked.header("laneway-error-message") == b"negative total"


def test_a_failing_record_is_tried_again_while_only_its_key_waits(world: World) -> None:
    """Attempts 1, 2, 3 come in order, the key's next record waits for them, other keys go on, then it is parked."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=4, retry=Retry(attempts=3, backoff="400ms", jitter=0))
    def handle(record):
        with calls.call(record):
            if record.value == b"bad":
                raise ValueError("no such customer")

    world.produce(topic, [Row(b"k", b"bad"), *[Row(b"o%d" % n) for n in range(20)], Row(b"k", b"good")])
    tally = world.run(app)
    made = calls.calls()
    of_key = [call for call in made if call.key == b"k"]
    assert [(call.offset, call.attempt) for call in of_key] == [(0, 1), (0, 2), (0, 3), (21, 1)]
    assert of_key[1].start - of_key[0].end > 0.39
    assert of_key[2].start - of_key[1].end > 0.79
    assert all(call.ended < of_key[1].began for call in made if call.key != b"k")
    assert (tally.handled, tally.parked, tally.retried) == (21, 1, 2)
    (parked,) = world.errors(app)
    assert (parked.raw, parked.header("laneway-attempts")) == (b"bad", b"3")


@pytest.mark.engine_neutral
def test_an_async_handler_that_recovers_is_handled_in_order(world: World) -> None:
    """A record that succeeds at its second attempt counts as handled and keeps its place before its key's next."""
    app, topic, calls = world.app(), world.topic(2), world.recorder

    @app.handler(topic, lanes=8, retry=Retry(attempts=2, backoff="20ms"))
    async def handle(record):
        with calls.call(record):
            await asyncio.sleep(0.001)
            if record.offset % 2 == 0 and record.attempt == 1:
                raise ConnectionError

    world.produce(topic, [Row(b"k%d" % (n % 4), b"", (), n % 2) for n in range(40)])
    tally = world.run(app)
    made = calls.calls()
    assert overlaps(made, lambda call: call.keys) == []
    for key in (b"k0", b"k1", b"k2", b"k3"):
        ends = [call.offset for call in made if call.key == key and call.error is None]
        assert ends == sorted(ends)
    assert (tally.handled, tally.parked, tally.retried) == (40, 0, 20)


@pytest.mark.engine_neutral
def test_retry_after_sets_the_pause(world: World) -> None:
    """RetryAfter waits as long as it says instead of the back-off, and uses up an attempt."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=2, retry=Retry(attempts=3, backoff="10m", backoff_max="10m"))
    def handle(record):
        with calls.call(record):
            raise RetryAfter("200ms")

    world.produce(topic, [Row(b"k", b"v")])
    tally = world.run(app)
    made = calls.calls()
    assert [call.attempt for call in made] == [1, 2, 3]
    assert all(0.19 < after.start - before.end < 5 for before, after in pairwise(made))
    assert (tally.parked, tally.retried) == (1, 2)


@pytest.mark.engine_neutral
def test_retry_after_gets_its_retry_from_the_default_retry(world: World) -> None:
    """Without `retry=` a record that asks for another try has it, not before its delay; a plain error has none."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=2)
    def handle(record):
        with calls.call(record):
            if record.attempt == 1:
                raise RetryAfter("300ms")
            if record.value == b"bad":
                raise ValueError("no such customer")

    world.produce(topic, [Row(b"k", b"good"), Row(b"o", b"bad")])
    tally = world.run(app)
    for key in (b"k", b"o"):
        first, second = [call for call in calls.calls() if call.key == key]
        assert (first.attempt, second.attempt) == (1, 2)
        assert second.start - first.end > 0.29
    assert (tally.handled, tally.parked, tally.retried) == (1, 1, 2)


@pytest.mark.engine_neutral
def test_retry_after_does_not_go_on_for_ever(world: World) -> None:
    """From the default `Retry` a record has ten retries at most; then it is parked, and its key goes on."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=2)
    def handle(record):
        with calls.call(record):
            if record.value == b"busy":
                raise RetryAfter("10ms")

    world.produce(topic, [Row(b"k", b"busy"), Row(b"k", b"next")])
    tally = world.run(app)
    assert [(call.offset, call.attempt) for call in calls.calls()] == [*[(0, n) for n in range(1, 12)], (1, 1)]
    assert (tally.handled, tally.parked, tally.retried) == (1, 1, 10)
    (parked,) = world.errors(app)
    assert (parked.raw, parked.header("laneway-attempts")) == (b"busy", b"11")


@pytest.mark.engine_neutral
def test_what_is_not_retriable_is_parked_at_once(world: World) -> None:
    """As with `Reject`: neither attempts nor steps are spent on it; what is retriable has them. For all kinds."""
    app, calls = world.app(), world.recorder
    retry = Retry.steps("50ms", attempts=2, backoff="10ms", retriable=(ConnectionError, TimeoutError))
    topics = [world.topic(1), world.topic(1), world.topic(1)]

    def fail(kind: str, value: bytes) -> None:
        calls.note(f"{kind} {value.decode()}")
        raise {b"down": ConnectionResetError, b"bad": ValueError}[value]("planted")

    @app.handler(topics[0], retry=retry)
    def single(record):
        fail("single", record.value)

    @app.batch_handler(topics[1], size=1, retry=retry)
    def batch(batch):
        fail("batch", batch.records[0].value)

    @app.columnar_handler(topics[2], size=1, retry=retry)
    def columnar(table):
        fail("columnar", table.column("value")[0].as_py())

    for topic in topics:
        world.produce(topic, [Row(b"k", b"bad"), Row(b"o", b"down")])
    tally = world.finish(app)
    expected = {
        f"{kind} {value}": n for kind in ("single", "batch", "columnar") for value, n in (("bad", 1), ("down", 4))
    }
    assert Counter(text for _, _, text in calls.notes()) == expected
    assert (tally.parked, tally.deferred) == (6, 3)
    attempts = [(record.raw, record.header("laneway-attempts")) for record in world.errors(app)]
    assert sorted(attempts) == [(b"bad", b"1")] * 3 + [(b"down", b"4")] * 3


def test_a_predicate_says_what_is_retriable(world: World) -> None:
    """A function of the error travels with the app; one that raises counts as a yes."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=4, retry=Retry(attempts=3, backoff="10ms", retriable=lambda error: error.args[0] >= 500))
    def handle(record):
        with calls.call(record):
            raise OSError(*[int(code) for code in record.value.split()])

    world.produce(topic, [Row(b"a", b"404"), Row(b"b", b"503"), Row(b"c", b"")])
    tally = world.run(app)
    assert Counter(call.key for call in calls.calls()) == {b"a": 1, b"b": 3, b"c": 3}
    assert (tally.parked, tally.retried) == (3, 4)


@pytest.mark.engine_neutral
def test_an_undecodable_record_is_parked_and_its_key_goes_on(world: World) -> None:
    """Bytes that are not the JSON expected never reach the handler, are not repeated, and block no other record."""
    app, topic, calls = world.app(), world.topic(1, value=Json(dict)), world.recorder

    @app.handler(topic, lanes=2, retry=Retry(attempts=5, backoff="10m"))
    def handle(record):
        with calls.call(record, value=record.value):
            pass

    world.produce(topic, [Row(b"k", b'{"n": 1}'), Row(b"k", b"\xff{"), Row(b"k", b"[]"), Row(b"k", b'{"n": 4}')])
    tally = world.run(app)
    assert [call.facts["value"] for call in calls.calls()] == [{"n": 1}, {"n": 4}]
    assert [record.raw for record in world.errors(app)] == [b"\xff{", b"[]"]
    assert {record.header("laneway-error-type") for record in world.errors(app)} == {b"laneway.errors.CodecError"}
    assert (tally.handled, tally.parked) == (2, 2)


def test_the_parked_copy_is_exact(world: World) -> None:
    """Key, value, timestamp and all headers in their order are kept, and every laneway header is there once."""
    app, topic = world.app(), world.topic(3)

    @app.handler(topic, lanes=2)
    def handle(record):
        raise LookupError("käse \udcff")

    own = [("a", b"\xff\x00"), ("b", None), ("a", b""), ("ü", b"1")]
    rows = [
        Row(b"\x00\xff", b"\x80\x00", own, 2, 1_700_000_000_001),
        Row(None, None, (), 1, 1_700_000_000_002),
        Row(b"", b"", [("a", None)], 0, 1_700_000_000_003),
    ]
    world.produce(topic, rows)
    world.run(app)
    parked = sorted(world.errors(app), key=lambda record: record.timestamp)
    assert [(p.key, p.raw, p.timestamp) for p in parked] == [(row.key, row.value, row.timestamp) for row in rows]
    for row, copy in zip(rows, parked, strict=True):
        assert list(copy.headers[: len(row.headers)]) == list(row.headers)
        assert tuple(name for name, _value in copy.headers[len(row.headers) :]) == ERROR_HEADERS
    told = dict(parked[0].headers)
    assert told["laneway-origin-topic"] == topic.name.encode()
    assert (told["laneway-origin-partition"], told["laneway-origin-offset"]) == (b"2", b"0")
    assert told["laneway-origin-timestamp"] == b"1700000000001"
    assert (told["laneway-attempts"], told["laneway-error-type"]) == (b"1", b"LookupError")
    assert told["laneway-error-message"].startswith("käse".encode())
    assert b"LookupError" in told["laneway-error-trace"]
    assert b"\n" not in told["laneway-error-trace"]
    assert (told["laneway-app"], told["laneway-handler"]) == (app.name.encode(), b"handle")
    assert int(told["laneway-parked-at"]) > 1_700_000_000_000


@pytest.mark.engine_neutral
def test_a_record_parked_again_does_not_grow(world: World) -> None:
    """A copy that is handled and fails again has the same header names with new values."""
    app, again, topic = world.app(), world.app(), world.topic(1)

    @app.handler(topic)
    def fail(record):
        raise ValueError("first")

    world.produce(topic, [Row(b"k", b"v", [("own", b"1")])])
    world.run(app)
    (once,) = world.errors(app)
    copies = type(topic)(once.topic)

    @again.handler(copies)
    def fail_again(record):
        raise ValueError("second")

    world.run(again)
    (twice,) = world.errors(again)
    assert [name for name, _value in twice.headers] == [name for name, _value in once.headers]
    assert (twice.header("laneway-error-message"), twice.header("laneway-origin-topic")) == (
        b"second",
        once.topic.encode(),
    )


def test_an_async_call_past_its_limit_ends_before_its_key_goes_on(world: World) -> None:
    """The call is cancelled and the record parked, but the key's next record starts only when it has really ended."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=4, timeout="200ms")
    async def handle(record):
        with calls.call(record):
            try:
                await asyncio.sleep(30 if record.value == b"slow" else 0)
            finally:
                await asyncio.sleep(0.2 if record.value == b"slow" else 0)

    world.produce(topic, [Row(b"k", b"slow"), Row(b"k", b"next")])
    tally = world.run(app)
    slow, after = calls.calls()
    assert slow.ended < after.began
    assert 0.38 < slow.end - slow.start < 10
    assert (tally.handled, tally.parked) == (1, 1)
    (parked,) = world.errors(app)
    assert (parked.raw, parked.header("laneway-error-type")) == (b"slow", b"laneway.errors.HandlerTimeoutError")


@pytest.mark.engine_neutral
def test_a_sync_call_past_its_limit_counts_as_failed_when_it_returns(world: World) -> None:
    """A sync call cannot be stopped: it runs to its end, then its record is parked, then its key goes on."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=4, timeout="300ms")
    def handle(record):
        with calls.call(record):
            time.sleep(0.5 if record.value == b"slow" else 0)

    world.produce(topic, [Row(b"k", b"slow"), Row(b"k", b"next"), Row(b"other", b"fine")])
    tally = world.run(app)
    made = [call for call in calls.calls() if call.key == b"k"]
    assert [(call.offset, call.error) for call in made] == [(0, None), (1, None)]
    assert made[0].ended < made[1].began
    assert (tally.handled, tally.parked) == (2, 1)
    assert [record.raw for record in world.errors(app)] == [b"slow"]


@pytest.mark.engine_neutral
def test_a_skipped_record_does_not_use_up_the_time_of_the_next(world: World) -> None:
    """The time limit counts each call for itself, also behind one that raised."""
    app, topic = world.app(), world.topic(1)

    @app.handler(topic, lanes=1, timeout="400ms")
    def handle(record):
        time.sleep(0.25)
        if record.offset == 0:
            raise Skip

    world.produce(topic, [Row(b"k", b"0"), Row(b"k", b"1")])
    tally = world.run(app)
    assert (tally.skipped, tally.handled, tally.parked) == (1, 1, 0)
