"""The driver is killed in mid-batch and started again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psutil
import pytest

from laneway.devkit.history import check
from support.waiting import eventually

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

BATCH = 1_000


@pytest.mark.parametrize(
    ("kind", "has_checkpoint"), [("sync", False), ("async", True)], ids=["sync-group-offsets", "async-checkpoint"]
)
def test_a_restart_repeats_only_the_unfinished_batch(scene: Scene, kind: str, has_checkpoint: bool) -> None:  # noqa: FBT001
    """After kill -9 and a restart nothing is lost, order holds, and only the unfinished batch is repeated."""
    scene.produce(3_000)
    flags = ("--checkpoint", str(scene.folder / "checkpoint")) if has_checkpoint else ()
    rest = {"kind": kind, "LANEWAY_SPARK_MAX_BATCH_RECORDS": BATCH}
    first = scene.run(*flags, life="-1", seconds=0.02, **rest)
    scene.after_calls(BATCH + BATCH // 2, life="-1")
    first.kill()
    committed = scene.committed()
    scene.finish(*flags, life="-2", seconds=0, **rest)

    before, after = scene.calls("-1"), scene.calls("-2")
    everything = check([*before, *after], scene.ends())
    lives = [check(before), check(after)]
    again = {(call.partition, call.offset) for call in before} & {(call.partition, call.offset) for call in after}
    assert everything.lost == 0
    assert everything.overlaps == 0
    assert everything.inversions == 0
    assert [(life.inversions, life.overlaps, life.duplicates) for life in lives] == [(0, 0, 0)] * 2
    assert len(again) <= BATCH
    assert all(offset >= committed[partition] for partition, offset in again)
    assert scene.lag() == 0
    assert scene.committed() == scene.ends()


def test_no_worker_outlives_the_driver(scene: Scene) -> None:
    """When the driver is killed its workers stop handling at once, so they never run beside those of a restart."""
    scene.produce(3_000)
    run = scene.run(seconds=0.05)
    scene.after_calls(100)
    assert run.workers()
    run.kill()
    killed = time.monotonic()
    eventually(lambda: not run.family(), timeout=30, why=f"the end of {run.family()}")
    gone = time.monotonic() - killed
    late = max(call.end for call in scene.calls()) - killed
    print(f"processes gone after {gone:.2f} s, the last call ended {late:.2f} s after the kill")
    # A restart needs longer than this to handle its first record.
    assert gone < 5
    assert late < 2
    assert psutil.pid_exists(run.process.pid) is False
