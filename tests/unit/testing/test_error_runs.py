"""Runs over error topics on the fake: on request, on a schedule in virtual time, and after a crash."""

from __future__ import annotations

import asyncio

import pytest

from laneway import App, ErrorConsumer, Topic
from laneway.errors import EngineError
from laneway.events import BatchHandled, RecordParked, RecordSkipped, StateChanged
from laneway.testing import FakeEngine, FakeKafka, running

ORDERS = Topic("orders")
ERRORS = "orders.billing.error"


def billing(**fields):
    """An app whose handler fails on records that come from the source, and takes a while on others."""
    app = App("billing", errors=ErrorConsumer(**fields))
    calls = []

    @app.handler(ORDERS, lanes=4)
    async def charge(record):
        if record.origin is None:
            raise ValueError("first")
        calls.append((record.value, app.clock.wall() if hasattr(app, "clock") else 0.0))
        if record.value.startswith(b"slow"):
            await asyncio.sleep(int(record.value[4:]) * 60)
        if record.value == b"bad":
            raise ValueError("again")

    return app, calls


def produce(kafka, *values, partition=0):
    for value in values:
        kafka.produce(ORDERS.message(value, key=value, partition=partition))
    kafka.drain()


def at_minutes(kafka, calls):
    return [(value, round((wall - 1_704_067_200) / 60)) for value, wall in calls]


@pytest.fixture
def kafka():
    return FakeKafka(partitions=1)


def scheduled(kafka, **fields):
    app, calls = billing(**{"cron": "*/10 * * * *", **fields})
    app.clock = kafka.clock
    return app, calls


def test_runs_begin_on_their_schedule(kafka):
    """Every ten minutes of virtual time, and what was parked less than five minutes before waits for the next."""
    app, calls = scheduled(kafka)
    with running(app, kafka=kafka):
        produce(kafka, b"a")
        kafka.advance("9m")
        assert calls == []
        produce(kafka, b"b")
        kafka.advance("1m")
        assert at_minutes(kafka, calls) == [(b"a", 10)]
        assert kafka.committed("billing.errors", ERRORS) == {0: 1}
        kafka.advance("1h")
        assert at_minutes(kafka, calls) == [(b"a", 10), (b"b", 20)]
        assert (kafka.error_runs.runs, kafka.error_runs.left_out, kafka.error_runs.failed) == (7, 0, 0)
        assert (kafka.error_runs.tally.handled, kafka.tally.parked) == (2, 2)


def test_a_run_that_is_due_during_another_is_left_out(kafka):
    """A run of 25 minutes on a schedule of ten: no two calls of a record, two runs left out, the next in time."""
    app, calls = scheduled(kafka)
    with running(app, kafka=kafka):
        produce(kafka, b"slow25", b"slow3")
        kafka.advance("40m")
        assert at_minutes(kafka, calls) == [(b"slow25", 10), (b"slow3", 10)]
        assert (kafka.error_runs.runs, kafka.error_runs.left_out) == (2, 2)
        assert kafka.error_runs.tally.handled == 2


def test_a_run_on_request_does_not_overlap_one_on_schedule(kafka):
    """It is refused while one is under way, and works when that is over."""
    app, _ = scheduled(kafka)
    with running(app, kafka=kafka):
        produce(kafka, b"slow5")
        kafka.advance("12m")
        with pytest.raises(EngineError, match="is under way"):
            kafka.run_errors(app)
        kafka.advance("5m")
        assert kafka.run_errors(app).read == 0
        assert kafka.error_runs.tally.handled == 1


@pytest.mark.parametrize("fields", [{"enabled": False}, {"cron": None}])
def test_without_a_schedule_no_run_begins(kafka, fields):
    """On request it still does."""
    app, calls = scheduled(kafka, **fields)
    with running(app, kafka=kafka):
        produce(kafka, b"a")
        kafka.advance("3h")
        assert calls == []
        assert kafka.run_errors(app).handled == 1


def test_an_engine_that_runs_once_starts_no_runs(kafka):
    """What it is asked for is what there is."""
    app, calls = scheduled(kafka, stop_when_new="0s")
    kafka.produce(ORDERS.message(b"a", key="a"))
    app.run(FakeEngine(kafka))
    app.run(FakeEngine(kafka))
    assert (calls, kafka.error_runs.runs) == ([], 0)
    assert kafka.run_errors(app).handled == 1


def test_no_run_begins_after_the_end(kafka):
    """The schedule ends with the app, and so does a run that is under way; the next app begins where it stopped."""
    app, calls = scheduled(kafka)
    with running(app, kafka=kafka):
        produce(kafka, b"slow5")
        kafka.advance("11m")
    assert kafka.committed("billing.errors", ERRORS) == {0: 0}
    with running(app, kafka=kafka):
        kafka.advance("30m")
    assert at_minutes(kafka, calls) == [(b"slow5", 10), (b"slow5", 20)]


def test_after_a_crash_nothing_is_lost_and_nothing_parked_twice(kafka):
    """A record whose copy is safe is left out; the copy itself, which looks the same, is not."""
    app, calls = scheduled(kafka, max_errors=None)
    with running(app, kafka=kafka):
        produce(kafka, b"slow15", b"bad")
        kafka.advance("12m")  # `bad` was parked again, `slow15` before it is unfinished
        assert [record.raw for record in kafka.records(ERRORS)] == [b"slow15", b"bad", b"bad"]
        assert kafka.committed("billing.errors", ERRORS) == {0: 0}
        kafka.crash()
        kafka.advance("25m")
        assert [record.raw for record in kafka.records(ERRORS)] == [b"slow15", b"bad", b"bad", b"bad"]
        assert [value for value, _ in calls] == [b"slow15", b"bad", b"slow15", b"bad"]
        assert kafka.committed("billing.errors", ERRORS) == {0: 3}
        kafka.advance("10m")
        assert [value for value, _ in calls][4:] == [b"bad"]


def test_a_run_whose_records_are_gone_goes_on(kafka):
    """Retention took some: they are counted, and the rest is run."""
    app, calls = scheduled(kafka, stop_when_new="0s")
    with running(app, kafka=kafka):
        produce(kafka, b"a", b"b", b"c")
        kafka.delete_records(ERRORS, 0, 2)
        kafka.advance("10m")
        assert ([value for value, _ in calls], kafka.error_runs.failed) == ([b"c"], 0)


def test_setup_hooks_run_once_in_a_process(kafka):
    """A run beside the app shares what the app has set up; one without it has hooks of its own."""
    app, _ = scheduled(kafka, stop_when_new="0s")
    hooks = []
    app.setup(lambda: hooks.append("setup"))
    app.cleanup(lambda: hooks.append("cleanup"))
    with running(app, kafka=kafka):
        produce(kafka, b"a")
        kafka.advance("10m")
        kafka.run_errors(app)
        assert (hooks, kafka.error_runs.runs) == (["setup"], 2)
    hooks.clear()
    kafka.run_errors(app)
    assert hooks == ["setup", "cleanup"]


def test_subscribers_get_events(kafka):
    """Of records and batches as ever, with why one is not run; not that the app begins or ends."""
    app, _ = scheduled(kafka, max_errors=2)
    told = []
    app.on(RecordParked, RecordSkipped, BatchHandled, StateChanged)(told.append)
    with running(app, kafka=kafka):
        produce(kafka, b"bad")
        told.clear()
        kafka.advance("40m")
    kinds = [type(event).__name__ for event in told]
    assert kinds == ["RecordParked", "BatchHandled", "RecordSkipped", "BatchHandled", "StateChanged", "StateChanged"]
    assert (told[0].topic, told[0].error_topic, told[1].topic) == (ERRORS, ERRORS, ERRORS)
    assert (told[2].error, told[-1].state) == ("it has been parked 2 times", "stopped")


def test_an_app_need_not_run_for_a_run_on_request(kafka):
    """The error topics are made like those of their app when they are not there."""
    app, _ = billing()
    kafka.create("orders", 3)
    assert kafka.run_errors(app).read == 0
    assert len(kafka.ends(ERRORS)) == 3
