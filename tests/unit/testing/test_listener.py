"""On the fake each step of a test is a batch: its events arrive at once, and few of each kind."""

from __future__ import annotations

from laneway import App, Reject, Retry, Topic
from laneway.events import BatchHandled, CopyFailed, RecordHandled, RecordParked, RecordRetried, StateChanged
from laneway.testing import running

ORDERS = Topic("orders")


def produce(kafka, count, value=b"v"):
    for _ in range(count):
        kafka.produce(ORDERS.message(value, key="k"))


def test_each_step_is_a_batch_of_its_own():
    """The few events of each kind are counted again, batches are numbered, and their counts are of the step alone."""
    app, parked, batches = App("billing"), [], []

    @app.handler(ORDERS)
    def charge(record):
        raise Reject("no")

    app.on(RecordParked)(parked.append)
    app.on(BatchHandled)(batches.append)
    with running(app) as kafka:
        produce(kafka, 30)
        kafka.drain()
        assert len(parked) == 20
        produce(kafka, 5)
        kafka.drain()
        kafka.drain()

        assert len(parked) == 25
        assert [(batch.topic, batch.batch, batch.tally.read, batch.tally.parked) for batch in batches] == [
            ("orders", 1, 30, 30),
            ("orders", 2, 5, 5),
        ]
        assert len(kafka.tally.events) == 20


def test_events_come_while_the_test_waits_for_them():
    """A retry when it fails, the trouble of a topic when it has it, the end when it is safe; in this order."""
    app, told = App("billing"), []
    receipts = Topic("receipts")

    @app.handler(ORDERS, retry=Retry(attempts=2, backoff="5s", jitter=0))
    def charge(record):
        if record.attempt == 1:
            raise ConnectionError
        return receipts.message(b"paid")

    app.on(StateChanged, RecordRetried, CopyFailed, RecordHandled)(lambda event: told.append(type(event).__name__))
    with running(app) as kafka:
        produce(kafka, 1)
        kafka.fail_writes(receipts)
        kafka.drain()
        assert told == [*["StateChanged"] * 3, "RecordRetried"]
        kafka.advance("5s")
        assert told[4:] == ["CopyFailed"]
        kafka.heal(receipts)
        kafka.advance("5s")
        assert told[-1] == "RecordHandled"
    assert told[-1] == "StateChanged"


def test_what_a_crash_undid_is_reported_again():
    """A crash reports nothing; the records that run again do."""
    app, told = App("billing"), []

    @app.handler(ORDERS)
    def charge(record):
        return None

    app.on(RecordHandled, StateChanged, BatchHandled)(told.append)
    with running(app) as kafka:
        produce(kafka, 1)
        kafka.drain()
        kafka.crash()
        produce(kafka, 1)
        kafka.drain()

    assert [str(event) for event in told if not isinstance(event, RecordHandled)] == [
        "initialising",
        "starting",
        "consuming",
        "batch 1 of orders: 1 read",
        "initialising",
        "starting",
        "consuming",
        "batch 2 of orders: 1 read",
        "closing (closing)",
        "stopped",
    ]
    assert len({event.offset for event in told if isinstance(event, RecordHandled)}) == 2
