"""Health checks and the calls of an engine on the fake, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from laneway import App, ErrorConsumer, Topic
from laneway._declare.state import State
from laneway.errors import EngineError
from laneway.events import RecordHandled
from laneway.testing import FakeEngine, FakeKafka, running

ORDERS = Topic("orders")


def billing():
    app, seen = App("billing"), []

    @app.handler(ORDERS)
    async def charge(record):
        seen.append(record.value)

    return app, seen


@pytest.fixture
def kafka():
    return FakeKafka(partitions=1)


def test_a_check_is_called_once_a_virtual_second(kafka):
    """Also while nothing is to be handled."""
    app, _ = billing()
    asked = []
    with running(app, kafka=kafka, healthy=lambda: asked.append(kafka.clock.monotonic())):
        kafka.advance("10s")
    assert [round(at - asked[0]) for at in asked] == list(range(11))


def test_an_async_check_that_does_not_answer_counts_as_no_after_five_seconds(kafka):
    """Its last answer holds until then; it is called again, and continues when it answers."""
    app, seen = billing()
    pauses = iter([0, 20, 0])

    async def bank():
        await asyncio.sleep(next(pauses, 0))

    with running(app, kafka=kafka, healthy=bank):
        kafka.advance("5500ms")
        (member,) = kafka.members(app)
        assert member.state is State.CONSUMING
        kafka.advance("1s")
        kafka.produce(ORDERS.message(b"1"))
        kafka.drain()
        assert (member.state, seen) == (State.PAUSED, [])
        assert "failed: TimeoutError: no answer within 5s" in str(member.health())
        kafka.advance("1s")
        assert (member.state, seen) == (State.CONSUMING, [b"1"])


def test_an_error_of_a_check_counts_as_no_and_is_named(kafka):
    """The text of the error is in the state's detail and in what `finish` raises."""
    app, seen = billing()

    def bank():
        raise ConnectionError("closed")

    with running(app, kafka=kafka, healthy=bank):
        kafka.produce(ORDERS.message(b"1"))
        with pytest.raises(EngineError, match=r"is paused, so its records wait: the check 'bank' failed: .*closed"):
            kafka.finish(within="1m")
        assert kafka.members(app)[0].life.detail.endswith("ConnectionError: closed")
    assert seen == []


def test_a_check_pauses_a_fake_engine_until_it_says_yes(kafka):
    """Virtual time passes in `run`, so a check that waits for a time is waited for."""
    app, seen = billing()
    kafka.produce(ORDERS.message(b"1"))
    opens = kafka.clock.monotonic() + 60
    report = app.run(FakeEngine(kafka, healthy=lambda: kafka.clock.monotonic() >= opens))
    assert (seen, report.tally.handled) == ([b"1"], 1)
    assert kafka.clock.monotonic() >= opens


def test_no_error_run_begins_while_the_app_is_paused(kafka):
    """The next one that is due after `resume` does."""
    app = App("billing", errors=ErrorConsumer(cron="*/10 * * * *", stop_when_new="0s"))

    @app.handler(ORDERS)
    def charge(record):
        if record.origin is None:
            raise ValueError

    with running(app, kafka=kafka):
        kafka.produce(ORDERS.message(b"1"))
        kafka.drain()
        (member,) = kafka.members(app)
        member.pause()
        kafka.advance("25m")
        assert kafka.error_runs.runs == 0
        member.resume()
        kafka.advance("10m")
        assert (kafka.error_runs.runs, kafka.error_runs.tally.handled) == (1, 1)


def test_a_handler_stops_the_fake_engine_that_runs_it(kafka):
    """What was not begun stays unfinished, and the next run handles it."""
    app, engine, seen = App("billing"), FakeEngine(kafka), []

    @app.handler(ORDERS)
    def charge(record):
        seen.append(record.value)
        engine.stop()

    kafka.produce(*[ORDERS.message(b"%d" % n, key="k") for n in range(3)])
    app.run(engine)
    assert seen == [b"0"]
    assert kafka.committed(app, ORDERS) == {0: 1}
    app.run(engine)
    assert seen == [b"0", b"1"]


def test_calls_that_cannot_be_honoured_are_errors(kafka):
    """Outside of a run of a `FakeEngine`, and time cannot pass inside a handler."""
    app, _ = billing()
    engine = FakeEngine(kafka)
    for call in (engine.stop, engine.close, engine.pause, engine.resume, engine.stop_listening, engine.start):
        with pytest.raises(EngineError, match="no run is active"):
            call()
    assert engine.wait_for(State.STOPPED)
    with pytest.raises(EngineError, match="use running"):
        engine.wait_for(State.CONSUMING)
    with running(app, kafka=kafka):
        (member,) = kafka.members(app)
        with pytest.raises(EngineError, match="does not run"):
            member.start()
        errors = []

        def waits(_event):
            with pytest.raises(EngineError, match="only the test itself can") as raised:
                member.wait_for(State.PAUSED)
            errors.append(raised)

        app.on(RecordHandled)(waits)
        kafka.produce(ORDERS.message(b"1", key="a"))
        kafka.drain()
        assert len(errors) == 1
