"""Stations of the direct engine at work without a broker."""

from __future__ import annotations

import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

from laneway import Topic
from laneway._core.locate import status_of
from laneway._core.state import Drain
from laneway._declare.record import Record
from laneway._runtime.handler_worker import HandlerWorker
from laneway._runtime.health.findings import cause as cause_of
from laneway._runtime.health.snapshot import located
from laneway._runtime.host import AppHost

__all__ = ["ORDERS", "Post", "row", "station_of"]

ORDERS: Topic[Any] = Topic("orders")


class Cause(NamedTuple):
    """What a record waits for, in words."""

    code: str
    words: str
    key: bytes | None


class Post:
    """Takes messages and answers each with the same error, or with nothing at all."""

    def __init__(self, error=None, *, answers=True):
        self.error, self.answers, self.waiting = error, answers, []

    def send(self, topic, *, delivered, **rest):
        self.waiting.append(delivered)

    def poll(self):
        waiting, self.waiting = (self.waiting, []) if self.answers else ([], self.waiting)
        for delivered in waiting:
            delivered(self.error)


def row(offset, key=b"k", partition=0):
    return Record("orders", partition, offset, int(time.time() * 1000), key, b"v", (), 2, b"v")


@contextmanager
def station_of(app, records, post=None, lanes=4):
    """A station at work on records, and what it has reported of them."""
    host = AppHost(app)
    station = HandlerWorker(
        app.routes[0],
        app.name,
        lanes=lanes,
        sender=post or Post(),
        host=host,
        listener=SimpleNamespace(event=lambda event: None, note=lambda words: None),
    )
    station.start()
    if records:
        station.intake.put(records)

    def cause(partition=0, offset=0, timeout=5.0):
        found, is_sure = located(station, [("orders", partition, offset)], timeout)
        status = status_of(station.processor, time.monotonic(), 30.0)
        return {spot: Cause(*cause_of(each, status), each.key) for spot, each in found.items()}, is_sure

    station.cause = cause
    try:
        yield station
    finally:
        station.post(Drain())
        station.abandon()
        host.close()
