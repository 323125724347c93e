"""What records wait for, found among real handlers without a broker and said in words."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest

from laneway import App, Breaker, Retry, RetryAfter, Topic
from laneway._core.locate import Location
from laneway._core.outbox import Late
from laneway._core.state import Drain
from laneway._runtime.lease import Lease
from laneway.errors import ProduceError
from support.stations import ORDERS, Post, row, station_of
from support.waiting import eventually


def awaited(station, code, partition=0, offset=0):
    """The cause, once it is of this code; and that it was looked up while nothing changed."""

    def found():
        cause, is_sure = station.cause(partition, offset)
        of_record = cause["orders", partition, offset]
        return of_record if is_sure and of_record.code == code else None

    return eventually(found, timeout=30, why=lambda: f"{code}, and not {station.cause(partition, offset)}")


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


def test_a_call_that_runs_is_named_with_its_record_and_time(gate):
    """The handler, how long it has been at it, and the key."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4)
    def charge(record):
        gate.wait(30)

    with station_of(app, [row(7, b"slow")]) as station:
        cause = awaited(station, "running", 0, 7)
        time.sleep(0.3)
        later = awaited(station, "running", 0, 7)
        gate.set()

    assert cause.words.startswith("handler 'charge' has been running for ")
    assert cause.words != later.words
    assert cause.key == b"slow"


def test_a_record_that_waits_for_its_next_try(gate):
    """When the next one is due, and what the last one failed with."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4, retry=Retry(attempts=3, backoff="1h", backoff_max="1h"))
    def charge(record):
        raise ConnectionError("nobody there")

    with station_of(app, [row(0)]) as station:
        cause = awaited(station, "next-try")

    assert "attempt 2, due in " in cause.words
    assert "m" in cause.words.partition("due in ")[2]
    assert cause.words.endswith("after ConnectionError: nobody there")


def test_a_copy_that_cannot_be_written_names_topic_and_reason():
    """The record waits for its error topic, and it is said which and why."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4)
    def charge(record):
        raise ValueError("bad")

    with station_of(app, [row(0)], Post(ProduceError("TOPIC_AUTHORIZATION_FAILED: not for you"))) as station:
        cause = eventually(
            lambda: (found := awaited(station, "copy")) and "cannot write" in found.words and found, timeout=30
        )
        station.processor.outbox._sender.error = None

    assert "cannot write to orders.shop.error: ProduceError: TOPIC_AUTHORIZATION_FAILED: not for you" in cause.words


def test_a_message_without_an_answer_is_waited_for():
    """Nothing failed yet: the brokers have not acknowledged it."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4)
    def charge(record):
        return Topic("receipts").message(b"r")

    post = Post(answers=False)
    with station_of(app, [row(0)], post) as station:
        cause = awaited(station, "copy")
        post.answers = True

    assert cause.words == "its copy or message is not acknowledged by the brokers yet"


def test_an_open_breaker_is_the_cause():
    """Of every record that is not called because of it, with what opened it and when it is probed."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4, breaker=Breaker(2, "1h", "1h"))
    def charge(record):
        raise ConnectionError("the bank is closed")

    with station_of(app, [row(0, b"a"), row(1, b"b"), row(2, b"c")]) as station:
        cause = awaited(station, "breaker", 0, 2)

    assert "the breaker of handler 'charge' has been open for " in cause.words
    assert "ConnectionError: the bank is closed" in cause.words
    assert "the next probe is due in " in cause.words


def test_a_record_behind_another_of_its_key(gate):
    """It is said behind which one, and what that one waits for; the other may be of another partition."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4)
    def charge(record):
        gate.wait(30)

    with station_of(app, [row(5, b"k", 1), row(0, b"k", 0)]) as station:
        # The head alone is in work: of an unknown pace a turn is one record.
        cause = awaited(station, "behind", 0, 0)
        gate.set()

    assert cause.words.startswith("it waits behind orders[1]@5 of its key: handler 'charge' has been running for ")


def test_a_record_that_waits_for_a_lane(gate):
    """All lanes are busy with other keys."""
    app = App("shop")

    @app.handler(ORDERS, lanes=2)
    def charge(record):
        gate.wait(30)

    with station_of(app, [row(0, b"a"), row(1, b"b"), row(2, b"c")], lanes=2) as station:
        awaited(station, "running", 0, 1)
        cause = awaited(station, "lane", 0, 2)
        gate.set()

    assert cause.words == "it waits for a free lane of handler 'charge'; all 2 are busy"


def test_a_record_without_a_key_is_found_too(gate):
    """No queue holds it while it runs."""
    app = App("shop")

    @app.handler(ORDERS, lanes=2)
    def charge(record):
        gate.wait(30)

    with station_of(app, [row(0, None)]) as station:
        cause = awaited(station, "running")
        gate.set()

    assert cause.key is None


def test_a_record_that_nobody_has_acknowledged():
    """Its function has returned; the next of its key waits behind it."""
    app, acks = App("shop"), []

    @app.handler(ORDERS, lanes=4, acknowledge="manual")
    def charge(record, ack):
        acks.append(ack)

    with station_of(app, [row(0), row(1)]) as station:
        cause, next_ = awaited(station, "acknowledge"), awaited(station, "behind", 0, 1)
        acks[0].done()
        eventually(lambda: len(acks) == 2, timeout=30)
        acks[1].done()

    assert (cause.key, next_.key) == (b"k", b"k")
    assert cause.words == "handler 'charge' has returned without acknowledging it"
    assert next_.words == f"it waits behind orders[0]@0 of its key: {cause.words}"


def test_a_batch_that_is_not_full():
    """Its records wait for more."""
    app = App("shop")

    @app.batch_handler(ORDERS, size=10, within="1h")
    def archive(batch):
        pass

    with station_of(app, [row(0)]) as station:
        assert awaited(station, "batch").words == "it waits for the batch of handler 'archive' to be full"


def test_a_process_that_was_stopped_waits_for_its_group():
    """Free lanes are no help: it is not known whether the record is still its own."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4)
    def charge(record):
        pass

    with station_of(app, []) as station:
        station.processor.lease = Lease(0.0)
        station.intake.put([row(3, b"k")])
        cause = awaited(station, "group", 0, 3)

    assert "waits until the group confirms its partitions" in cause.words


def test_what_is_left_for_the_next_start():
    """A stop that cannot wait puts back what was not begun; somebody who asks then is told so."""
    app = App("shop")

    @app.handler(ORDERS, lanes=1, retry=Retry(attempts=3))
    def charge(record):
        raise RetryAfter("10m")

    with station_of(app, [row(0)]) as station:
        awaited(station, "next-try")
        station.post(Drain())
        assert awaited(station, "left").words == "the next run handles it, because this one is ending"


def test_a_handler_may_ask_from_its_own_loop():
    """To wait for the loop that one runs on would be to wait for oneself."""
    app, answers = App("shop"), []

    @app.handler(ORDERS, lanes=4)
    async def charge(record):
        answers.append(stations[0].cause(0, 0, timeout=20.0))

    stations = []
    with station_of(app, []) as station:
        stations.append(station)
        began = time.monotonic()
        station.intake.put([row(0)])
        found, is_sure = eventually(lambda: answers and answers[0], timeout=30)

    assert is_sure
    assert found["orders", 0, 0].code == "running"
    assert time.monotonic() - began < 15


def test_a_blocked_event_loop_is_found_out(gate):
    """An async handler that blocks its loop keeps it from answering; the record in work is named all the same."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4)
    async def charge(record):
        gate.wait(30)

    with station_of(app, [row(3, b"k")]) as station:
        eventually(lambda: station.processor.begun, timeout=20)
        found, is_sure = station.cause(0, 3, timeout=0.2)
        gate.set()

    cause = found["orders", 0, 3]
    assert not is_sure
    assert (cause.code, cause.key) == ("loop", b"k")
    assert cause.words.startswith(
        "the event loop does not answer, because something blocks it; handler 'charge' has been running"
    )


def test_a_late_copy_is_the_cause():
    """With topic, count and reason."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4)
    def charge(record):
        raise ValueError("bad")

    post = Post(answers=False)
    with station_of(app, [row(0)], post) as station:
        eventually(lambda: station.processor.outbox.pending == 1, timeout=30)
        since = time.monotonic() - 7
        station.processor.outbox._aged = time.monotonic() + 60  # it would look by itself in five seconds
        station.processor.outbox.late = (Late("orders.shop.error", 1, since, "there is no such topic"),)
        cause, _ = station.cause()
        post.answers = True

    words = "1 copy or message for orders.shop.error not acknowledged for 7s: there is no such topic"
    assert cause["orders", 0, 0].words == f"its copy or message is not acknowledged yet: {words}"


def test_a_location_travels_between_processes():
    """Encoded and decoded it says the same, and a nested one, too."""
    inner = Location(code="next-try", has_key=True, key=b"k", attempt=2, due=1.5, error="E: no")
    found = Location(code="behind", head=("orders", 1, 5), inner=inner)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Location) == found
