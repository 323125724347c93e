"""No broker at the start, and none for a while in mid-batch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from laneway.devkit import broker
from support.spark_scene import Scene
from support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_a_broker_that_comes_late_and_goes_in_mid_batch(tmp_path: Path) -> None:
    """A run waits for its broker and says so, starts within 10 s of its coming, and survives its going and coming."""
    with broker.ephemeral() as running:
        node = running.nodes[0]
        scene = Scene(running.bootstrap, tmp_path, "absent broker")
        try:
            scene.create(scene.topic, 3)
            scene.produce(2_000)
            node.stop()
            run = scene.run(seconds=0.02, lanes=4)
            eventually(lambda: "waiting for Kafka at" in run.output, why=lambda: run.output)
            assert running.bootstrap in run.output
            node.start()
            came = time.monotonic()
            eventually(lambda: ": starting" in run.output, timeout=30, why=lambda: run.output)
            assert time.monotonic() - came < 10
            scene.after_calls(600)
            node.kill()
            # Buffered records are still handled; then there is nothing to do, and no batch can be committed.
            eventually(lambda: not _grows(scene), timeout=60, every=0.5)
            assert run.is_running, run.output
            node.start()
            eventually(lambda: scene.verdict().lost == 0, timeout=90, why=lambda: run.output)
            eventually(lambda: scene.lag() == 0, timeout=60, why=lambda: run.output)
            verdict = scene.verdict()
            assert (verdict.inversions, verdict.overlaps) == (0, 0)
            assert run.is_running
            # New records are found too, and the coordinator that came back does not disturb the view.
            scene.produce(200)
            eventually(lambda: scene.lag() == 0, timeout=60, why=lambda: run.output)
            run.process.terminate()
            assert run.ended() == 0, run.output
        finally:
            scene.close()


def _grows(scene: Scene) -> bool:
    """Whether handlers still run."""
    before = len(scene.calls())
    time.sleep(0.4)
    return len(scene.calls()) > before
