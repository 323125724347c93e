"""The driver is killed in mid-batch and started again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from laneway.devkit.history import check
from support.doors import Position
from support.waiting import eventually

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_restart_repeats_only_the_unfinished_batch(scene: Scene, kind: str) -> None:
    """After kill -9 the workers end at once; a restart loses nothing and repeats only the unfinished batch."""
    scene.produce(3_000)
    first = scene.run(life="-1", seconds=0.02, kind=kind, LANEWAY_SPARK_BATCH_TIME="1s")
    scene.until(lambda: scene.lag() < 3_000)
    scene.after_calls(len(scene.calls("-1")) + 200, life="-1")
    first.kill()
    killed = time.monotonic()
    eventually(lambda: not first.family(), timeout=30, why=lambda: f"the end of {first.family()}")
    gone, late = time.monotonic() - killed, max(call.end for call in scene.calls("-1")) - killed
    print(f"workers gone after {gone:.2f} s, the last call ended {late:.2f} s after the kill")
    # A restart needs longer than this to handle its first record.
    assert gone < 5
    assert late < 2
    committed = {partition: Position.of(*found) for partition, found in scene.commits().items()}
    scene.finish(life="-2", seconds=0, kind=kind)

    before, after = scene.calls("-1"), scene.calls("-2")
    everything = check([*before, *after], scene.ends())
    lives = [check(before), check(after)]
    again = {(call.partition, call.offset) for call in before} & {(call.partition, call.offset) for call in after}
    assert everything.lost == 0
    assert everything.overlaps == 0
    assert everything.inversions == 0
    assert [(life.inversions, life.overlaps, life.duplicates) for life in lives] == [(0, 0, 0)] * 2
    for partition, offset in again:
        position = committed[partition]
        assert offset >= position.end or offset in position.unfinished
    assert scene.lag() == 0
    assert scene.committed() == scene.ends()
