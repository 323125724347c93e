"""Records that are acknowledged by hand: finished when somebody says so, in the order that their key keeps."""

from __future__ import annotations

import threading

import pytest

from laneway import Ack, App, Record, Reject, Retry, Topic
from laneway.errors import DeclarationError
from laneway.testing import running

orders = Topic("orders")


def make(**options):
    """An app whose handler leaves every record, and what it was given."""
    app, given = App("billing"), []

    @app.handler(orders, acknowledge="manual", **{"lanes": 4} | options)
    async def handle(record: Record[bytes], ack: Ack) -> None:
        given.append((record.value, ack))

    return app, given


def test_a_record_is_finished_when_it_is_acknowledged():
    """Its offset stays where it is until then, and later records of other keys do not carry it along."""
    app, given = make()
    with running(app) as kafka:
        for number in range(3):
            kafka.produce(orders.message(b"%d" % number, key=f"k{number}", partition=0))
        kafka.advance("1s")
        assert sorted(value for value, _ in given) == [b"0", b"1", b"2"]
        acks = dict(given)
        acks[b"1"].done()
        acks[b"2"].done()
        kafka.advance("1s")
        assert kafka.committed(app, orders).get(0, 0) == 0
        acks[b"0"].done()
        kafka.advance("1s")
        assert kafka.committed(app, orders)[0] == 3
        assert kafka.tally.handled == 3


def test_the_key_waits_until_it_is_released_or_acknowledged():
    """The next record of a key begins after one of the two, whichever comes first."""
    app, given = make()
    with running(app) as kafka:
        for number in range(3):
            kafka.produce(orders.message(b"%d" % number, key="k", partition=0))
        kafka.advance("1s")
        assert [value for value, _ in given] == [b"0"]
        given[0][1].release()
        kafka.advance("1s")
        assert [value for value, _ in given] == [b"0", b"1"]
        given[1][1].done()
        kafka.advance("1s")
        assert [value for value, _ in given] == [b"0", b"1", b"2"]
        given[2][1].done()
        kafka.advance("1s")
        assert kafka.committed(app, orders).get(0, 0) == 0
        given[0][1].done()
        kafka.advance("1s")
        assert kafka.committed(app, orders)[0] == 3


def test_a_failure_climbs_the_ladder():
    """As if the function had raised it; the first word counts, what comes after it changes nothing."""
    app, given = make(retry=Retry(attempts=2, backoff="10ms"))
    with running(app) as kafka:
        kafka.produce(orders.message(b"x", key="k"))
        kafka.advance("1s")
        given[0][1].failed(OSError("away"))
        given[0][1].done()
        kafka.advance("1s")
        assert len(given) == 2
        given[1][1].failed(Reject("no"))
        kafka.drain()
        assert (kafka.tally.handled, kafka.tally.retried, kafka.tally.parked) == (0, 1, 1)


def test_a_record_that_fails_after_its_release_is_parked_at_once():
    """Others have overtaken it, so it is not tried again in its place."""
    app, given = make(retry=Retry(attempts=5, backoff="10ms"))
    with running(app) as kafka:
        kafka.produce(orders.message(b"0", key="k"))
        kafka.produce(orders.message(b"1", key="k"))
        kafka.advance("1s")
        given[0][1].release()
        kafka.advance("1s")
        given[0][1].failed(OSError("away"))
        given[1][1].done()
        kafka.drain()
        assert (kafka.tally.handled, kafka.tally.retried, kafka.tally.parked) == (1, 0, 1)


def test_said_before_the_function_returns():
    """Done, failed and released at once, from another thread too."""
    app = App("billing")

    @app.handler(orders, acknowledge="manual", lanes=4)
    def handle(record: Record[bytes], ack: Ack) -> None:
        say = {b"done": ack.done, b"failed": lambda: ack.failed(Reject("no")), b"released": ack.release}[record.value]
        thread = threading.Thread(target=say)
        thread.start()
        thread.join()
        if record.value == b"released":
            ack.done()

    with running(app) as kafka:
        for word in (b"done", b"failed", b"released"):
            kafka.produce(orders.message(word, key="k"))
        kafka.drain()
        assert (kafka.tally.handled, kafka.tally.parked) == (2, 1)
        assert kafka.committed(app, orders) == kafka.ends(orders)


def test_what_is_never_acknowledged_is_run_again_after_a_crash():
    """It was never finished."""
    app, given = make()
    with running(app) as kafka:
        kafka.produce(orders.message(b"x", key="k"))
        kafka.advance("1s")
        kafka.crash()
        kafka.advance("1s")
        assert [value for value, _ in given] == [b"x", b"x"]
        given[0][1].done()  # of the process that is gone
        kafka.advance("1s")
        assert sum(kafka.committed(app, orders).values()) == 0
        given[1][1].done()
        kafka.drain()
        assert kafka.committed(app, orders) == kafka.ends(orders)


def test_messages_cannot_be_returned():
    """The function says when the record is finished; a message that is sent later could be lost."""
    app = App("billing")

    @app.handler(orders, acknowledge="manual")
    def handle(record, ack):
        return orders.message(b"")

    with running(app) as kafka:
        kafka.produce(orders.message(b"x", key="k"))
        kafka.drain()
        (copy,) = kafka.records(app.routes[0].error_topic_of(app.name))
        assert b"must return None" in copy.header("laneway-error-message")


def test_the_declaration_is_checked():
    """Two words are known, and processes of its own have no use for an Ack."""
    app = App("billing")
    with pytest.raises(DeclarationError, match="use 'auto' or 'manual'"):
        app.handler(orders, acknowledge="later")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="manual acknowledgement"):
        app.handler(orders, acknowledge="manual", processes=2)(print)
