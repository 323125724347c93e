"""running: steps in virtual time, faults, crashes and seeds."""

from __future__ import annotations

import asyncio
import time
from typing import get_args

import pytest

from laneway import App, Json, Retry, Topic
from laneway.errors import DataLossError, DeclarationError, EngineError, MessageTooLargeError
from laneway.settings import Settings
from laneway.testing import FakeEngine, FakeKafka, running

ORDERS = Topic("orders")


def app_of(function, **options) -> App:
    app = App("billing")
    app.handler(ORDERS, **options)(function)
    return app


def test_a_long_sleep_takes_no_real_time():
    """Hours of an async handler pass in an instant, and on the fake clock."""

    async def handle(record):
        await asyncio.sleep(1800)

    began = time.monotonic()
    with running(app_of(handle)) as kafka:
        kafka.produce(ORDERS.message(b"", key="a"), ORDERS.message(b"", key="a"))
        before = kafka.clock.wall()
        kafka.drain(within="2h")
        assert (kafka.tally.handled, kafka.clock.wall() - before) == (2, 3600.0)
    assert time.monotonic() - began < 2


def test_drain_does_not_wait_for_a_back_off():
    """A record that failed stays where it is until time is moved to its next attempt."""
    attempts = []

    def handle(record):
        attempts.append(record.attempt)
        raise ValueError

    with running(app_of(handle, retry=Retry(attempts=3, backoff="5s", jitter=0))) as kafka:
        kafka.produce(ORDERS.message(b"", key="a"))
        kafka.drain()
        assert attempts == [1]
        kafka.advance("4999ms")
        assert attempts == [1]
        kafka.advance("1ms")
        assert attempts == [1, 2]
        kafka.advance("10s")
        assert (attempts, len(kafka.errors(app_of(handle)))) == ([1, 2, 3], 1)


def test_a_columnar_back_off_waits_for_time_too():
    """A table that failed is tried again when its pause is over, not before, and is not committed meanwhile."""
    app, sizes = App("billing"), []

    @app.columnar_handler(ORDERS, retry=Retry(attempts=2, backoff="5s", jitter=0))
    def load(table):
        sizes.append(table.num_rows)
        if len(sizes) == 1:
            raise OSError

    with running(app) as kafka:
        kafka.produce(*[ORDERS.message(b"", key="a", partition=0) for _ in range(3)])
        kafka.drain()
        assert (sizes, kafka.committed(app, ORDERS)[0]) == ([3], 0)
        kafka.advance("5s")
        assert (sizes, kafka.committed(app, ORDERS)[0]) == ([3, 3], 3)


def test_a_columnar_crash_ends_the_thread_that_waits():
    """A crash in the middle of a columnar back-off forgets the table; it is handled from the start."""
    app, seen = App("billing"), []

    @app.columnar_handler(ORDERS, retry=Retry(attempts=2, backoff="1h", backoff_max="1h"))
    def load(table):
        seen.append(table.num_rows)
        if len(seen) == 1:
            raise OSError

    with running(app) as kafka:
        kafka.produce(ORDERS.message(b"", key="a"))
        kafka.drain()
        kafka.crash()
        kafka.drain()
        assert (seen, kafka.tally.handled) == ([1, 1], 1)


def test_a_gate_of_the_test_holds_calls_open():
    """Calls that wait for an event of the test stay open across drains, as many as there are lanes."""
    gate, open_now = asyncio.Event(), []

    async def handle(record):
        open_now.append(record.key)
        await gate.wait()
        open_now.remove(record.key)

    with running(app_of(handle, lanes=2)) as kafka:
        kafka.produce(*[ORDERS.message(b"", key=f"k{n}") for n in range(20)])
        kafka.drain()
        assert len(open_now) == 8
        gate.set()
        kafka.drain()
        assert (open_now, kafka.tally.handled) == ([], 20)


def test_a_crash_runs_uncommitted_records_again():
    """What was in flight runs again after a crash; what was committed does not; setup runs again, cleanup later."""
    seen, hooks = [], []

    async def handle(record):
        seen.append(record.value)
        await asyncio.sleep(60 if record.value == b"slow" else 0)

    app = app_of(handle)
    app.setup(lambda: hooks.append("setup"))
    app.cleanup(lambda: hooks.append("cleanup"))
    with running(app) as kafka:
        kafka.produce(ORDERS.message(b"fast", key="a", partition=0), ORDERS.message(b"slow", key="a", partition=0))
        kafka.advance("1s")
        assert kafka.committed(app, ORDERS)[0] == 1
        kafka.crash()
        kafka.drain()
        assert seen == [b"fast", b"slow", b"slow"]
        assert kafka.committed(app, ORDERS)[0] == 2
        assert hooks == ["setup", "setup"]
    assert hooks == ["setup", "setup", "cleanup"]


def test_a_message_that_is_too_large_parks_its_record():
    """A message that can never be delivered fails its record, which is parked."""
    out = Topic("out")

    def handle(record):
        return out.message(b"x" * 10)

    app = app_of(handle)
    with running(app) as kafka:
        kafka.fail_writes(out, MessageTooLargeError("10 bytes"))
        kafka.produce(ORDERS.message(b"", key="a"))
        kafka.drain()
        assert (kafka.tally.parked, kafka.tally.handled, kafka.records(out)) == (1, 0, [])


def test_writes_that_fail_are_repeated_until_they_succeed():
    """While a topic cannot be written the record stays unfinished, other keys go on, and healing ends it."""
    out = Topic("out")

    def handle(record):
        return out.message(record.value) if record.value == b"send" else None

    app = app_of(handle, lanes=4)
    with running(app) as kafka:
        kafka.fail_writes(out)
        kafka.produce(ORDERS.message(b"send", key="a", partition=0), ORDERS.message(b"", key="b", partition=0))
        kafka.advance("1h")
        assert (kafka.tally.handled, kafka.committed(app, ORDERS)[0]) == (1, 0)
        assert kafka.tally.undelivered > 100
        kafka.heal(out)
        kafka.advance("5s")
        assert (kafka.tally.handled, kafka.committed(app, ORDERS)[0]) == (2, 2)


def test_deleted_records_end_the_run_or_are_counted():
    """Records that are gone before they are read raise; with on_data_loss="continue" they are counted."""

    def handle(record): ...

    app = app_of(handle)
    kafka = FakeKafka(partitions=1)
    kafka.produce(ORDERS.message(b"0"))
    app.run(FakeEngine(kafka))
    kafka.produce(*[ORDERS.message(b"") for _ in range(4)])
    kafka.delete_records(ORDERS, 0, before=3)
    with pytest.raises(DataLossError, match="offset 1 is gone"):
        app.run(FakeEngine(kafka))
    tally = app.run(FakeEngine(kafka, on_data_loss="continue")).tally
    assert (tally.lost, tally.handled, kafka.committed(app, ORDERS)) == (2, 2, {0: 5})


def test_the_words_for_data_loss_are_those_of_the_settings():
    """Once, the fake had "stop" for "fail", and took any other word for it too."""

    def handle(record): ...

    app = app_of(handle)
    for word in get_args(Settings.model_fields["on_data_loss"].annotation):
        app.run(FakeEngine(FakeKafka(), on_data_loss=word))

    with pytest.raises(DeclarationError, match="on_data_loss='stop'; use 'fail' or 'continue'"):
        FakeEngine(FakeKafka(), on_data_loss="stop")
    with pytest.raises(DeclarationError, match="on_data_loss='go'"), running(app, on_data_loss="go"):
        pass


def test_a_topic_that_grows_is_read_whole():
    """Partitions that come while an app runs are read from their start."""
    seen = []

    def handle(record):
        seen.append(record.partition)

    with running(app_of(handle), kafka=FakeKafka(partitions=1)) as kafka:
        kafka.produce(ORDERS.message(b""))
        kafka.drain()
        kafka.grow(ORDERS, 3)
        kafka.produce(ORDERS.message(b"", partition=2))
        kafka.drain()
        assert seen == [0, 2]


def test_apps_feed_each_other():
    """What one app writes another reads in the same drain, each with its own offsets."""
    first, second, middle, seen = App("first"), App("second"), Topic("middle", value=Json(int)), []

    @first.handler(ORDERS)
    async def pass_on(record):
        return middle.message(len(record.value), key=record.key)

    @second.handler(middle)
    def look(record):
        seen.append(record.value)

    with running(first) as kafka, running(second, kafka=kafka):
        kafka.produce(ORDERS.message(b"abc", key="a"))
        kafka.drain()
    assert seen == [3]


def test_a_seed_fixes_the_schedule():
    """The same seed gives the same schedule, another seed another one."""

    def schedule(seed):
        seen = []

        async def handle(record):
            seen.append((record.partition, record.offset))
            if record.attempt == 1:
                raise ValueError

        with running(app_of(handle, lanes=8, retry=Retry(attempts=2, backoff="1s")), seed=seed) as kafka:
            kafka.produce(*[ORDERS.message(b"", key=f"k{n % 9}") for n in range(60)])
            kafka.finish()
            return seen, kafka.clock.wall()

    assert schedule(1) == schedule(1)
    assert schedule(1) != schedule(2)


def test_threads_of_an_async_handler_are_waited_for():
    """A call of asyncio.to_thread takes real time, and drain waits for it."""

    async def handle(record):
        await asyncio.to_thread(time.sleep, 0.02)

    with running(app_of(handle)) as kafka:
        kafka.produce(ORDERS.message(b"", key="a"))
        kafka.drain()
        assert kafka.tally.handled == 1


def test_a_handler_that_never_ends_is_named():
    """Drain gives up after the virtual time it is given; finish says when only the test could go on."""

    async def forever(record):
        while True:  # noqa: ASYNC110 - the point of the test
            await asyncio.sleep(1)

    with running(app_of(forever)) as kafka:
        kafka.produce(ORDERS.message(b"", key="a"))
        with pytest.raises(EngineError, match="still at work after 60 s"):
            kafka.drain(within="1m")

    async def waits(record):
        await asyncio.Event().wait()

    kafka = FakeKafka()
    kafka.produce(ORDERS.message(b"", key="a"))
    with pytest.raises(EngineError, match="something else than time"):
        app_of(waits).run(FakeEngine(kafka))


def test_misuse_is_explained():
    """An app without handlers and a FakeKafka without an app say what to do."""
    with pytest.raises(DeclarationError, match="has no handlers"), running(App("empty")):
        pass
    with pytest.raises(EngineError, match="running"):
        FakeKafka().drain()


@pytest.mark.parametrize("oversize", ["wait", "reference"])
def test_a_copy_that_does_not_fit_waits_or_is_a_reference(oversize):
    """As on a broker: by default the whole copy is written once the topic takes it, and its key waits till then."""
    app, orders, seen = App("billing", oversize=oversize), Topic("orders"), []

    @app.handler(orders, lanes=2)
    def store(record):
        seen.append(record.raw)
        if record.raw == b"bad":
            raise ValueError

    with running(app) as kafka:
        write, sizes = kafka.write, [0]

        def checked(topic, key, value, **rest):
            too_large = topic.endswith(".error") and len(value or b"") > sizes[0]
            return MessageTooLargeError("planted") if too_large else write(topic, key, value, **rest)

        kafka.write = checked
        for value in (b"bad", b"good"):
            kafka.produce_raw(orders, value, key=b"k", headers=[("own", b"1")])
        kafka.drain()
        kafka.advance("1m")
        waits = oversize == "wait"
        assert (seen, len(kafka.errors(app))) == (([b"bad"], 0) if waits else ([b"bad", b"good"], 1))
        sizes[0] = 100
        kafka.advance("10s")
        [copy] = kafka.errors(app)
        assert (copy.raw, copy.header("laneway-reduced")) == ((b"bad", None) if waits else (None, b"value"))
        assert (copy.header("own"), seen) == (b"1", [b"bad", b"good"])
        assert kafka.tally.reduced == (not waits)
