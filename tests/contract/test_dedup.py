"""Handlers with a dedup store, on every engine."""

from __future__ import annotations

import random
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from laneway import Batch, ErrorConsumer, Message, Record, Retry, Topic, by_field, by_header
from laneway.dedup import OffsetDedup, SqliteDedup
from support.contract import Row

if TYPE_CHECKING:
    from pathlib import Path

    from laneway import App
    from support.contract import World


def row(number: int, value: bytes | None = None) -> Row:
    return Row(b"k%d" % (number % 9), value or b"v%d" % number, headers=[("id", b"%d" % number)])


def repeated(count: int) -> tuple[list[Row], int]:
    """That many ids, three in ten of them twice, in a mixed order that keeps first ones first."""
    rng = random.Random(7)
    numbers = list(range(count))
    repeats = rng.sample(numbers, count * 3 // 10)
    for number in repeats:
        numbers.insert(rng.randrange(numbers.index(number) + 1, len(numbers) + 1), number)
    return [row(number) for number in numbers], len(repeats)


def store_in(path: Path, **options: Any) -> SqliteDedup:
    return SqliteDedup(path / "ids.db", id=by_header("id"), **options)


def declare(kind: str, app: App, topic: Topic[Any], calls: Any, **options: Any) -> None:
    if kind == "sync":

        @app.handler(topic, lanes=8, **options)
        def handle(record: Record[bytes]) -> None:
            with calls.call(record, values=[record.value.decode()]):
                pass

    elif kind == "async":

        @app.handler(topic, lanes=8, **options)
        async def handle(record: Record[bytes]) -> None:
            with calls.call(record, values=[record.value.decode()]):
                pass

    elif kind == "batch":

        @app.batch_handler(topic, size=20, within="50ms", lanes=2, **options)
        def handle(batch: Batch[bytes]) -> None:
            with calls.call(*batch, values=[value.decode() for value in batch.values]):
                pass

    else:

        @app.batch_handler(topic, size=20, within="50ms", lanes=2, **options)
        async def handle(batch: Batch[bytes]) -> None:
            with calls.call(*batch, values=[value.decode() for value in batch.values]):
                pass


@pytest.mark.parametrize("kind", ["sync", "async", "batch", "async batch"])
def test_each_id_is_handled_once(world: World, kind: str, tmp_path: Path) -> None:
    """A message that was written twice is handled once, in one run and in the next."""
    app, topic, calls = world.app(), world.topic(3), world.recorder
    declare(kind, app, topic, calls, dedup=store_in(tmp_path))
    rows, repeats = repeated(200)
    world.produce(topic, rows)
    tally = world.run(app)
    assert (tally.handled, tally.duplicates, tally.parked) == (200, repeats, 0)
    world.produce(topic, rows[:20])
    assert world.run(app).duplicates == 20
    called = [value for call in calls.calls() for value in call.facts["values"]]
    assert sorted(called) == sorted({row.value.decode() for row in rows if row.value is not None})
    assert world.committed(app, topic) == world.ends(topic)


def test_one_id_with_another_payload_is_parked(world: World, tmp_path: Path) -> None:
    """It is no repeat but something else, so it is neither skipped nor handled. So is a record without an id."""
    app, topic, calls = world.app(), world.topic(1), world.recorder
    declare("sync", app, topic, calls, dedup=store_in(tmp_path))
    world.produce(topic, [row(1), row(1, b"else"), row(1), Row(b"k", b"none")])
    tally = world.run(app)
    assert (tally.handled, tally.duplicates, tally.parked) == (1, 1, 2)
    errors = [record.header("laneway-error-message") or b"" for record in world.errors(app)]
    assert sorted(text.partition(b" ")[0] for text in errors) == [b"id", b"the"]
    assert b"id 1 was used before with another key or value" in errors
    assert b"the record has no id" in errors


@pytest.mark.parametrize(
    "retry", [Retry(attempts=2, backoff="10ms"), Retry.steps("50ms"), Retry.steps("50ms", mode="ordered")]
)
def test_a_record_that_failed_is_tried_again(world: World, retry: Retry, tmp_path: Path) -> None:
    """In place or by way of a retry topic: its claim does not stand in its way, and it is handled once."""
    app, topic, calls = world.app(), world.topic(2), world.recorder

    @app.handler(topic, lanes=4, retry=retry, dedup=store_in(tmp_path))
    def handle(record: Record[bytes]) -> None:
        if record.attempt == 1 and record.origin is None:
            raise RuntimeError("not yet")
        with calls.call(record):
            pass

    rows, repeats = repeated(30)
    world.produce(topic, rows)
    tally = world.finish(app)
    assert (tally.handled, tally.duplicates, tally.parked) == (30, repeats, 0)
    assert len(calls.calls()) == 30


def test_the_id_of_a_parked_record_is_free(world: World, tmp_path: Path) -> None:
    """A run over the error topic can handle it."""
    app, topic, calls, store = world.app(), world.topic(1), world.recorder, store_in(tmp_path)
    path = tmp_path / "repaired"
    app.errors = ErrorConsumer(stop_when_new="0s")

    @app.handler(topic, dedup=store)
    def handle(record: Record[bytes]) -> None:
        if not path.exists():
            raise RuntimeError("broken")
        with calls.call(record):
            pass

    world.produce(topic, [row(1)])
    assert world.run(app).parked == 1
    scope = f"{app.name}.handle"
    assert store.get("1", scope=scope) is None
    path.touch()
    assert world.run_errors(app).handled == 1
    found = store.get("1", scope=scope)
    assert found is not None
    assert found.state == "done"
    world.produce(topic, [row(1)])
    assert world.run(app).duplicates == 1


def test_messages_of_a_repeat_are_sent_once(world: World, tmp_path: Path) -> None:
    """What the handler returns is acknowledged before its record is marked."""
    app, topic, target = world.app(), world.topic(2), world.topic(1)

    @app.handler(topic, lanes=4, dedup=store_in(tmp_path))
    def handle(record: Record[bytes]) -> Message[bytes]:
        return target.message(record.value)

    rows, repeats = repeated(40)
    world.produce(topic, rows)
    tally = world.run(app)
    assert (tally.handled, tally.duplicates) == (40, repeats)
    values = [record.value for record in world.output(target)]
    assert sorted(values) == sorted({row.value for row in rows})


def test_ids_come_from_a_field_or_a_function(world: World, tmp_path: Path) -> None:
    """A field of the JSON value is an id as good as a header."""
    app, topic, calls = world.app(), world.topic(2), world.recorder
    store = SqliteDedup(tmp_path / "ids.db", id=by_field("event.id"))
    declare("sync", app, topic, calls, dedup=store)
    values = [b'{"event": {"id": "a"}}', b'{"event": {"id": "b"}}', b'{"event": {"id": "a"}}']
    world.produce(topic, [Row(None, value) for value in values])
    tally = world.run(app)
    assert (tally.handled, tally.duplicates) == (2, 1)
    assert store.get("a", scope=f"{app.name}.handle") is not None


@pytest.mark.parametrize("is_batch", [False, True])
def test_the_effect_and_the_mark_are_one_transaction(world: World, tmp_path: Path, *, is_batch: bool) -> None:
    """A handler that fails after its transaction had its effect, and is not called again; one before has none."""
    app, topic, path = world.app(), world.topic(2), tmp_path / "bank.db"
    with sqlite3.connect(path) as sql:
        sql.execute("PRAGMA journal_mode = WAL")
        sql.execute("CREATE TABLE effect (value BLOB)")
    sql.close()
    bank = SqliteDedup(path, id=by_header("id"))

    def apply(records: Record[bytes] | Batch[bytes], values: list[bytes], attempt: int) -> None:
        with bank.transaction(records) as sql:
            sql.executemany("INSERT INTO effect VALUES (?)", [(value,) for value in values])
            if attempt == 1:
                raise RuntimeError("rolled back")
        raise RuntimeError("too late")

    options: dict[str, Any] = {"retry": Retry(attempts=50, backoff="1ms"), "dedup": bank}
    if is_batch:

        @app.batch_handler(topic, size=10, within="20ms", **options)
        def store(batch: Batch[bytes]) -> None:
            apply(batch, batch.values, batch.records[0].attempt)

    else:

        @app.handler(topic, lanes=4, **options)
        def handle(record: Record[bytes]) -> None:
            apply(record, [record.value], record.attempt)

    rows, _ = repeated(40)
    world.produce(topic, rows)
    tally = world.finish(app)
    assert (tally.duplicates, tally.parked) == (len(rows), 0)
    with sqlite3.connect(path) as sql:
        values = [value for (value,) in sql.execute("SELECT value FROM effect")]
    sql.close()
    assert sorted(values) == sorted({row.value for row in rows})


@pytest.mark.parametrize("is_batch", [False, True])
def test_the_next_offset_is_in_the_transaction(world: World, tmp_path: Path, *, is_batch: bool) -> None:
    """After a run the table has the ends of the partitions, and each record had its effect once."""
    app, topic, path = world.app(), world.topic(3), tmp_path / "bank.db"
    bank = OffsetDedup(f"sqlite:{path}")
    with bank.connect(autocommit=True) as sql:
        sql.execute("CREATE TABLE effect (value BLOB)")
        sql.commit()
    sql.close()
    options: dict[str, Any] = {"retry": Retry(attempts=3, backoff="1ms"), "dedup": bank}

    def apply(records: Record[bytes] | Batch[bytes], values: list[bytes], attempt: int) -> None:
        with bank.transaction(records) as sql:
            sql.executemany("INSERT INTO effect VALUES (?)", [(value,) for value in values])
            if attempt == 1 and b"v7" in values:
                raise RuntimeError("rolled back")
        if b"v8" in values:
            raise RuntimeError("too late")

    if is_batch:

        @app.batch_handler(topic, size=10, within="20ms", **options)
        def store(batch: Batch[bytes]) -> None:
            apply(batch, batch.values, batch.records[0].attempt)

    else:

        @app.handler(topic, **options)
        async def handle(record: Record[bytes]) -> None:
            apply(record, [record.value], record.attempt)

    world.produce(topic, [row(number) for number in range(60)])
    tally = world.finish(app)
    assert tally.handled + tally.duplicates == 60
    assert tally.duplicates >= 1
    with sqlite3.connect(path) as sql:
        values = [value for (value,) in sql.execute("SELECT value FROM effect")]
        ends = dict(sql.execute("SELECT partition, next_offset FROM laneway_offsets").fetchall())
    sql.close()
    assert sorted(values) == sorted(b"v%d" % number for number in range(60))
    assert ends == {partition: end for partition, end in world.ends(topic).items() if end}
    assert world.committed(app, topic) == world.ends(topic)
