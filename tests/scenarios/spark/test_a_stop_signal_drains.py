"""Stop signals in mid-batch."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from laneway.devkit.history import check
from support.waiting import eventually

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_the_first_signal_finishes_the_batch(scene: Scene) -> None:
    """The first signal finishes and commits the running batch and exits with 0; a restart repeats nothing."""
    scene.produce(3_000)
    first = scene.run(life="-1", seconds=0.02)
    scene.after_calls(1_300, life="-1")
    # To all processes: Ctrl-C reaches the whole group of a terminal, and a service manager ends whole groups too.
    os.killpg(first.process.pid, signal.SIGINT)
    assert first.ended() == 0, first.output
    handled = len(scene.calls("-1"))
    assert scene.lag() == 3_000 - handled
    assert 0 < scene.lag() < 3_000
    scene.finish_on_direct(life="-2", seconds=0)

    verdict = check([*scene.calls("-1"), *scene.calls("-2")], scene.ends())
    assert verdict.is_clean, verdict
    assert scene.lag() == 0
    assert "stopping (finishing records in flight)" in first.output
    assert "Traceback" not in first.output


def test_the_second_signal_stops_now(scene: Scene) -> None:
    """The second signal does not wait for a blocked handler, exits with 3, commits nothing and loses nothing."""
    scene.produce(600)
    gate = scene.folder / "gate"
    first = scene.run(life="-1", gate=gate)
    eventually(lambda: "consuming" in first.output and first.workers(), timeout=90)
    eventually(lambda: any(worker.num_threads() > 8 for worker in first.workers()), timeout=60, why="calls that wait")
    first.send(signal.SIGTERM)
    eventually(lambda: "stopping" in first.output, timeout=30)
    assert first.is_running
    first.send(signal.SIGTERM)
    assert first.ended(30) == 3, first.output
    eventually(lambda: not first.family(), timeout=20, why=lambda: f"the end of {first.family()}")
    assert scene.calls("-1") == []
    assert scene.lag() == 600
    assert "Traceback" not in first.output
    gate.touch()
    scene.finish_on_direct(life="-2", seconds=0)
    assert check(scene.calls("-2"), scene.ends()).is_clean
    assert scene.lag() == 0
