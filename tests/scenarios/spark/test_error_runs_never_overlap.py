"""Runs over the error topics beside a running app, on a schedule that is much too fast."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from laneway import ErrorConsumer, SparkEngine
from laneway.settings import load
from support.contract import Row, SparkWorld
from support.contract_recorder import overlaps
from support.waiting import eventually

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from support.contract import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


class EverySecond:
    """A schedule that no cron can write."""

    def next_after(self, moment: datetime) -> datetime:
        return moment + timedelta(seconds=1)


def test_a_slow_run_is_not_overtaken_and_a_stop_finishes_it(
    spark, cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each record is called once in a run, later runs are left out, the app goes on, and a stop loses nothing."""
    world = SparkWorld(tmp_path, request.node.nodeid, cluster)
    app, topic, calls = world.app(), world.topic(2), world.recorder
    app.errors = ErrorConsumer(stop_when_new="0s", max_errors=None)
    object.__setattr__(app.errors, "schedule", EverySecond())

    @app.handler(topic, lanes=8)
    def handle(record):
        if record.origin is None and record.value != b"fine":
            raise ConnectionError
        with calls.call(record, value=record.value.decode(), parked=record.origin is not None):
            time.sleep(4 if record.origin else 0)

    engine = SparkEngine(load(overrides={"brokers": cluster.bootstrap}))
    world.produce(topic, [Row(b"k%d" % n, b"v%d" % n) for n in range(6)])

    def called(*, parked: bool) -> list[str]:
        return [call.facts["value"] for call in calls.calls() if call.facts["parked"] == parked]

    def direct() -> None:
        try:
            eventually(lambda: len(called(parked=True)) == 6, why="the first run")
            world.produce(topic, [Row(b"o", b"fine"), Row(b"k7", b"v7")])
            eventually(lambda: called(parked=False) == ["fine"], why="the app beside the run")
            eventually(lambda: "v7" in called(parked=True), why="the second run")
        finally:
            engine.stop()

    director = threading.Thread(target=direct)
    director.start()
    try:
        report = engine.run(app)
    finally:
        director.join()
    assert not report.was_forced
    assert sorted(called(parked=True)) == [*(f"v{n}" for n in range(6)), "v7"]
    assert overlaps(calls.calls(), lambda call: call.keys) == []
    assert all(call.error is None and call.ended < 1 << 60 for call in calls.calls())
    assert (report.errors.tally.handled, report.errors.failed) == (7, 0)
    assert report.errors.left_out >= 3
    assert (report.tally.handled, report.tally.parked) == (1, 7)
    # The run that was under way at the stop is finished and committed: nothing is left for another one.
    assert world.run_errors(app).read == 0
