"""A micro-batch begins nothing more when its time is up, or when a pause or a stop asks for it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from laneway import Retry
from laneway.events import BatchHandled
from support.contract import Row, SparkWorld
from support.doors import State
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from laneway import App, Batch, Record
    from support.contract import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def world(spark: Any, cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> SparkWorld:
    """The shared Spark session, with batches that are short."""
    made = SparkWorld(tmp_path, request.node.nodeid, cluster)
    made.settings["spark.batch_time"] = "300ms"
    return made


@contextmanager
def running(app: App, engine: Any) -> Iterator[list[Any]]:
    """Run in the background; at the end it is stopped, and the list has its report."""
    reports: list[Any] = []
    thread = threading.Thread(target=lambda: reports.append(app.run(engine)))
    thread.start()
    try:
        yield reports
    finally:
        engine.stop()
        thread.join(60)
    assert reports


def in_order(world: SparkWorld) -> bool:
    """Whether the first calls of each key came in the order of its offsets."""
    offsets: dict[bytes | None, list[int]] = {}
    for call in world.recorder.calls():
        if call.attempt == 1:
            offsets.setdefault(call.key, []).append(call.offset)
    return all(found == sorted(found) for found in offsets.values())


def test_the_next_batch_goes_on_where_this_one_has_come_to(world: SparkWorld) -> None:
    """A backlog takes several batches: each record is handled once, those of a key in order."""
    topic, app, recorder, batches = world.topic(2), world.app(), world.recorder, []
    app.on(BatchHandled)(batches.append)

    @app.handler(topic, lanes=4)
    def work(record: Record[Any]) -> None:
        with recorder.call(record):
            time.sleep(0.02)

    world.produce(topic, [Row(b"k%d" % (number % 7)) for number in range(300)])
    tally = world.run(app)
    assert (tally.read, tally.handled) == (300, 300)
    assert len(batches) >= 3
    calls = Counter((call.partition, call.offset) for call in recorder.calls())
    assert len(calls) == 300
    assert set(calls.values()) == {1}
    assert in_order(world)
    assert world.committed(app, topic) == world.ends(topic)


def test_a_record_that_fails_for_longer_than_a_batch_is_parked_after_its_attempts(world: SparkWorld) -> None:
    """The end of a batch does not make it forget how often a record was tried; other keys go on in between."""
    topic, app, recorder = world.topic(1), world.app(), world.recorder

    @app.handler(topic, lanes=2, retry=Retry(attempts=4, backoff="400ms", backoff_max="400ms"))
    def work(record: Record[Any]) -> None:
        with recorder.call(record):
            time.sleep(0.01)
            if record.offset == 0:
                raise RuntimeError("planted")

    world.produce(topic, [Row(b"bad"), *(Row(b"k%d" % (number % 5)) for number in range(60)), Row(b"bad")])
    tally = world.run(app)
    assert (tally.handled, tally.parked) == (61, 1)
    assert [call.attempt for call in recorder.calls() if call.offset == 0] == [1, 2, 3, 4]
    assert len(world.errors(app)) == 1
    assert in_order(world)


def test_a_pause_ends_a_running_batch(world: SparkWorld) -> None:
    """It is paused long before the backlog is done; after the resume the rest is handled, each record once."""
    world.settings["spark.batch_time"] = "10m"
    topic, app, recorder = world.topic(1), world.app(), world.recorder

    @app.handler(topic, lanes=2)
    def work(record: Record[Any]) -> None:
        with recorder.call(record):
            time.sleep(0.05)

    world.produce(topic, [Row(b"k%d" % (number % 7)) for number in range(200)])
    engine = world.engine()
    with running(app, engine):
        eventually(lambda: len(recorder.calls()) > 10, timeout=60)
        engine.pause()
        eventually(lambda: engine.life.state is State.PAUSED, timeout=10)
        count = len(recorder.calls())
        assert count < 150
        assert sum(world.committed(app, topic).values()) > 0
        time.sleep(0.5)
        assert len(recorder.calls()) == count
        engine.resume()
        eventually(lambda: len(recorder.calls()) == 200, timeout=60)
    assert max(Counter(call.offset for call in recorder.calls()).values()) == 1
    assert in_order(world)


def test_a_stop_ends_a_running_batch_and_a_restart_repeats_nothing(world: SparkWorld) -> None:
    """What was begun is finished and committed; what was not is the next run's."""
    world.settings["spark.batch_time"] = "10m"
    topic, app, recorder = world.topic(1), world.app(), world.recorder

    @app.handler(topic, lanes=3)
    def work(record: Record[Any]) -> None:
        with recorder.call(record):
            # Keys of different pace: what is finished lies past what is not.
            time.sleep(0.1 if record.key == b"k0" else 0.01)

    world.produce(topic, [Row(b"k%d" % (number % 3)) for number in range(300)])
    engine = world.engine()
    with running(app, engine) as reports:
        eventually(lambda: len(recorder.calls()) > 40, timeout=60)
    assert not reports[0].was_forced
    assert len(recorder.calls()) < 300
    tally = world.run(app)
    assert tally.handled + reports[0].tally.handled == 300
    assert max(Counter(call.offset for call in recorder.calls()).values()) == 1
    assert in_order(world)


def test_handlers_of_one_topic_each_see_every_record_once(world: SparkWorld) -> None:
    """One is fast and one slow; none is ahead of the other at the end."""
    topic, app, recorder = world.topic(1), world.app(), world.recorder

    @app.handler(topic, lanes=4)
    def fast(record: Record[Any]) -> None:
        with recorder.call(record, name="fast"):
            pass

    @app.handler(topic, lanes=4)
    def slow(record: Record[Any]) -> None:
        with recorder.call(record, name="slow"):
            time.sleep(0.02)

    world.produce(topic, [Row(b"k%d" % (number % 7)) for number in range(200)])
    world.run(app)
    calls = Counter((call.facts["name"], call.offset) for call in recorder.calls())
    assert len(calls) == 400
    assert set(calls.values()) == {1}
    assert world.committed(app, topic) == world.ends(topic)


def test_a_batch_that_is_not_full_does_not_wait_past_its_micro_batch(world: SparkWorld) -> None:
    """What is there when all of it is read is called at once, whatever `within` says."""
    topic, app, recorder = world.topic(1), world.app(), world.recorder

    @app.batch_handler(topic, size=1_000, within=timedelta(hours=1))
    def work(batch: Batch[Any]) -> None:
        with recorder.call(*batch):
            pass

    world.produce(topic, [Row(b"k%d" % (number % 3)) for number in range(20)])
    began = time.monotonic()
    assert world.run(app).handled == 20
    assert time.monotonic() - began < 30
    assert sum(len(call.offsets) for call in recorder.calls()) == 20


def test_the_newest_record_of_a_key_has_the_last_word_over_batches(world: SparkWorld) -> None:
    """A unique handler that fails for longer than a batch is not called with an older record afterwards."""
    topic, app, recorder = world.topic(1), world.app(), world.recorder

    @app.unique_handler(topic, lanes=2, size=3, retry=Retry(attempts=5, backoff="300ms", backoff_max="300ms"))
    def work(batch: Batch[Any]) -> None:
        time.sleep(0.02)
        for record in batch:
            if record.key == b"k0" and record.attempt < 4:
                batch.retry(record)
            else:
                with recorder.call(record):
                    pass

    world.produce(topic, [Row(b"k%d" % (number % 3)) for number in range(60)])
    tally = world.run(app)
    assert tally.handled + tally.superseded == 60
    last = {call.key: call.offset for call in recorder.calls()}
    assert last == {b"k0": 57, b"k1": 58, b"k2": 59}
    assert all(
        found == sorted(found)
        for found in ([call.offset for call in recorder.calls() if call.key == key] for key in last)
    )
