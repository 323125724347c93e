"""A batch is planned, run, committed to the group and written into Spark's log; a process dies between two of these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laneway.devkit.history import check
from support.waiting import eventually

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

APP = "support.spark_gaps_app:app"
RECORDS = 400


@pytest.mark.parametrize(
    ("point", "repeats"),
    [
        ("after Spark's offset log", False),
        ("before the commit", True),
        ("after the commit", False),
        ("after Spark's commit log", False),
        ("the planner", False),
    ],
)
def test_nothing_is_lost_and_what_is_committed_is_not_repeated(scene: Scene, point: str, repeats: bool) -> None:  # noqa: FBT001
    """A restart begins at the group's offsets, and leaves out what their map says is finished."""
    scene.produce(RECORDS)
    dead = scene.folder / "dead"
    rest = {"LANEWAY_SPARK_BATCH_TIME": "300ms", "seconds": 0.02, "lanes": 2}
    first = scene.run(target=APP, life="-1", die=point, dead=dead, **rest)
    code = first.ended()
    assert dead.exists(), first.output
    assert code != 0
    eventually(lambda: not first.family(), timeout=30, why=lambda: f"the end of {first.family()}")
    scene.finish_on_direct(life="-2", seconds=0)

    before, after = scene.calls("-1"), scene.calls("-2")
    everything = check([*before, *after], scene.ends())
    assert everything.lost == 0
    assert everything.inversions == 0
    assert everything.overlaps == 0
    again = {(call.partition, call.offset) for call in before} & {(call.partition, call.offset) for call in after}
    assert bool(again) == repeats
    assert len(before) < RECORDS
    assert scene.lag() == 0


def test_a_worker_that_dies_before_its_row_is_counted_repeats_its_task(scene: Scene) -> None:
    """All of the task is handled and nothing of it is committed: Spark runs it again, from where it began."""
    scene.produce(60)
    dead = scene.folder / "dead"
    scene.finish(target=APP, die="before the row", dead=dead, seconds=0, LANEWAY_PRELOAD="support.spark_gaps_app")
    assert dead.exists()
    found = check(scene.calls(), scene.ends())
    assert (found.lost, found.overlaps) == (0, 0)
    assert found.duplicates > 0
    assert scene.committed() == scene.ends()
