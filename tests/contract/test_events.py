"""Subscribers get events in the process that runs the app."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from laneway import Breaker, Reject, Retry, Skip
from laneway.events import (
    BatchHandled,
    BreakerClosed,
    BreakerOpened,
    RecordDeferred,
    RecordHandled,
    RecordParked,
    RecordRetried,
    RecordSkipped,
    StateChanged,
)
from support.contract import Row

if TYPE_CHECKING:
    from support.contract import World


def test_every_outcome_is_an_event_in_its_order(world: World) -> None:
    """Place, attempt and reason are there; a subscriber that holds a lock does not keep the app from travelling."""
    app, topic = world.app(), world.topic(1)
    told, lock, here = [], threading.Lock(), os.getpid()

    @app.handler(topic, lanes=1, retry=Retry(attempts=2, backoff="10ms", jitter=0))
    def handle(record):
        if record.value == b"skip":
            raise Skip("no need")
        if record.value == b"reject":
            raise Reject("negative total")
        if record.value == b"flaky" and record.attempt == 1:
            raise ConnectionError("away")

    @app.on(RecordHandled, RecordSkipped, RecordRetried, RecordParked)
    def note(event):
        with lock:
            assert os.getpid() == here
            told.append(event)

    world.produce(topic, [Row(b"k", value) for value in (b"fine", b"skip", b"reject", b"flaky", b"fine")])
    world.run(app)

    assert [(type(event).__name__, event.offset, event.attempt) for event in told] == [
        ("RecordHandled", 0, 1),
        ("RecordSkipped", 1, 1),
        ("RecordParked", 2, 1),
        ("RecordRetried", 3, 1),
        ("RecordHandled", 3, 2),
        ("RecordHandled", 4, 1),
    ]
    assert {(event.handler, event.topic, event.partition) for event in told} == {("handle", topic.name, 0)}
    assert told[1].error == "no need"
    assert (told[2].error, told[2].error_topic) == ("Reject: negative total", app.routes[0].error_topic_of(app.name))
    assert (told[3].error, told[3].pause.total_seconds()) == ("ConnectionError: away", 0.01)


def test_a_deferred_record_is_an_event_with_its_step(world: World) -> None:
    """When its copy is safe on the retry topic, and again when it is handled there."""
    app, topic, told = world.app(), world.topic(1), []

    @app.handler(topic, lanes=1, retry=Retry.steps("200ms"))
    def handle(record):
        if record.attempt == 1:
            raise ConnectionError("away")

    app.on(RecordDeferred, RecordHandled)(told.append)
    world.produce(topic, [Row(b"k", b"v")])
    tally = world.finish(app)

    assert (tally.deferred, tally.handled) == (1, 1)
    deferred, handled = told
    assert (deferred.topic, deferred.step, deferred.attempt, deferred.error) == (
        topic.name,
        1,
        1,
        "ConnectionError: away",
    )
    assert (handled.topic, handled.attempt) == (app.routes[0].retry_topic_of(app.name, 1), 2)


def test_batches_have_exact_counts_and_few_events(world: World) -> None:
    """However many records fail, a batch brings 20 events of a kind and 3 of the good ones; its counts are exact."""
    app, topic = world.app(), world.topic(1)
    batches, parked, handled = [], [], []

    @app.handler(topic, lanes=4)
    def handle(record):
        if record.offset % 2:
            raise Reject("odd")

    app.on(BatchHandled)(batches.append)
    app.on(RecordParked)(parked.append)
    app.on(RecordHandled)(handled.append)
    world.produce(topic, [Row(b"%d" % (number % 7), b"") for number in range(200)])
    tally = world.run(app)

    assert sum(batch.tally.read for batch in batches) == tally.read == 200
    assert sum(batch.tally.handled for batch in batches) == tally.handled == 100
    assert sum(batch.tally.parked for batch in batches) == tally.parked == 100
    assert sum(sum(batch.tally.latency.values()) for batch in batches) == 200
    assert [batch.batch for batch in batches] == sorted({batch.batch for batch in batches})
    assert {batch.topic for batch in batches} == {topic.name}
    assert 20 <= len(parked) <= 20 * len(batches)
    assert 3 <= len(handled) <= 3 * len(batches)


def test_a_breaker_reports_when_it_opens_and_closes(world: World) -> None:
    """With what opened it and how long it was open; probes that fail in between are no events."""
    app, topic, calls, told = world.app(), world.topic(1), world.recorder, []

    @app.handler(topic, lanes=1, breaker=Breaker(failures=2, pause="100ms"), retry=Retry(attempts=3, backoff="10ms"))
    def handle(record):
        with calls.call(record):
            if len(calls.calls()) < 4:
                raise ConnectionError("refused")

    app.on(BreakerOpened, BreakerClosed)(told.append)
    world.produce(topic, [Row(b"k", b"v")])
    tally = world.finish(app)

    assert (tally.handled, tally.parked) == (1, 0)
    opened, closed = told
    assert (type(opened), opened.handler, opened.failures) == (BreakerOpened, "handle", 2)
    assert (opened.error, opened.pause.total_seconds()) == ("ConnectionError: refused", 0.1)
    assert (type(closed), closed.handler) == (BreakerClosed, "handle")
    assert 0.29 < closed.open_for.total_seconds() < 30


def test_a_subscriber_that_raises_harms_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The run goes on, other subscribers get the event, and each failure is one line."""
    app, topic, told = world.app(), world.topic(1), []

    @app.handler(topic)
    def handle(record):
        raise Reject("no")

    @app.on(RecordParked, BatchHandled)
    def broken(event):
        raise LookupError("nobody\nthere")

    app.on(RecordParked)(told.append)
    world.produce(topic, [Row(b"k", b"1"), Row(b"k", b"2")])
    tally = world.run(app)

    assert (tally.parked, [event.offset for event in told]) == (2, [0, 1])
    lines = [line for line in caplog.messages if "subscriber" in line]
    assert lines[0] == "subscriber 'broken' failed on RecordParked: LookupError: nobody there"
    assert len(lines) >= 3


def test_states_are_events(world: World) -> None:
    """An app that ran has been consuming and is stopped at last."""
    app, topic, states = world.app(), world.topic(1), []

    @app.handler(topic)
    def handle(record):
        return None

    app.on(StateChanged)(lambda event: states.append(event.state))
    world.produce(topic, [Row(b"k", b"1")])
    world.run(app)

    assert "consuming" in states
    assert states[-1] == "stopped"
    assert states.index("consuming") < len(states) - 1


@pytest.mark.engine_neutral
def test_columnar_handlers_report_their_first_rows(world: World) -> None:
    """Rows that were handled, tried again and parked, a few of each table."""
    app, topic, told = world.app(), world.topic(1), []

    @app.columnar_handler(topic, size=50, retry=Retry(attempts=2, backoff="10ms"))
    def handle(table):
        if b"bad" in table.column("value").to_pylist():
            raise ValueError("a bad one")

    app.on(RecordHandled, RecordRetried, RecordParked)(told.append)
    world.produce(topic, [Row(b"k", b"fine") for _ in range(50)])
    world.run(app)
    assert [(type(event).__name__, event.offset) for event in told] == [("RecordHandled", n) for n in range(3)]

    told.clear()
    world.produce(topic, [Row(b"k", b"bad"), Row(b"k", b"fine")])
    world.run(app)
    assert [(type(event).__name__, event.offset, event.attempt) for event in told] == [
        ("RecordRetried", 50, 1),
        ("RecordParked", 50, 2),
        ("RecordParked", 51, 2),
    ]
