"""More is finished past the commit than its metadata can hold: nothing stalls forever, and little runs again."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from support.direct_app import BLOCKED
from support.doors import decode_finished

if TYPE_CHECKING:
    from support.direct_scene import DirectScene, Place

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(200)]

CERTAIN = 18_000
"""Records that the first run surely finishes past the one that blocks: reading ends near 24,000 at the latest."""


@pytest.mark.parametrize(
    ("end", "count"), [("kill", 24_000), ("stop", 20_000)], ids=["killed at 24,000", "stopped at 20,000"]
)
def test_the_next_run_reads_on_and_repeats_nothing_that_was_committed(scene: DirectScene, end: str, count: int) -> None:
    """Every tenth record is of one key, whose first call blocks: the others are finished one by one between them."""
    scene.admin.create(f"{scene.topic}.one", 1)
    scene.topic = f"{scene.topic}.one"
    scene.produce_rows(
        (b"late", BLOCKED) if number % 10 == 0 else (b"k%d" % (number % 400), b"v") for number in range(count)
    )
    settings = {"gate": scene.folder / "gate", "lanes": 30, "seconds": 0, "LANEWAY_DRAIN": "1s"}
    worker = scene.worker(**settings)
    scene.wait_for(lambda: len(told_finished(scene)) >= CERTAIN, why="a commit that tells of what is finished")
    finished = told_finished(scene)
    if end == "kill":
        worker.kill()
    else:
        worker.send(signal.SIGTERM)
        assert worker.ended(40) == 3, "the call that blocks was not waited for, which the exit code says"
        finished = told_finished(scene)
    second = scene.worker(**settings)
    # What the map holds is passed over, and the rest is read: only the one key waits for the gate.
    scene.wait_for(lambda: len(scene.events_of(1, "begun")) > 0, why="the second run reads")
    (scene.folder / "gate").touch()
    scene.wait_until_idle()
    scene.dismiss(second)

    again = {(event.partition, event.offset) for event in scene.events_of(1, "begun")} & finished
    verdict = scene.judged()
    print(f"{len(finished)} told of, {len(scene.begun_twice())} run again; {verdict}")
    assert again == set()
    assert (verdict.lost, verdict.inversions) == (0, 0)


def told_finished(scene: DirectScene) -> set[Place]:
    """What the group's commit says is finished past its offset."""
    offset, text = scene.commits().get(0, (0, ""))
    finished = decode_finished(offset, text)
    return set() if finished is None else {(0, at) for at in range(offset, finished.end) if finished.has(at)}
