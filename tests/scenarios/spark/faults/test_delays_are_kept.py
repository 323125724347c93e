"""Records that wait on a retry topic: when they run, and what a stop and a restart do to them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from support.waiting import eventually

if TYPE_CHECKING:
    from support.fault_scene import FaultScene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_a_delay_is_never_short_and_hardly_long(scene: FaultScene) -> None:
    """On an idle app a second call begins no less than the delay after the first ended, and at most 1 s later."""
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
    waits = sorted(call.start - ended[call.partition, call.offset] for call in scene.done())
    assert waits[0] >= 2.0
    late = [wait - 2.0 for wait in waits]
    print(f"late by {late[25] * 1000:.0f} ms (p50), {late[49] * 1000:.0f} ms (p99), {late[50] * 1000:.0f} ms (most)")
    assert late[50] < 1.0


def test_a_stop_and_a_restart_leave_what_waits_in_peace(scene: FaultScene) -> None:
    """A stop does not wait for records on a retry topic; a later run has them still, early for none, late for none."""
    run = scene.begin(steps="10m")
    scene.produce_failing([1] * 10)
    scene.until(lambda: sum(scene.ends(scene.retry()).values()) == 10 and scene.is_finished(scene.topic))
    asked = time.monotonic()
    scene.stop(run)
    assert time.monotonic() - asked < 10

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
