"""A tally keeps the first few events of each kind; whoever listens is told of all."""

from __future__ import annotations

from datetime import timedelta

import pytest

from laneway import Reject
from laneway._core.decide import ERROR_TOPIC
from laneway._core.events import EventEmitter
from laneway._core.headers import Failure
from laneway._core.processor import Processor
from laneway.errors import ProduceError
from laneway.events import (
    BreakerOpened,
    CopyFailed,
    InterceptorFailed,
    RecordDeferred,
    RecordDropped,
    RecordParked,
    RecordRetried,
)
from laneway.observe import Tally
from support.core import FakeClock, FakeSender, Heard, make_record, make_route

ERROR = ConnectionError("away " * 200)
FAILURE = Failure.of(ERROR)
WAYS = {
    RecordRetried: lambda events, record: events.retried(record, ERROR, 1.0),
    RecordDeferred: lambda events, record: events.deferred(record, FAILURE, 1),
    RecordParked: lambda events, record: events.parked(record, FAILURE, "errors"),
    RecordDropped: lambda events, record: events.dropped(record, FAILURE),
    CopyFailed: lambda events, record: events.copy_failed("out", ERROR, record.offset),
    InterceptorFailed: lambda events, record: events.interceptor_failed("mask", record, ERROR),
    BreakerOpened: lambda events, record: events.emit(BreakerOpened("handle", 3, "E", timedelta(1))),
}


@pytest.mark.parametrize("kind", WAYS, ids=lambda kind: kind.__name__)
def test_few_of_each_kind_are_kept(kind):
    """However many there are, with short texts; a listener is told of each."""
    tally, heard = Tally(), Heard()
    emitter = EventEmitter(make_route(), tally, heard)
    silent = Tally()
    deaf = EventEmitter(make_route(), silent)
    for offset in range(50):
        WAYS[kind](emitter, make_record(offset))
        WAYS[kind](deaf, make_record(offset))

    assert [type(event) for event in tally.events] == [kind] * 20
    assert silent.events == tally.events
    assert len(heard.events) == 50
    assert heard.events[:20] == tally.events
    assert len(heard.events[0].error) <= 300
    assert heard.events[0].error in ("E", f"ConnectionError: {ERROR}"[:300])


def test_a_record_that_queues_behind_another_has_no_error():
    """It did not fail."""
    tally = Tally()
    EventEmitter(make_route(), tally).deferred(make_record(7), None, 2)

    assert tally.events == [RecordDeferred("handle", "orders", 0, 7, 1, "", 2)]


def test_parked_is_told_when_the_copy_is_safe():
    """Until then only that it cannot be written, each time it is tried."""
    clock, sender = FakeClock(), FakeSender([ProduceError("no leader"), ProduceError("no leader")])
    processor = Processor([make_route()], "billing", lanes=1, sender=sender, clock=clock)
    record = make_record(7)
    processor.steps[0].ledger.see(0, [7])
    processor.copy_rows([record], Reject("negative"), ERROR_TOPIC)
    for _ in range(3):
        clock.advance(10)
        processor.tick()
    topic = processor.spec.error_topic_of("billing")
    assert processor.tally.events == [CopyFailed("handle", topic, "ProduceError: no leader", tries) for tries in (1, 2)]

    for _ in range(2):
        clock.advance(10)
        processor.tick()
    assert processor.tally.events[2:] == [RecordParked("handle", "orders", 0, 7, 1, "Reject: negative", topic)]
    assert (processor.tally.undelivered, processor.tally.parked) == (2, 1)
