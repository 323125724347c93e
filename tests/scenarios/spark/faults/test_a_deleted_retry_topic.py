"""A retry topic is deleted while a batch runs whose records are to be copied to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.fault_scene import FaultScene, Place

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def delete_in_mid_batch(scene: FaultScene) -> set[Place]:
    """Let calls of ten records begin, delete the retry topic, and let them fail; gives their places."""
    gated = scene.produce_failing([1] * 10, b"gate")
    scene.until(scene.waiting)
    scene.delete_in_use(scene.retry())
    scene.gate.touch()
    return gated


def test_the_loss_of_waiting_records_ends_the_run(scene: FaultScene) -> None:
    """The topic comes back as it was, the run fails with what was lost, and the next run has all of the source."""
    run = scene.begin(steps="10m")
    lost = scene.produce_failing([1] * 6)
    scene.until(lambda: sum(scene.ends(scene.retry()).values()) == 6 and scene.is_finished(scene.topic))
    gated = delete_in_mid_batch(scene)
    assert run.ended(60) == 1, run.output
    told = run.output.splitlines()[-1]
    for part in (scene.retry(), "at least 6 deferred records are lost", "on_data_loss: continue"):
        assert part in told
    assert "Traceback" not in run.output
    assert len(scene.admin.partitions(scene.retry())) == 3
    assert scene.option(scene.retry(), "retention.ms") == "-1"

    run = scene.begin(steps="1s")
    scene.until(lambda: scene.is_finished() and len(scene.done()) >= 10)
    scene.stop(run)
    assert sorted((call.partition, call.offset) for call in scene.done()) == sorted(gated)
    assert scene.found().lost == len(lost) == 6


def test_asked_to_go_on_it_goes_on(scene: FaultScene) -> None:
    """With on_data_loss: continue the run says what happened and reads the new topic from its start, early for none."""
    run = scene.begin(steps="2s", LANEWAY_ON_DATA_LOSS="continue")
    scene.produce_failing([1] * 6)
    scene.until(lambda: scene.is_finished() and len(scene.done()) == 6)
    delete_in_mid_batch(scene)
    scene.until(lambda: scene.is_finished() and len(scene.done()) == 16, timeout=60)
    assert sum(scene.ends(scene.retry()).values()) == 10
    assert run.output.count(f"the retry topic {scene.retry()} was deleted") == 1
    scene.stop(run)
    ended = {(call.partition, call.offset): call.end for call in scene.failed()}
    assert min(call.start - ended[call.partition, call.offset] for call in scene.done()) >= 2.0
    assert (scene.found().lost, scene.found().duplicates) == (0, 0)
