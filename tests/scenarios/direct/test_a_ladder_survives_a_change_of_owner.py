"""Records climb a ladder while partitions change their owner: each reaches one end, in the order of its mode."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from laneway.devkit.history import check
from support.ladder_app import fate

if TYPE_CHECKING:
    from support.direct_scene import DirectScene
    from support.processes import LanewayRun

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(220)]

KEYS = 150


def climber(scene: DirectScene, mode: str) -> LanewayRun:
    return scene.worker(target="support.ladder_app:app", mode=mode, steps="500ms,1s", seconds=0.01, lanes=5)


def is_member(scene: DirectScene, number: int) -> bool:
    return bool(scene.events_of(number, "done"))


@pytest.mark.parametrize("fault", ["rebalance", "kill"])
@pytest.mark.parametrize("mode", ["unordered", "ordered"])
def test_every_record_reaches_one_end(scene: DirectScene, mode: str, fault: str) -> None:
    """Nothing is lost, each parked copy is there once, and with ordered the order of each key holds."""
    first = climber(scene, mode)
    traffic = scene.traffic(150, burst=30, keys=KEYS)
    scene.wait_for(lambda: is_member(scene, 0), why="the first works")
    climber(scene, mode)  # joins in the middle of the work
    scene.wait_for(lambda: is_member(scene, 1), why="the second works")
    done = len(scene.events("done"))
    scene.wait_for(lambda: len(scene.events("done")) >= done + 300, why="work of both")
    if fault == "kill":
        first.kill()
    else:
        scene.dismiss(first)
    done = len(scene.events("done"))
    scene.wait_for(lambda: len(scene.events("done")) >= done + 300, why="work of the one that is left")
    traffic.stop()
    topics = (scene.topic, *(f"{scene.topic}.{scene.group}.retry.{step}" for step in (1, 2)))
    scene.wait_until_idle(topics, timeout=90)
    scene.dismiss_all()

    done, failed, parked = scene.events("done"), scene.events("failed"), scene.parked()
    verdict = check(done, scene.ends(), failed=failed, parked=parked)
    values = {(record.partition, record.offset): record.raw for record in scene.read(scene.topic)}
    copies = Counter(parked)
    print(f"{mode} {fault}: {len(parked)} parked; {verdict}")
    assert verdict.lost == 0
    assert {place for place, value in values.items() if fate(value) == "parked"} <= set(copies)
    assert max(copies.values()) == 1
    assert {(event.partition, event.offset) for event in done}.isdisjoint(copies)
    if mode == "unordered":
        # A retry runs beside other records of its key; first calls keep order.
        verdict = check([event for event in (*done, *failed) if event.attempt == 1])
    assert verdict.inversions == 0
    if fault == "rebalance":
        assert verdict.overlaps == 0
        assert max(Counter((event.partition, event.offset) for event in done).values()) == 1


def test_a_kill_before_the_first_commit_copies_nothing_twice(scene: DirectScene) -> None:
    """A new group has committed nothing yet; what its first worker has copied by then is found all the same."""
    doomed = [value for value in (str(number).encode() for number in range(20_000)) if fate(value) == "parked"][:400]
    scene.produce_rows((b"k%d" % number, value) for number, value in enumerate(doomed))
    rest = {"target": "support.ladder_app:app", "mode": "unordered", "steps": "1h", "seconds": 0.1, "lanes": 5}
    killed = scene.worker(**rest, commit_interval=60)
    scene.wait_for(lambda: len(scene.events("failed")) >= 60, why="copies")
    killed.kill()
    assert {offset for offset, _ in scene.commits().values()} <= {0}, "it was to be killed before it committed"
    scene.worker(**{**rest, "seconds": 0})
    scene.wait_until_idle()
    scene.dismiss_all()

    retry = f"{scene.topic}.{scene.group}.retry.1"
    copies = Counter(record.raw for record in scene.read(retry))
    assert set(copies) == set(doomed)
    assert max(copies.values()) == 1
