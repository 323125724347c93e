"""One record blocks while thousands of its partition flow past it: the commit stays below it and holds the rest."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from support.direct_app import BLOCKED
from support.doors import MOST, decode_finished

if TYPE_CHECKING:
    from support.direct_scene import DirectScene, Place

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

SPAN = float(os.environ.get("LANEWAY_TEST_BLOCKED_SECONDS", "5"))


def flow_past(scene: DirectScene, **settings: object) -> Place:
    """Block one record and let others flow past it for a while, with an eye on the group's offset; gives its place."""
    scene.admin.create(f"{scene.topic}.one", 1)
    scene.topic = f"{scene.topic}.one"
    scene.produce(500, keys=40)
    scene.produce_rows([(b"late", BLOCKED)])
    blocked = (0, 500)
    scene.worker(gate=scene.folder / "gate", lanes=30, seconds=0.003, **settings)
    scene.wait_for(lambda: blocked in begun(scene, 0), why="the call that blocks")
    traffic = scene.traffic(400, burst=40, keys=500)
    until = time.monotonic() + SPAN
    seen: set[tuple[int, int]] = set()
    process, sizes = psutil.Process(scene.workers[0].process.pid), []
    while time.monotonic() < until or (len(seen) < 5 and time.monotonic() < until + 60):
        offset, text = scene.commits().get(0, (0, ""))
        assert offset <= blocked[1], f"committed {offset} past the record that blocks"
        assert len(text) <= MOST
        finished = decode_finished(offset, text)
        seen.add((offset, 0 if finished is None else len(finished)))
        sizes.append(process.memory_info().rss)
        time.sleep(0.2)
    grown = (max(sizes) - max(sizes[: len(sizes) // 3])) / 2**20
    print(f"{sizes[-1] / 2**20:.0f} MiB, grown by {grown:.1f} in the last two thirds")
    assert grown < 20  # what is finished above the blocked record is a few numbers, not records
    count = traffic.stop()
    scene.wait_for_calls(500 + count)
    assert len(seen) >= 5, f"too few commits were seen to say anything: {seen}"
    return blocked


def begun(scene: DirectScene, number: int) -> set[Place]:
    return {(event.partition, event.offset) for event in scene.events_of(number, "begun")}


def told_finished(scene: DirectScene) -> set[Place]:
    """What the group's commit says is finished."""
    offset, text = scene.commits()[0]
    finished = decode_finished(offset, text)
    above = set() if finished is None else {at for at in range(offset, finished.end) if finished.has(at)}
    return {(0, at) for at in above | set(range(offset))}


@pytest.mark.parametrize("kind", ["async", pytest.param("sync", marks=pytest.mark.soak)])
def test_after_a_kill_only_the_blocked_one_and_the_newest_run_again(scene: DirectScene, kind: str) -> None:
    """The commit never passes the blocked record; after kill -9 nothing runs again that was in its metadata."""
    blocked = flow_past(scene, kind=kind)
    traffic = scene.traffic(300, burst=30, keys=500)
    start = len(scene.events())
    scene.wait_for_calls(start + 200)
    finished = told_finished(scene)
    scene.workers[0].kill()
    traffic.stop()
    (scene.folder / "gate").touch()
    scene.worker(gate=scene.folder / "gate", lanes=30, seconds=0.003, kind=kind)
    scene.wait_until_idle()
    scene.dismiss_all()

    again = begun(scene, 0) & begun(scene, 1)
    verdict = scene.judged()
    print(f"{len(finished)} told of, {len(again)} run again; {verdict}")
    assert blocked in again
    assert len(finished) > 1_000
    assert again.isdisjoint(finished)
    assert (verdict.lost, verdict.inversions) == (0, 0)


def test_a_clean_restart_repeats_nothing_but_what_was_cut(scene: DirectScene) -> None:
    """A stop that cannot wait for the blocked record commits the rest; the next run begins with that record alone."""
    blocked = flow_past(scene, LANEWAY_DRAIN="1s")
    scene.workers[0].send(15)
    assert scene.workers[0].ended(40) == 3, "the blocked call was not waited for, which the exit code says"
    (scene.folder / "gate").touch()
    scene.worker(gate=scene.folder / "gate", lanes=30, seconds=0.003)
    scene.wait_until_idle()
    scene.dismiss_all()

    assert scene.begun_twice() == {blocked}
    assert scene.judged().is_clean


def test_a_clean_restart_repeats_nothing(scene: DirectScene) -> None:
    """When the blocked record ends in time, a stop and a start run nothing twice."""
    flow_past(scene)
    scene.produce(200, keys=40)
    scene.workers[0].send(15)
    (scene.folder / "gate").touch()
    assert scene.workers[0].ended(60) == 0, scene.workers[0].output
    scene.produce(20, keys=5)  # or nothing would show that the second run was there at all
    scene.worker(gate=scene.folder / "gate", lanes=30, seconds=0.003)
    scene.wait_until_idle()
    scene.dismiss_all()

    assert scene.begun_twice() == set()
    assert scene.judged().is_clean
