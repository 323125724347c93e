"""One of two workers is killed in the middle of its work; the other takes over."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.direct_scene import DirectScene

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(200)]

SECONDS = 0.02
LANES = 5
COMMIT = 1.0  # seconds between two commits of the engine


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_the_other_takes_over_and_repeats_little(scene: DirectScene, kind: str) -> None:
    """Nothing is lost or out of order; repeated is only what was in flight or finished since the last commit."""
    settings = {"seconds": SECONDS, "lanes": LANES, "kind": kind}
    killed = scene.worker(**settings)
    scene.worker(**settings)
    scene.wait_for(lambda: scene.told_by(0) and scene.told_by(1), why="two members")
    traffic = scene.traffic(200, burst=50, keys=300)
    # The second one got its partitions when the first had given them up: from here on both work.
    scene.wait_for(lambda: min(len(scene.events_of(0)), len(scene.events_of(1))) >= 300, why="work of both")
    killed.kill()
    committed = {partition: offset for partition, (offset, _) in scene.commits().items()}
    before = scene.events_of(0, "begun")
    scene.wait_for_calls(len(scene.events()) + 600)
    traffic.stop()
    scene.wait_until_idle()
    scene.dismiss_all()

    verdict, ownership = scene.judged(), scene.judged_ownership()
    twice = scene.begun_twice()
    last = max(event.start for event in before)
    recent = {(event.partition, event.offset) for event in before if event.start > last - COMMIT - 3 * SECONDS}
    print(f"{len(twice)} called twice of {len(recent)} that may be; {verdict}")
    assert verdict.lost == 0
    assert verdict.inversions == 0
    assert ownership.is_clean, ownership.examples
    # On a machine that is busy a commit may be late; what was committed is exact.
    assert all(offset >= committed[partition] for partition, offset in twice)
    assert twice <= {(event.partition, event.offset) for event in before}
    assert len(twice) <= max(len(recent), 2 * 6 * LANES)
    assert max(Counter((event.partition, event.offset) for event in scene.events("begun")).values()) <= 2


def test_a_start_after_a_kill_says_what_it_waits_for(scene: DirectScene) -> None:
    """The state names the session time-out of the killed member, and says it no longer when partitions come."""
    first = scene.worker()
    scene.wait_for(lambda: scene.told_by(0), why="a first member")
    first.kill()
    second = scene.worker()
    told = "those of a killed member are assigned after its session timeout (6s)"
    scene.wait_for(lambda: told in second.output, why="what it waits for")
    assert not scene.told_by(1)
    scene.wait_for(lambda: scene.told_by(1), why="partitions")
    scene.wait_for(lambda: second.output.splitlines()[-1].endswith(": consuming"), why="a state without a wait")
    scene.dismiss(second)
