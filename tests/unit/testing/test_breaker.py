"""A breaker in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from laneway import App, Breaker, Topic
from laneway.errors import EngineError
from laneway.testing import running

ORDERS = Topic("orders")


class Service:
    """Something that a handler calls, and that a test switches off."""

    def __init__(self):
        self.is_up, self.calls = False, 0

    def call(self):
        self.calls += 1
        if not self.is_up:
            raise ConnectionError


def make(service, kind):
    app = App("billing")
    options = {"breaker": Breaker(1, "5s", "20s")}
    if kind == "async":

        @app.handler(ORDERS, **options)
        async def handle(_):
            await asyncio.sleep(0.1)
            service.call()
    elif kind == "sync":

        @app.handler(ORDERS, lanes=4, **options)
        def handle(_):
            service.call()
    elif kind == "batch":

        @app.batch_handler(ORDERS, size=10, **options)
        def handle(_):
            service.call()
    else:

        @app.columnar_handler(ORDERS, size=10, **options)
        def handle(_):
            service.call()

    return app


@pytest.mark.parametrize("kind", ["async", "sync", "batch", "columnar"])
def test_drain_leaves_it_open_and_advance_lets_it_probe(kind):
    """Time does not pass by itself; when it does, there is a probe after 5, 10, 20 and 20 seconds."""
    service = Service()
    with running(make(service, kind)) as kafka:
        for number in range(8):
            kafka.produce(ORDERS.message(b"", key=b"%d" % number))
        kafka.drain()
        first = service.calls
        kafka.drain()
        assert service.calls == first
        kafka.advance("4s")
        assert service.calls == first
        kafka.advance("2s")
        assert service.calls == first + 1
        kafka.advance("1m")
        assert service.calls == first + 4
        assert (kafka.tally.breaker_opened, kafka.tally.parked, kafka.tally.handled) == (1, 0, 0)
        kafka.produce(ORDERS.message(b"", key=b"late"))
        service.is_up = True
        kafka.finish()
        assert (kafka.tally.handled, kafka.tally.parked) == (9, 0)
        assert kafka.tally.breaker_seconds == pytest.approx(75 if kind != "async" else 75.5, abs=0.6)


def test_finish_says_that_it_never_ends():
    """A service that stays away is not waited for without end, nor is every second of the day looked at."""
    service = Service()
    with running(make(service, "sync")) as kafka:
        kafka.produce(ORDERS.message(b""))
        with pytest.raises(EngineError, match="still at work after 3600 s"):
            kafka.finish(within="1h")
        assert service.calls < 200


def test_a_crash_forgets_it():
    """The process is gone, and what was unfinished is read and called again at once."""
    service = Service()
    with running(make(service, "sync")) as kafka:
        kafka.produce(ORDERS.message(b""))
        kafka.drain()
        kafka.crash()
        service.is_up = True
        kafka.drain()
        assert (service.calls, kafka.tally.handled) == (2, 1)
