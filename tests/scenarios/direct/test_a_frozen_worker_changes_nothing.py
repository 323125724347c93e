"""A worker is frozen for longer than its session lasts, another takes over, and then it thaws."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.direct_scene import DirectScene

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(200)]


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_its_late_results_count_for_nothing(scene: DirectScene, kind: str) -> None:
    """It commits nothing of partitions that it lost, nothing is lost, and it goes on as a member."""
    frozen = scene.worker(seconds=0.3, lanes=4, kind=kind)
    other = scene.worker(seconds=0.02, lanes=4, kind=kind)
    scene.wait_for(lambda: scene.told_by(0) and scene.told_by(1), why="two members")
    traffic = scene.traffic(60, burst=30, keys=200)
    scene.wait_for(lambda: min(len(scene.events_of(0)), len(scene.events_of(1))) >= 40, why="work of both")
    frozen.send(signal.SIGSTOP)
    stopped = time.monotonic()
    owned = _owned(scene, 0)
    assert owned
    scene.wait_for(lambda: _owned(scene, 1) == set(range(6)), why="the other takes over")
    seen = len(scene.events_of(1))
    scene.wait_for(lambda: len(scene.events_of(1)) >= seen + 100, why="the other goes on")
    frozen.send(signal.SIGCONT)
    scene.wait_for(lambda: _times(scene, 0, "lost"), why="the one that thaws hears of its loss")
    (lost,) = set(_times(scene, 0, "lost"))
    scene.wait_for(lambda: any(at > lost for at in _times(scene, 0, "assigned")), why="it is a member again")
    assert other.is_running
    seen = len(scene.events_of(0))
    scene.wait_for(lambda: len(scene.events_of(0)) >= seen + 40, why="it works again")
    traffic.stop()
    scene.wait_until_idle()
    scene.dismiss_all()

    verdict, ownership = scene.judged(), scene.judged_ownership()
    again = min(at for at in _times(scene, 0, "assigned") if at > lost)
    late = [event for event in scene.told_by(0) if event.kind == "committed" and stopped + 1 < event.time < again]
    twice = scene.begun_twice()
    begun = {(event.partition, event.offset) for event in scene.events_of(0, "begun") if event.start < lost}
    print(f"{len(twice)} called twice; {verdict}; {ownership}")
    assert late == []
    assert verdict.lost == 0
    assert verdict.inversions == 0
    assert (ownership.ahead, ownership.after_revoke, ownership.backwards) == (0, 0, 0), ownership.examples
    assert (ownership.unwritten, ownership.strays) == (0, 0), ownership.examples
    assert twice <= begun


def _times(scene: DirectScene, number: int, kind: str) -> list[float]:
    return [event.time for event in scene.told_by(number) if event.kind == kind]


def _owned(scene: DirectScene, number: int) -> set[int]:
    """What a worker owns by its own account."""
    owned: set[int] = set()
    for event in scene.told_by(number):
        if event.kind == "assigned":
            owned.add(event.partition)
        elif event.kind != "committed":
            owned.discard(event.partition)
    return owned
