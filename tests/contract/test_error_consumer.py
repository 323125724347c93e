"""Runs over error topics: which records are run, how they end, and what a run leaves alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from laneway import App, Batch, ErrorConsumer, GroupedBy, Json, Reject, Retry, Topic
from support.contract import Row
from support.contract_recorder import overlaps

if TYPE_CHECKING:
    from support.contract import World

ALL = {"stop_when_new": "0s"}
"""Everything that is parked when the run begins, however short that is ago."""
OWN = [("a", b"\xff\x00"), ("b", None), ("a", b""), ("ü", b"1"), ("a", b"\xff\x00")]


def error_topic(app: App) -> Topic[Any]:
    return Topic(app.routes[0].error_topic_of(app.name))


def settled(world: World, app: App) -> dict[int, int]:
    """Offsets of the group that runs over the error topic, where they are not at the start."""
    found = world.committed(App(f"{app.name}.errors"), error_topic(app))
    return {partition: at for partition, at in found.items() if at}


def told(record, *names):
    return [record.header(f"laneway-{name}") for name in names]


def copy_of(topic, owner, /, handler="handle", *, at=1_700_000_000_000, errors=1, offset=0, own=(), **others):
    """Headers of a parked copy, as laneway writes them; *others* replace or, with None, leave out some."""
    values = {
        "origin-topic": topic.name, "origin-partition": 0, "origin-offset": offset,
        "origin-timestamp": 1_600_000_000_000, "attempts": 1, "error-type": "ValueError", "error-message": "no",
        "error-trace": "", "app": owner.name, "handler": handler, "parked-at": at, "errors": errors,
        "read-from": f"{topic.name}:0:{offset}",
    } | {name.replace("_", "-"): value for name, value in others.items()}  # fmt: skip
    return [*own, *((f"laneway-{name}", str(value).encode()) for name, value in values.items() if value is not None)]


def test_a_parked_record_is_handled_later(world: World) -> None:
    """Its handler gets it as it was, with its origin; then it is finished, and later runs leave it alone."""
    app, topic, calls = world.app(), world.topic(3), world.recorder
    app.errors = ErrorConsumer(**ALL)

    @app.handler(topic, lanes=4)
    def handle(record):
        own = [name for name, _ in record.headers if not name.startswith("laneway-")]
        facts = {"value": record.value.decode(), "time": record.timestamp, "origin": record.origin, "own": own}
        with calls.call(record, **facts):
            if record.origin is None:
                raise ConnectionError("the bank does not answer")

    rows = [Row(b"k%d" % n, b"v%d" % n, OWN, n % 3, 1_600_000_000_000 + n) for n in range(6)]
    world.produce(topic, rows)
    world.run(app)
    tally = world.run_errors(app)
    made = [call for call in calls.calls() if call.facts["origin"]]
    assert {call.facts["value"]: call.facts["time"] for call in made} == {
        row.value.decode(): row.timestamp for row in rows
    }
    assert sorted(call.facts["origin"] for call in made) == sorted(
        [topic.name, partition, offset] for partition in range(3) for offset in range(2)
    )
    assert {(call.attempt, *call.facts["own"]) for call in made} == {(2, "a", "b", "a", "ü", "a")}
    assert (tally.read, tally.handled, tally.parked, tally.invalid_headers) == (6, 6, 0, 0)
    assert len(world.errors(app)) == 6
    ends = {partition: end for partition, end in world.ends(error_topic(app)).items() if end}
    assert settled(world, app) == ends
    assert world.run_errors(app).read == 0
    assert len(calls.calls()) == 12


def test_a_record_that_fails_again_is_parked_once_more(world: World) -> None:
    """At the end of the same topic, with one error more, the same origin and no more headers; once in each run."""
    app, topic, calls = world.app(), world.topic(2), world.recorder
    app.errors = ErrorConsumer(**ALL)

    @app.handler(topic)
    def handle(record):
        with calls.call(record):
            raise Reject(f"call {record.attempt}") if record.attempt == 2 else ValueError(f"call {record.attempt}")

    world.produce(topic, [Row(b"k", b"v", OWN, 1, 1_600_000_000_000)])
    world.run(app)
    for run in (1, 2, 3):
        tally = world.run_errors(app)
        assert (tally.read, tally.parked, tally.invalid_headers) == (1, 1, 0)
        assert len(calls.calls()) == 1 + run
    parked = sorted(world.errors(app), key=lambda record: record.offset)
    assert [told(record, "errors", "attempts", "error-message") for record in parked] == [
        [b"%d" % n, b"%d" % n, b"call %d" % n] for n in (1, 2, 3, 4)
    ]
    first, *later = parked
    place = ("origin-topic", "origin-partition", "origin-offset", "origin-timestamp", "app", "handler")
    assert told(first, *place[:3]) == [topic.name.encode(), b"1", b"0"]
    for record in later:
        assert told(record, *place) == told(first, *place)
        assert [name for name, _ in record.headers] == [name for name, _ in first.headers]
        assert (record.key, record.raw, record.timestamp) == (b"k", b"v", 1_600_000_000_000)
        assert list(record.headers[: len(OWN)]) == OWN


def test_a_record_that_was_parked_too_often_is_skipped(world: World) -> None:
    """It is counted and stays on the topic, and those behind it are run; one that cannot be decoded is no exception."""
    app, topic, calls = world.app(), world.topic(1, value=Json(dict)), world.recorder
    app.errors = ErrorConsumer(max_errors=3, **ALL)

    @app.handler(topic)
    def handle(record):
        with calls.call(record):
            raise ValueError

    world.run(app)
    rows = [
        Row(b"k", b"{}", copy_of(topic, app, errors=3)),
        Row(b"k", b"no json", copy_of(topic, app, errors=3)),
        Row(b"k", b"{}", copy_of(topic, app, errors=2)),
        Row(b"k", b"no json", copy_of(topic, app, errors=2)),
        Row(b"k", b"{}", copy_of(topic, app, errors=1_000_000)),
    ]
    world.produce_to(error_topic(app).name, rows)
    tally = world.run_errors(app)
    assert (tally.read, tally.skipped, tally.parked, len(calls.calls())) == (5, 3, 2, 1)
    tally = world.run_errors(app)
    assert (tally.read, tally.skipped, tally.parked, len(calls.calls())) == (2, 2, 0, 1)
    counts = [int(record.header("laneway-errors")) for record in world.errors(app)]
    assert counts == [3, 3, 2, 2, 1_000_000, 3, 3]
    app.errors = ErrorConsumer(max_errors=None, **ALL)
    world.produce_to(error_topic(app).name, [Row(b"k", b"{}", copy_of(topic, app, errors=999_999))])
    assert world.run_errors(app).parked == 1


def test_a_run_ends_before_the_first_new_record(world: World) -> None:
    """Old records behind a new one are neither run nor committed past; other partitions go on."""
    app, topic, calls = world.app(), world.topic(3), world.recorder
    app.errors = ErrorConsumer(stop_when_new="10m")

    @app.handler(topic, lanes=4)
    def handle(record):
        with calls.call(record, value=record.value.decode()):
            pass

    world.run(app)
    now = int(world.now()[0] * 1000)
    old, new, ahead = now - 601_000, now - 300_000, now + 60_000
    ages = {0: [old, old, new, old, old], 1: [old, old, old], 2: [ahead, old]}
    rows = [
        Row(b"k", b"%d%d" % (partition, n), copy_of(topic, app, at=at, offset=n), partition)
        for partition, times in ages.items()
        for n, at in enumerate(times)
    ]
    world.produce_to(error_topic(app).name, rows)
    assert world.run_errors(app).handled == 5
    assert sorted(call.facts["value"] for call in calls.calls()) == ["00", "01", "10", "11", "12"]
    assert settled(world, app) == {0: 2, 1: 3}
    assert world.run_errors(app).read == 0
    app.errors = ErrorConsumer(stop_when_new="0s")
    assert world.run_errors(app).handled == 5
    assert [call.facts["value"] for call in calls.calls() if call.partition == 0] == ["00", "01", "02", "03", "04"]
    assert settled(world, app) == {0: 5, 1: 3, 2: 2}


@pytest.mark.engine_neutral
def test_a_time_that_cannot_be_true_counts_as_old(world: World) -> None:
    """It does not block the partition; such records are run and counted as invalid headers."""
    app, topic, calls = world.app(), world.topic(1), world.recorder
    app.errors = ErrorConsumer(stop_when_new="10m")

    @app.handler(topic)
    def handle(record):
        with calls.call(record):
            pass

    world.run(app)
    rest, name = copy_of(topic, app, parked_at=None), "laneway-parked-at"
    far = b"%d" % ((world.now()[0] + 2 * 86_400) * 1000)
    odd: list[Any] = [None, b"", b"-1", b"tomorrow", b"9" * 300_000, b"9" * 17, far]
    headers = [rest, [*rest, (name, far), (name, far)], *([*rest, (name, value)] for value in odd)]
    world.produce_to(error_topic(app).name, [Row(b"k", b"", each) for each in (*headers, copy_of(topic, app))])
    tally = world.run_errors(app)
    assert (tally.handled, tally.invalid_headers) == (len(headers) + 1, len(headers))


def test_a_replayed_record_is_exact(world: World) -> None:
    """Back on its own topic and partition with key, value, headers and time; one header of ours goes along."""
    app, topic, elsewhere = world.app(), world.topic(3), world.topic(1)
    app.errors = ErrorConsumer(action="replay", **ALL)

    @app.handler(topic, lanes=2)
    def handle(record):
        raise ValueError

    @app.produce_interceptor()
    def forbid(message):
        return None

    rows = [
        Row(b"\x00\xff", b"\x80\x00", OWN, 2, 1_600_000_000_001),
        Row(None, None, (), 1, 1_600_000_000_002),
        Row(b"", b"", [("a", None)], 0, 1_600_000_000_003),
    ]
    world.produce(topic, rows)
    world.run(app)
    hostile = {
        "key": Row(b"h1", b"1", copy_of(topic, app, origin_topic=elsewhere.name)),
        "place": Row(b"h2", b"2", copy_of(topic, app, origin_partition=2**31 - 1)),
    }
    world.produce_to(error_topic(app).name, hostile.values())
    tally = world.run_errors(app)
    assert (tally.handled, tally.produced, tally.parked, tally.invalid_headers) == (5, 5, 0, 1)
    assert world.output(elsewhere) == []
    came = [record for record in world.output(topic) if record.header("laneway-errors")]
    back = {record.timestamp: record for record in came if record.key not in (b"h1", b"h2")}
    for row in rows:
        record = back[row.timestamp]
        assert (record.key, record.raw, record.partition) == (row.key, row.value, row.partition)
        assert list(record.headers) == [*row.headers, ("laneway-errors", b"1")]
    assert len(came) == 5
    assert world.run_errors(app).read == 0
    tally = world.run(app)
    assert [told(record, "errors") for record in world.errors(app)].count([b"2"]) == tally.parked == 5


def test_an_error_handler_stands_in(world: World) -> None:
    """It takes what the handler takes; its messages are sent, and its record is finished when they are safe."""
    app, topic, out, calls = world.app(), world.topic(1), world.topic(1), world.recorder
    app.errors = ErrorConsumer(**ALL)

    @app.handler(topic)
    def handle(record):
        raise ValueError("first")

    @app.error_handler(of=handle)
    async def apologise(record):
        with calls.call(record):
            await asyncio.sleep(0)
        return out.message(record.value + b", sorry", key=record.key)

    world.produce(topic, [Row(b"k", b"v")])
    world.run(app)
    tally = world.run_errors(app)
    assert (tally.handled, tally.produced, len(calls.calls())) == (1, 1, 1)
    assert [record.raw for record in world.output(out)] == [b"v, sorry"]


@pytest.mark.engine_neutral("columnar")
@pytest.mark.parametrize("kind", ["batch", "unique", "custom", "columnar"])
def test_other_kinds_get_one_record_at_a_time(world: World, kind: str) -> None:
    """A batch of one or a table of one row; a member that is rejected is parked again."""
    app, topic, calls = world.app(), world.topic(2), world.recorder
    app.errors = ErrorConsumer(max_errors=None, **ALL)

    def handle(batch):
        if kind == "columnar":
            found = [(row["value"], row["topic"]) for row in batch.to_pylist()]
        else:
            found = [(record.value, record.topic) for record in batch]
            assert isinstance(batch, Batch)
        if found[0][1] == topic.name:
            raise ValueError("first")
        with calls.call(*(() if kind == "columnar" else batch), values=[value.decode() for value, _ in found]):
            if found[0][0] == b"bad" and kind == "columnar":
                raise ValueError("bad")
            if found[0][0] == b"bad":
                batch.reject(batch.records[0], "bad")

    declare = getattr(app, f"{kind}_handler")
    more = {"kind": GroupedBy("key")} if kind == "custom" else {}
    within = {} if kind == "columnar" else {"within": "50ms", "lanes": 2}
    declare(topic, size=10, **within, **more)(handle)
    world.produce(topic, [Row(b"k", b"1", (), 0), Row(b"k", b"2", (), 0), Row(b"k", b"bad", (), 0), Row(b"o", b"3")])
    world.run(app)
    count = len(world.errors(app))
    tally = world.run_errors(app)
    assert all(len(call.facts["values"]) == 1 for call in calls.calls())
    values = [call.facts["values"][0] for call in calls.calls()]
    assert [value for value in values if value != "3"] == (["bad"] if kind == "unique" else ["1", "2", "bad"])
    assert (tally.handled, tally.parked) == (count - 1, 1)
    assert sum(record.header("laneway-errors") == b"2" for record in world.errors(app)) == 1


@pytest.mark.engine_neutral
def test_handlers_that_share_an_error_topic_get_their_own(world: World) -> None:
    """A header chooses among them; one that names no handler has no effect, and the record is skipped and counted."""
    app, topic, calls = world.app(), world.topic(1), world.recorder
    app.errors = ErrorConsumer(**ALL)

    def declared(name, **options):
        def handler(record):
            with calls.call(record, by=name, value=record.value.decode()):
                if record.origin is None and record.value == b"v":
                    raise ValueError(name)

        handler.__name__ = name
        return app.handler(topic, **options)(handler)

    declared("charge", lanes=4)
    declared("count", order="none")
    world.produce(topic, [Row(b"k", b"v"), Row(b"k", b"fine")])
    assert world.run(app).parked == 2
    forged = [
        Row(b"k", b"1", copy_of(topic, app, handler="mallory")),
        Row(b"k", b"2", copy_of(topic, app, handler=None)),
        Row(b"k", b"3", [*copy_of(topic, app, handler="charge"), ("laneway-handler", b"\xff")]),
        Row(b"k", b"4", ()),
        Row(b"k", b"5", copy_of(topic, app, handler="count", app="another")),
    ]
    world.produce_to(error_topic(app).name, forged)
    before = len(calls.calls())
    tally = world.run_errors(app)
    made = Counter((call.facts["by"], call.facts["value"]) for call in calls.calls()[before:])
    assert made == {("charge", "v"): 1, ("count", "v"): 1}
    assert (tally.read, tally.handled, tally.skipped, tally.invalid_headers) == (7, 2, 5, 4)
    assert world.run_errors(app).read == 0


@pytest.mark.engine_neutral
def test_forged_headers_have_no_power(world: World) -> None:
    """What cannot be true is left out and counted; the only handler of the topic gets the record, and it is bounded."""
    app, topic, calls = world.app(), world.topic(1), world.recorder
    app.errors = ErrorConsumer(max_errors=None, **ALL)

    @app.handler(topic)
    def handle(record):
        with calls.call(record, origin=record.origin, attempt=record.attempt):
            raise ValueError

    world.run(app)
    long = b"9" * 300_000
    forged = [
        (),
        copy_of(topic, app, handler="mallory"),
        copy_of(topic, app, attempts=long.decode()),
        copy_of(topic, app, origin_topic="nowhere"),
        copy_of(topic, app, origin_offset=-5),
        copy_of(topic, app, errors="many"),
        [*copy_of(topic, app), *copy_of(topic, app)],
        [(name, None) for name, _ in copy_of(topic, app)],
        [(name, b"\xff\xfe") for name, _ in copy_of(topic, app) if name != "laneway-app"],
    ]
    world.produce_to(error_topic(app).name, [Row(b"k", b"%d" % n, headers) for n, headers in enumerate(forged)])
    tally = world.run_errors(app)
    assert (tally.read, tally.parked, tally.invalid_headers) == (9, 9, 9)
    assert all(call.facts["attempt"] <= 2 for call in calls.calls())
    again = sorted(world.errors(app), key=lambda record: record.offset)[9:]
    names = [name for name, _ in copy_of(topic, app)]
    for record in again:
        assert [name for name, _ in record.headers] == names
        assert sum(len(value or b"") for name, value in record.headers if name != "laneway-error-trace") < 1_000


@pytest.mark.engine_neutral
def test_a_copy_without_its_value_is_not_taken_for_a_tombstone(world: World) -> None:
    """It only says where its record is: it is neither handled nor sent back, and stays on the topic."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic)
    def handle(record):
        with calls.call(record):
            pass

    world.run(app)
    for action in ("handle", "replay"):
        app.errors = ErrorConsumer(action=action, **ALL)
        world.produce_to(error_topic(app).name, [Row(b"k", None, copy_of(topic, app, reduced="value"))])
        assert world.run_errors(app).skipped == 1
    assert (calls.calls(), world.output(topic)) == ([], [])


@pytest.mark.engine_neutral("handle")
@pytest.mark.parametrize("action", ["handle", "replay"])
def test_records_of_a_key_keep_their_order_in_a_run(world: World, action: str) -> None:
    """As for the handler: lanes run keys side by side and each key in order, past one that is parked again."""
    app, topic, calls = world.app(), world.topic(2), world.recorder

    @app.handler(topic, lanes=8, retry=Retry(attempts=2, backoff="50ms"))
    def handle(record):
        if record.origin is None:
            raise Reject("first")
        with calls.call(record, value=record.value.decode()):
            if record.value == b"03":
                raise ValueError("again")

    app.errors = ErrorConsumer(action=action, **ALL)
    rows = [Row(b"k%d" % key, b"%02d" % n) for n in range(12) for key in range(6)]
    world.produce(topic, rows)
    world.run(app)
    tally = world.run_errors(app)
    expected = [f"{n:02d}" for n in range(12)]
    if action == "replay":
        came = [record for record in world.output(topic) if record.header("laneway-errors")]
        found = {row.key: [record.raw.decode() for record in came if record.key == row.key] for row in rows}
    else:
        assert overlaps(calls.calls(), lambda call: call.keys) == []
        assert (tally.handled, tally.parked, tally.retried) == (66, 6, 6)
        found = {
            row.key: list(dict.fromkeys(c.facts["value"] for c in calls.calls() if c.key == row.key)) for row in rows
        }
    assert set(map(tuple, found.values())) == {tuple(expected)}


@pytest.mark.engine_neutral
@pytest.mark.parametrize("mode", ["blocking", "ordered"])
def test_calls_in_place_apply_and_steps_do_not(world: World, mode: str) -> None:
    """A parked record has climbed its ladder: it is called as often as on one step, then parked again."""
    app, topic, calls = world.app(), world.topic(1), world.recorder
    app.errors = ErrorConsumer(**ALL)

    @app.handler(topic, retry=Retry.steps("1h", "2h", mode=mode, attempts=3, backoff="20ms"))
    def handle(record):
        with calls.call(record):
            raise ValueError

    world.create(error_topic(app).name, 1)
    world.produce_to(error_topic(app).name, [Row(b"k", b"v", copy_of(topic, app, attempts=9))])
    tally = world.run_errors(app)
    assert [call.attempt for call in calls.calls()] == [10, 11, 12]
    assert (tally.parked, tally.deferred, tally.retried) == (1, 0, 2)
    assert told(world.errors(app)[-1], "attempts", "errors") == [b"12", b"2"]


def test_an_app_that_parked_nothing_has_nothing_to_run(world: World) -> None:
    """No error topic, or an empty one, is no mistake; an error consumer need not be declared."""
    app, topic = world.app(), world.topic(2)

    @app.handler(topic)
    def handle(record):
        raise ValueError

    assert world.run_errors(app).read == 0
    world.run(app)
    assert world.run_errors(app).read == 0
