"""A handler at work: what it tells of its lanes, and how many it has."""

from __future__ import annotations

import threading
import time

import pytest

from laneway import App
from laneway._runtime.handler_worker import HandlerWorker
from support.core import FakeSender, Heard, make_route
from support.stations import ORDERS, row, station_of
from support.waiting import eventually


@pytest.mark.parametrize(("processes", "lanes"), [(0, [16, 2, 2]), (3, [3, 3, 3])])
def test_lanes_are_those_of_the_partitions_that_are_ours(processes, lanes):
    """More and fewer while it runs; a number of processes stays what it is."""
    route = make_route(lanes=2, processes=processes)
    station = HandlerWorker(
        route, "shop", lanes=processes or 2, sender=FakeSender(), host=None,
        listener=Heard(),
    )  # fmt: skip
    found = []
    for partitions in (8, 1, 0):
        station.share(partitions)
        station.processor.tick()
        found.append(station.processor.lanes.total)

    assert found == lanes


def test_lanes_that_are_busy_are_told_while_their_calls_run():
    """On average since the last time, whether or not a call has ended meanwhile."""
    app, gate = App("shop"), threading.Event()

    @app.handler(ORDERS, lanes=4)
    def charge(record):
        gate.wait(60)

    with station_of(app, [row(offset, b"k%d" % offset) for offset in range(4)]) as station:
        eventually(lambda: len(station.processor.begun) == 4, timeout=20)
        station.news()
        time.sleep(0.3)
        assert station.news().lanes_busy == pytest.approx(4.0, abs=0.2)
        gate.set()
        eventually(lambda: station.processor.is_done, timeout=20)
        station.news()
        time.sleep(0.1)
        assert station.news().lanes_busy == pytest.approx(0.0, abs=0.2)
