"""What every engine does with records that wait on a retry topic."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from support.waiting import eventually

if TYPE_CHECKING:
    from support.fault_scene import FaultScene

__all__ = ["check_lateness", "delay_is_kept", "stop_and_restart_keep_what_waits"]


def check_lateness(late: list[float]) -> None:
    """Assert that no call was early, most were late by less than a second, and none by much more.

    A single call may wait for the processor of a busy machine; what the engine adds shows in most of them.
    """
    late = sorted(late)
    half, most = late[len(late) // 2], late[-1]
    print(f"late by {half * 1000:.0f} ms (p50), {most * 1000:.0f} ms (most)")
    assert late[0] >= 0
    assert half < 1.0
    assert most < 5.0


def delay_is_kept(scene: FaultScene) -> None:
    """On an idle app: no second call sooner than the delay after the first has ended, and hardly any later."""
    run = scene.begin(steps="2s")
    # The first of all pays for the start of a worker and of its clients.
    scene.produce_failing([1])
    scene.until(lambda: len(scene.done()) == 1)
    for _ in range(10):
        scene.produce_failing([1] * 5)
        time.sleep(0.3)
    scene.until(lambda: len(scene.done()) == 51)
    scene.stop(run)

    ended = {(call.partition, call.offset): call.end for call in scene.failed()}
    assert len(ended) == len(scene.failed()) == len(scene.done()) == 51
    check_lateness([call.start - ended[call.partition, call.offset] - 2.0 for call in scene.done()])


def stop_and_restart_keep_what_waits(scene: FaultScene, *, within: float) -> None:
    """A stop waits for no record on a retry topic; a later run has them still, early for none, late for none."""
    run = scene.begin(steps="10m")
    scene.produce_failing([1] * 10)
    scene.until(lambda: sum(scene.ends(scene.retry()).values()) == 10 and scene.is_finished(scene.topic))
    asked = time.monotonic()
    scene.stop(run)
    assert time.monotonic() - asked < within

    run = scene.begin(steps="10m")
    scene.produce_failing([0])
    scene.until(lambda: len(scene.done()) == 1 and scene.is_finished(scene.topic))
    scene.stop(run)
    assert len(scene.failed()) == 10
    assert set(scene.committed(scene.retry()).values()) == {0}

    # They are due by now, as far as this run can tell.
    run = scene.begin(steps="1s")
    began = time.monotonic()
    scene.until(lambda: len(scene.done()) == 11)
    print(f"all had run {max(call.end for call in scene.done()) - began:.1f} s after the start")
    assert max(call.end for call in scene.done()) - began < 10
    eventually(scene.is_finished, why=lambda: run.output)
    assert (scene.found().lost, scene.found().duplicates) == (0, 0)
    assert scene.parked() == []
