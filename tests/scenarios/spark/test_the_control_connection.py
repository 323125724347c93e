"""Driver and workers talk while a batch runs."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from laneway import Skip
from laneway.events import RecordSkipped
from support.contract import Row, SparkWorld
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laneway import App, Record
    from support.contract import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def world(spark: Any, cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> SparkWorld:
    """The shared Spark session."""
    return SparkWorld(tmp_path, request.node.nodeid, cluster)


@contextmanager
def running(app: App, engine: Any, gate: Path) -> Iterator[list[Any]]:
    """Run in the background; at the end the gate is opened and the run stopped, and the list has its report."""
    reports: list[Any] = []
    thread = threading.Thread(target=lambda: reports.append(app.run(engine)))
    thread.start()
    try:
        yield reports
    finally:
        gate.touch()
        engine.stop()
        thread.join(60)
    assert reports


def gated(world: SparkWorld, gate: Path, count: int) -> App:
    """An app whose first record waits for the gate, and each fifth is skipped."""
    topic, app, place = world.topic(1), world.app(), str(gate)

    @app.handler(topic, lanes=8)
    def work(record: Record[Any]) -> None:
        deadline = time.monotonic() + 60
        while record.offset == 0 and not Path(place).exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        if record.offset % 5 == 1:
            raise Skip("planted")

    world.produce(topic, [Row(b"k%d" % number) for number in range(count)])
    return app


def test_counts_and_events_move_while_a_batch_runs(world: SparkWorld, tmp_path: Path) -> None:
    """All but the record that hangs are counted before the batch is over, and nothing is counted or reported twice."""
    gate = tmp_path / "gate"
    app, seen = gated(world, gate, 50), []
    app.on(RecordSkipped)(seen.append)
    engine = world.engine()
    with running(app, engine, gate) as reports:
        eventually(lambda: engine.counts().finished == 49, timeout=60)
        eventually(lambda: len(seen) == 10, timeout=20)
        assert not gate.exists()
    assert reports[0].tally.finished == engine.counts().finished == 50
    assert len(seen) == 10


def test_a_task_goes_on_when_the_connection_is_cut(world: SparkWorld, tmp_path: Path) -> None:
    """It connects again, its counts come in again, and a stop reaches the planner."""
    gate = tmp_path / "gate"
    app, engine = gated(world, gate, 20), world.engine()
    with running(app, engine, gate) as reports:
        eventually(lambda: engine.counts().finished == 19, timeout=60)
        control = engine._control
        before = set(control._connected)
        assert len(before) >= 2  # the planner and a worker
        control.cut()
        eventually(lambda: len(control._connected) >= len(before) and not before & control._connected, timeout=20)
        gate.touch()
        eventually(lambda: reports or engine.counts().finished == 20, timeout=20)
    assert not reports[0].was_forced
    assert reports[0].tally.finished == 20
