"""The source topic gets more partitions while records wait on its retry topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laneway.devkit.history import check

if TYPE_CHECKING:
    from support.fault_scene import FaultScene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_growth_from_three_to_five(scene: FaultScene) -> None:
    """Retry topics grow with their source; records of new partitions climb the ladder, and a key's order holds."""
    run = scene.begin(steps="2s,1s", mode="ordered")
    scene.produce_failing([9] * 10)  # so that the workers' producers know the retry topic as it was
    scene.until(lambda: sum(scene.ends(scene.retry()).values()) == 10)
    scene.admin.grow(scene.topic, 5)
    scene.until(lambda: len(scene.admin.partitions(scene.retry(2))) == 5, timeout=30)
    assert len(scene.admin.partitions(scene.retry())) == 5
    scene.ready(scene.topic, 5)
    # A producer that knew the topic before would not know of the new partitions for minutes.
    scene._producer = None
    for partition in (3, 4):
        # The second record of each key comes a batch later: what it must queue behind is on the retry topic by then.
        scene.produce_rows([(b"p%d-%d" % (partition, n), b"1") for n in range(10)], partition=partition)
    scene.until(lambda: sum(scene.ends(scene.retry()).values()) >= 30, timeout=30)
    for partition in (3, 4):
        scene.produce_rows([(b"p%d-%d" % (partition, n), b"0") for n in range(10)], partition=partition)
    topics = scene.topic, scene.retry(1), scene.retry(2)
    scene.until(lambda: scene.is_finished(*topics), timeout=30)
    scene.stop(run)

    assert sorted(scene.parked()) == sorted(
        {(call.partition, call.offset) for call in scene.failed() if call.partition < 3}
    )
    assert sorted((call.partition, call.offset) for call in scene.done()) == [(p, n) for p in (3, 4) for n in range(20)]
    verdict = check([*scene.done(), *scene.failed()])
    assert (verdict.inversions, verdict.overlaps) == (0, 0)
