"""The limits of the retry and error topics are lowered, below the size of records that are to be copied to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.fault_scene import FaultScene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_what_does_not_fit_is_parked_and_what_does_not_fit_there_is_reduced(scene: FaultScene) -> None:
    """Too large for the retry topic: parked whole. For both: parked as a reference. Small ones beside them climb."""
    run = scene.begin(steps="1s", LANEWAY__HANDLERS__HANDLE__OVERSIZE="reference")
    scene.produce_failing([1])
    scene.until(lambda: scene.is_finished() and len(scene.done()) == 1)

    scene.alter(scene.retry(), max_message_bytes=2_000)
    # More small ones at a time than one request of that size could hold.
    small = scene.produce_failing([1] * 60, b"x" * 100)
    large = scene.produce_failing([1] * 3, b"y" * 5_000)
    scene.until(lambda: scene.is_finished() and len(scene.parked()) >= 3, timeout=40)
    assert set(scene.parked()) == large
    assert {(call.partition, call.offset) for call in scene.done()} >= small
    copies = scene.read(scene.error_topic)
    assert {(copy.raw, copy.header("laneway-reduced")) for copy in copies} == {(b"1 " + b"y" * 5_000, None)}

    scene.alter(scene.error_topic, max_message_bytes=2_000)
    small = scene.produce_failing([1] * 60, b"x" * 100)
    larger = scene.produce_failing([1] * 3, b"y" * 5_000)
    scene.until(lambda: scene.is_finished() and len(scene.parked()) >= 6, timeout=40)
    assert set(scene.parked()) == large | larger
    assert len(scene.done()) == 121
    reduced = [copy for copy in scene.read(scene.error_topic) if copy.header("laneway-reduced")]
    assert [(copy.raw, copy.header("laneway-reduced")) for copy in reduced] == [(None, b"value")] * 3
    scene.stop(run)
    assert (scene.found().lost, scene.found().duplicates) == (0, 0)
