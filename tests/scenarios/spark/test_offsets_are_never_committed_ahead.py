"""The group's offsets, looked at from outside while handlers run."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from support.waiting import eventually

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_lag_is_what_was_not_handled(scene: Scene) -> None:
    """At every moment each committed offset is at or below the lowest unfinished one; in the end lag is exact."""
    scene.produce(3_000)
    run = scene.run(seconds=0.02, LANEWAY_SPARK_BATCH_TIME="200ms")
    scene.after_calls(1)
    looks: list[dict[int, int]] = []

    def is_over() -> bool:
        committed = scene.committed()
        # Asked before the history is read: what was committed then was handled before.
        handled = {(call.partition, call.offset) for call in scene.calls()}
        for partition, offset in committed.items():
            missing = [at for at in range(offset) if (partition, at) not in handled]
            assert missing == [], f"committed {offset} of partition {partition} before {missing[:5]}"
        if not looks or looks[-1] != committed:
            looks.append(committed)
        return committed == scene.ends()

    assert _watch(is_over)
    assert len(looks) >= 5, "too few commits were seen to say anything"
    run.send(signal.SIGTERM)
    assert run.ended() == 0, run.output
    assert scene.lag() == 0
    assert scene.verdict().is_clean


def _watch(look: object) -> bool:
    """Look until it is over; unlike `eventually` a failed assertion ends the watch."""
    failures: list[AssertionError] = []

    def guarded() -> bool:
        try:
            return bool(look())  # type: ignore[operator]
        except AssertionError as error:
            failures.append(error)
            return True

    eventually(guarded, timeout=90, every=0.02)
    if failures:
        raise failures[0]
    return True
