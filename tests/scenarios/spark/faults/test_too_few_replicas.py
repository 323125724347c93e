"""Too few nodes are left for the retry and error topics to be written safely."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from support.fault_scene import FaultScene
from support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from laneway.devkit.broker import Running

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_failed_records_wait_and_others_go_on(three_nodes: Running, tmp_path: Path) -> None:
    """Copies wait for the third replica, the run says why, and when it is back each record ends once, within 15 s."""
    scene = FaultScene(three_nodes.bootstrap, tmp_path, "too few replicas")
    try:
        scene.create(scene.topic)
        for name in (scene.retry(), scene.error_topic):
            scene.create(name, min_insync_replicas=3)
        failing = scene.produce_failing([-1] * 5 + [9] * 10)
        fine = scene.produce_failing([0] * 100, keys=b"fine")
        node = three_nodes.nodes[2]
        node.stop()
        run = scene.begin(steps="1s")
        scene.until(lambda: len(scene.done()) == 100)
        failed = time.monotonic()
        # Said after five seconds: the client itself gives up after thirty.
        scene.until(lambda: "not acknowledged for" in run.output)
        assert time.monotonic() - failed < 15
        told = next(line for line in run.output.splitlines() if "not acknowledged for" in line)
        print(told)
        assert scene.retry() in told or scene.error_topic in told
        assert "2 replicas are in sync, and min.insync.replicas is 3" in told
        assert run.is_running
        assert {(call.partition, call.offset) for call in scene.done()} == fine
        first = {part: min(offset for place, offset in failing if place == part) for part, _ in failing}
        assert all(scene.committed()[part] <= first[part] for part in first)
        assert scene.parked() == []

        node.start()
        back = time.monotonic()
        eventually(
            lambda: scene.is_finished() and len(scene.parked()) >= 15,
            timeout=40,
            why=lambda: f"{len(scene.parked())} parked\n{run.output}",
        )
        took = time.monotonic() - back
        print(f"all ended {took:.1f} s after the node was back")
        scene.stop(run)
        assert sorted(scene.parked()) == sorted(failing)
        assert (scene.found().lost, scene.found().duplicates) == (0, 0)
        assert took < 15
    finally:
        scene.close()
