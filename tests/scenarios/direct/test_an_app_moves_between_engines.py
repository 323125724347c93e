"""The same app and group on Spark, then direct, then on Spark again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laneway.devkit.history import check

if TYPE_CHECKING:
    from support.direct_scene import DirectScene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


def test_nothing_is_lost_or_repeated_on_the_way(scene: DirectScene) -> None:
    """Each run begins where the one before ended, also in the middle of what waits."""
    app = "support.direct_app:app"
    for name in ("-spark-0", "-spark-1"):
        (scene.folder / f"history{name}" / "begun").mkdir(parents=True)
    scene.produce(1_000)
    scene.finish(target=app, life="-spark-0", seconds=0.002)
    assert scene.lag() == 0
    scene.produce(3_000)
    worker = scene.worker(seconds=0.01, lanes=2)
    scene.wait_for_calls(700)
    scene.dismiss(worker)
    assert 0 < scene.lag() < 3_000, "it was to be stopped in the middle"
    scene.produce(500)
    scene.finish(target=app, life="-spark-1", seconds=0.002)

    calls = [*scene.calls("-spark-0"), *scene.events(), *scene.calls("-spark-1")]
    verdict = check(calls, scene.ends())
    print(verdict)
    assert verdict.is_clean
    assert verdict.records == 4_500
    assert scene.lag() == 0
