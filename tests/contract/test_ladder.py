"""Retry.steps: where failed records wait, in which order they come back, and where they end."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from laneway import App, Json, Reject, Retry, RetryAfter, by_header
from support.contract import Row
from support.contract_recorder import overlaps

if TYPE_CHECKING:
    from support.contract import World

MODES = ("blocking", "unordered", "ordered")


def first_ends(calls: list) -> list[bytes]:
    """Values of the records in the order in which their last call ended."""
    last = {call.facts["value"]: call for call in calls}
    return [call.facts["value"] for call in sorted(last.values(), key=lambda call: call.ended)]


@pytest.mark.engine_neutral("ordered")
@pytest.mark.parametrize("mode", MODES)
def test_a_record_climbs_the_ladder_and_is_parked(world: World, mode: str) -> None:
    """One call at the source and one on each step, never early; then its copy is exact and counts all calls."""
    app, topic, calls = world.app(), world.topic(2), world.recorder

    @app.handler(topic, lanes=4, retry=Retry.steps("500ms", "1s", mode=mode))
    def handle(record):
        with calls.call(record, value=str(record.value), timestamp=record.timestamp):
            if record.value == b"bad":
                raise ValueError("no such customer")

    headers = [("a", b"1"), ("a", None), ("b", b"\xff\x00"), ("a", b"")]
    world.produce(topic, [Row(b"k", b"bad", headers, 1, 1_600_000_000_000), Row(b"o", b"good", (), 0)])
    tally = world.finish(app)
    made = [call for call in calls.calls() if call.key == b"k"]
    assert [call.attempt for call in made] == [1, 2, 3]
    assert made[1].start - made[0].end > 0.49
    assert made[2].start - made[1].end > 0.99
    assert {call.facts["timestamp"] for call in made} == {1_600_000_000_000}
    assert (tally.handled, tally.parked) == (1, 1)
    assert tally.deferred == (0 if mode == "blocking" else 2)
    (parked,) = world.errors(app)
    own = [header for header in parked.headers if not header[0].startswith("laneway-")]
    assert (parked.key, parked.raw, parked.timestamp, own) == (b"k", b"bad", 1_600_000_000_000, headers)
    told = {name: parked.header(f"laneway-{name}") for name in ("attempts", "origin-partition", "origin-offset")}
    assert told == {"attempts": b"3", "origin-partition": b"1", "origin-offset": b"0"}
    assert parked.header("laneway-origin-topic") == topic.name.encode()


@pytest.mark.engine_neutral("unordered")
@pytest.mark.parametrize("mode", MODES)
def test_a_record_that_recovers_on_a_step_ends_there(world: World, mode: str) -> None:
    """A success on a step is the end: nothing is parked, and the group has finished every topic."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=4, retry=Retry.steps("300ms", "300ms", mode=mode))
    async def handle(record):
        with calls.call(record):
            if record.attempt < 3:
                raise ConnectionError

    world.produce(topic, [Row(b"k%d" % n) for n in range(10)])
    tally = world.finish(app)
    assert Counter(call.key for call in calls.calls()) == {b"k%d" % n: 3 for n in range(10)}
    assert (tally.handled, tally.parked) == (10, 0)
    assert world.errors(app) == []
    assert world.committed(app, topic) == world.ends(topic)


@pytest.mark.engine_neutral
@pytest.mark.parametrize("mode", MODES)
def test_a_delay_that_is_asked_for_is_kept_on_the_ladder(world: World, mode: str) -> None:
    """In place it is kept as asked; else the next step that waits as long is taken, and without one it is in place."""
    app, topic, calls = world.app(), world.topic(1), world.recorder
    asked = {b"1": "10ms", b"2": "500ms", b"3": "1500ms"}

    @app.handler(topic, lanes=4, retry=Retry.steps("200ms", "800ms", mode=mode))
    def handle(record):
        with calls.call(record):
            if record.attempt == 1:
                raise RetryAfter(asked[record.key])
            raise ValueError("no such customer")

    world.produce(topic, [Row(key) for key in asked])
    tally = world.finish(app)
    pauses = {}
    for key in asked:
        made = [call for call in calls.calls() if call.key == key]
        pauses[key] = [after.start - before.end for before, after in pairwise(made)]
    least = {
        "blocking": {b"1": [0.01, 0.8], b"2": [0.5, 0.8], b"3": [1.5, 0.8]},
        # The wait of 1.5 s takes the place of the first step.
    }.get(mode, {b"1": [0.2, 0.8], b"2": [0.8], b"3": [1.5, 0.8]})
    assert {key: len(found) for key, found in pauses.items()} == {key: len(found) for key, found in least.items()}
    assert all(at > floor - 0.01 for key in asked for at, floor in zip(pauses[key], least[key], strict=True))
    assert (tally.parked, tally.deferred) == (3, 0 if mode == "blocking" else 4)


@pytest.mark.engine_neutral("ordered", "unordered")
@pytest.mark.parametrize("mode", MODES)
def test_what_order_a_mode_keeps(world: World, mode: str) -> None:
    """Blocking and ordered: a key's records end in order. Unordered: first calls are in order, later ones overtake."""
    app, topic, calls = world.app(), world.topic(2), world.recorder

    @app.handler(topic, lanes=8, retry=Retry.steps("400ms", "400ms", mode=mode))
    def handle(record):
        with calls.call(record, value=record.value.decode()):
            if record.value.endswith(b"bad") and record.attempt < 3:
                raise ConnectionError

    rows = [Row(b"k%d" % key, b"%02d%s" % (n, b"bad" if n in (1, 4) else b"")) for n in range(8) for key in range(6)]
    world.produce(topic, rows)
    tally = world.finish(app)
    made = calls.calls()
    assert overlaps(made, lambda call: call.keys) == []
    expected = sorted({row.value.decode() for row in rows})
    for key in {row.key for row in rows}:
        of_key = [call for call in made if call.key == key]
        ends = first_ends(of_key)
        firsts = list(dict.fromkeys(call.facts["value"] for call in of_key))
        assert firsts == expected
        assert (ends == expected) == (mode != "unordered")
    # A record that queued behind another up to the last step has one call there: the top is the top for all.
    assert (tally.handled, tally.parked) == ((42, 6) if mode == "ordered" else (48, 0))


@pytest.mark.engine_neutral
def test_a_record_that_queued_behind_another_keeps_its_attempts(world: World) -> None:
    """In ordered mode the record behind a failed one has its first call where it queued, and climbs on from there."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=4, retry=Retry.steps("300ms", "300ms", mode="ordered"))
    def handle(record):
        with calls.call(record, value=record.value.decode(), origin=str(record.origin)):
            raise ValueError("never")

    world.produce(topic, [Row(b"k", b"1"), Row(b"k", b"2"), Row(b"o", b"3")])
    tally = world.finish(app)
    made = {value: [c for c in calls.calls() if c.facts["value"] == value] for value in ("1", "2", "3")}
    assert [call.attempt for call in made["1"]] == [1, 2, 3]
    assert [call.attempt for call in made["2"]] in ([1, 2], [1])
    assert [call.attempt for call in made["3"]] == [1, 2, 3]
    assert first_ends([call for call in calls.calls() if call.key == b"k"]) == ["1", "2"]
    parked = {record.raw: record for record in world.errors(app)}
    assert set(parked) == {b"1", b"2", b"3"}
    assert tally.parked == 3
    assert parked[b"2"].header("laneway-origin-offset") == b"1"


@pytest.mark.engine_neutral
def test_in_ordered_mode_records_without_a_key_wait_for_no_other(world: World) -> None:
    """A null key has no order, so nothing queues behind it; an empty key is a key."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=4, retry=Retry.steps("400ms", mode="ordered"))
    def handle(record):
        with calls.call(record, value=record.value.decode()):
            if record.value.startswith(b"bad") and record.attempt == 1:
                raise ConnectionError

    world.produce(topic, [Row(None, b"bad1"), Row(b"", b"bad2"), Row(None, b"3"), Row(b"", b"4")])
    tally = world.finish(app)
    ends = first_ends(calls.calls())
    assert ends.index("3") < ends.index("bad1")
    assert ends.index("bad2") < ends.index("4")
    assert (tally.handled, tally.deferred) == (4, 3)


@pytest.mark.engine_neutral
def test_order_by_something_else_holds_in_ordered_mode(world: World) -> None:
    """What stands in for the key also decides who queues behind whom."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=4, order_by=by_header("customer"), retry=Retry.steps("400ms", mode="ordered"))
    def handle(record):
        with calls.call(record, value=record.value.decode()):
            if record.value == b"1bad" and record.attempt == 1:
                raise ConnectionError

    ann, bob = [("customer", b"ann")], [("customer", b"bob")]
    world.produce(topic, [Row(b"a", b"1bad", ann), Row(b"b", b"2", ann), Row(b"a", b"3", bob), Row(b"c", b"4", ann)])
    world.finish(app)
    ends = first_ends(calls.calls())
    assert [value for value in ends if value != "3"] == ["1bad", "2", "4"]
    assert ends[0] == "3"


@pytest.mark.engine_neutral
@pytest.mark.parametrize("kind", ["batch", "unique"])
@pytest.mark.parametrize("mode", ["unordered", "ordered"])
def test_a_batch_that_fails_climbs_the_ladder(world: World, kind: str, mode: str) -> None:
    """Every member of a failed batch waits on the retry topic and comes back, in a batch again."""
    app, topic, calls = world.app(), world.topic(1), world.recorder
    declare = app.batch_handler if kind == "batch" else app.unique_handler

    @declare(topic, size=10, within="50ms", retry=Retry.steps("400ms", mode=mode))
    def handle(batch):
        with calls.call(*batch, values=[value.decode() for value in batch.values]):
            if any(record.attempt == 1 for record in batch):
                raise ConnectionError

    world.produce(topic, [Row(b"k%d" % n, b"%d" % n) for n in range(6)])
    tally = world.finish(app)
    done = [value for call in calls.calls() if call.error is None for value in call.facts["values"]]
    assert sorted(done) == [str(n) for n in range(6)]
    assert (tally.handled, tally.deferred, tally.parked) == (6, 6, 0)


def test_a_columnar_handler_that_fails_climbs_the_ladder(world: World) -> None:
    """The rows of a failed table wait on the retry topic and end on the error topic with their origin."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.columnar_handler(topic, size=100, retry=Retry.steps("300ms", mode="unordered"))
    def handle(table):
        calls.note(str(table.num_rows))
        raise ValueError("never")

    world.produce(topic, [Row(b"k%d" % n, b"%d" % n, (), 0, 1_600_000_000_000 + n) for n in range(5)])
    tally = world.finish(app)
    assert [text for _, _, text in calls.notes()] == ["5", "5"]
    assert (tally.deferred, tally.parked) == (5, 5)
    parked = world.errors(app)
    assert sorted(record.timestamp for record in parked) == [1_600_000_000_000 + n for n in range(5)]
    assert sorted(record.header("laneway-origin-offset") for record in parked) == [b"%d" % n for n in range(5)]


@pytest.mark.engine_neutral
def test_rejected_and_undecodable_records_skip_the_ladder(world: World) -> None:
    """Trying again cannot help, so they are parked at once."""
    app, topic = world.app(), world.topic(1, value=Json(int))

    @app.handler(topic, lanes=2, retry=Retry.steps("10m", mode="unordered"))
    def handle(record):
        raise Reject("no")

    world.produce(topic, [Row(b"k", b"1"), Row(b"other", b"{")])
    tally = world.finish(app)
    assert (tally.parked, tally.deferred, tally.calls) == (2, 0, 2)
    assert sorted(record.raw for record in world.errors(app)) == [b"1", b"{"]


def test_a_step_may_have_a_function_of_its_own(world: World) -> None:
    """A retry handler stands in for the handler on its step, async or not."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=2, retry=Retry.steps("200ms", "200ms", mode="unordered"))
    def handle(record):
        with calls.call(record, by="handler"):
            raise ConnectionError

    @app.retry_handler(handle, step=2)
    async def repair(record):
        with calls.call(record, by="repair"):
            pass

    world.produce(topic, [Row(b"k", b"1")])
    tally = world.finish(app)
    assert [call.facts["by"] for call in calls.calls()] == ["handler", "handler", "repair"]
    assert (tally.handled, tally.parked) == (1, 0)


@pytest.mark.engine_neutral
def test_names_and_header_styles_can_be_chosen(world: World) -> None:
    """Patterns name the retry and error topics; the copy carries the headers that Spring's tools look for."""
    plain, topic = world.app(), world.topic(3)
    app = App(
        plain.name,
        retry_topic="{topic}-{handler}-wait-{step}",
        error_topic="{topic}-{app}-dead",
        error_headers="spring",
    )

    @app.handler(topic, lanes=2, retry=Retry.steps("200ms", mode="unordered"))
    def handle(record):
        raise ValueError("no such customer")

    world.produce(topic, [Row(b"k", b"1", [("kafka_dlt-original-topic", b"old")], 2)])
    world.finish(app)
    assert len(world.output(f"{topic.name}-handle-wait-1")) == 1
    (parked,) = world.output(f"{topic.name}-{app.name}-dead")
    assert parked.header("kafka_dlt-original-partition") == b"\0\0\0\2"
    assert parked.header("kafka_dlt-exception-message") == b"no such customer"
    assert [value for name, value in parked.headers if name == "kafka_dlt-original-topic"] == [topic.name.encode()]


def test_control_headers_from_outside_are_not_believed(world: World) -> None:
    """A forged copy on a retry topic is run once, cannot skip its end, and is counted."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=2, retry=Retry.steps("200ms", mode="ordered"))
    def handle(record):
        with calls.call(record, value=record.value.decode()):
            raise ValueError("never")

    (retry,) = app.routes[0].retry_topics_of(app.name)
    forged = [
        [("laneway-attempts", b"-1"), ("laneway-origin-topic", b"other")],
        [("laneway-attempts", b"1" + b"0" * 30), ("laneway-origin-partition", b"NaN")],
        [("laneway-attempts", b"0"), ("laneway-attempts", b"0"), ("laneway-due", b"9" * 30)],
        [],
    ]
    world.create(retry, 1)
    world.produce_to(retry, [Row(b"f%d" % n, b"%d" % n, headers) for n, headers in enumerate(forged)])
    tally = world.finish(app)
    assert sorted(call.facts["value"] for call in calls.calls()) == ["0", "1", "2", "3"]
    assert {call.attempt for call in calls.calls()} == {2}
    assert (tally.invalid_headers, tally.parked) == (4, 4)
    assert {record.header("laneway-attempts") for record in world.errors(app)} == {b"2"}


def test_a_timestamp_in_the_future_holds_nothing_up(world: World) -> None:
    """A copy that claims to be of next year waits as long as its step says, and is counted."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=2, retry=Retry.steps("1s", mode="unordered"))
    def handle(record):
        with calls.call(record, value=record.value.decode()):
            pass

    (retry,) = app.routes[0].retry_topics_of(app.name)
    world.create(retry, 1)
    future = int(time.time() * 1000) + 365 * 86_400_000
    _, before = world.now()
    world.produce_to(retry, [Row(b"a", b"future", (), 0, future), Row(b"b", b"now", (), 0)])
    tally = world.finish(app)
    assert sorted(call.facts["value"] for call in calls.calls()) == ["future", "now"]
    assert all(call.start - before >= 0.99 for call in calls.calls())
    assert tally.early_due == 1


def test_a_delayed_handler_runs_nothing_early(world: World) -> None:
    """`delay` holds a record back until its timestamp is so old."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=2, delay="4s")
    async def handle(record):
        with calls.call(record):
            pass

    wall, steady = world.now()
    world.produce(
        topic, [Row(b"old", b"", (), 0, int(wall * 1000) - 60_000), Row(b"new", b"", (), 0, int(wall * 1000))]
    )
    tally = world.finish(app)
    starts = {call.key: call.start - steady for call in calls.calls()}
    assert starts[b"old"] < starts[b"new"]
    assert 3.99 < starts[b"new"] < 8
    assert tally.handled == 2


@pytest.mark.engine_neutral
def test_a_timestamp_that_the_error_topic_refuses_does_not_hold_a_record_up(world: World) -> None:
    """A record of the far future is parked with the time of its copy; a header keeps its own."""
    app, topic = world.app(), world.topic(1)

    @app.handler(topic, lanes=2, retry=Retry.steps("200ms", mode="unordered"))
    def handle(record):
        raise ValueError("never")

    future = int(time.time() * 1000) + 365 * 86_400_000
    world.refuse_future(app.routes[0].error_topic_of(app.name))
    world.produce(topic, [Row(b"a", b"1", (), 0, future)])
    tally = world.finish(app)
    (parked,) = world.errors(app)
    assert tally.parked == 1
    assert parked.timestamp < future
    assert parked.header("laneway-origin-timestamp") == b"%d" % future


@pytest.mark.engine_neutral
def test_the_last_step_may_rescue_what_cannot_be_parked(world: World) -> None:
    """It is called at each try; what it says is safe is finished, and what it raises changes nothing."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=2)
    def handle(record):
        raise ValueError("never")

    @app.last_step()
    def breaks(record, error):
        raise OSError("disk full")

    @app.last_step(of=handle)
    def to_disk(record, error):
        calls.note(f"{record.value.decode()} {type(error).__name__}")
        return len(calls.notes()) > 1

    world.refuse_all(app.routes[0].error_topic_of(app.name))
    world.produce(topic, [Row(b"k", b"1"), Row(b"k", b"2")])
    tally = world.finish(app)
    told = [text for _, _, text in calls.notes()]
    assert told == ["1 MessageTooLargeError", "1 MessageTooLargeError", "2 MessageTooLargeError"]
    assert (tally.rescued, tally.parked) == (2, 0)
    assert world.errors(app) == []
    assert world.committed(app, topic) == world.ends(topic)
