"""A Python worker dies in mid-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laneway.devkit.history import check

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("kind", ["sync", pytest.param("async", marks=pytest.mark.soak)])
def test_its_share_is_repeated_and_the_run_goes_on(scene: Scene, kind: str) -> None:
    """Kill -9 of the workers repeats their tasks, loses nothing, and the run ends well."""
    scene.produce(3_000)
    run = scene.run("--once", kind=kind, seconds=0.02, LANEWAY_SPARK_BATCH_TIME="1s")
    scene.until(lambda: scene.lag() < 3_000)
    scene.after_calls(len(scene.calls()) + 200)
    victims = run.workers()
    assert victims
    for victim in victims:
        victim.kill()
    killed = {victim.pid for victim in victims}
    assert run.ended() == 0, run.output

    calls, verdict = scene.calls(), scene.verdict()
    assert verdict.lost == 0
    assert verdict.overlaps == 0
    assert verdict.inversions == 0
    assert 0 < verdict.duplicates <= 1_500
    assert not killed & {worker.pid for worker in run.workers()}
    assert scene.committed() == scene.ends()
    assert check(calls).records == 3_000
