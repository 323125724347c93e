"""The only broker dies while copies are being written, and is back about 20 s later."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from laneway.devkit import broker
from laneway.devkit.history import check
from support.fault_scene import FaultScene
from support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

AWAY = 12.0  # seconds until it is started again, which takes 8 more: longer than any request may take


def test_the_run_goes_on_by_itself(tmp_path: Path) -> None:
    """Nothing is lost, no record is copied twice to a topic, and first calls keep the order of their keys."""
    with broker.ephemeral() as cluster:
        scene = FaultScene(cluster.bootstrap, tmp_path, "a broker that is away")
        try:
            scene.create(scene.topic)
            values = [b"9" if number % 7 == 0 else b"1" if number % 5 == 0 else b"0" for number in range(2_000)]
            scene.produce_rows((b"k%d" % (number % 200), value) for number, value in enumerate(values))
            run = scene.begin(steps="1s", seconds=0.05)
            scene.until(lambda: len(scene.failed()) > 100)
            node = cluster.nodes[0]
            node.kill()
            time.sleep(AWAY)
            assert run.is_running, run.output
            node.start()
            back = time.monotonic()
            eventually(scene.is_finished, timeout=60, why=lambda: run.output)
            print(f"all ended {time.monotonic() - back:.1f} s after the broker was back")
            scene.stop(run)
            copies = Counter(
                tuple(copy.header(f"laneway-origin-{name}") for name in ("partition", "offset"))
                for copy in scene.read(scene.retry())
            )
            assert max(copies.values()) == 1
            assert len(copies) == sum(value != b"0" for value in values)
            assert len(scene.parked()) == len(set(scene.parked())) == values.count(b"9")
            assert (scene.found().lost, scene.found().duplicates) == (0, 0)
            verdict = check([call for call in [*scene.done(), *scene.failed()] if call.attempt == 1])
            assert (verdict.inversions, verdict.overlaps) == (0, 0)
        finally:
            scene.close()
