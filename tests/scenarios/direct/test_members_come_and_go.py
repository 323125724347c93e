"""Workers join and leave while records are handled: every record is called once."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.direct_scene import DirectScene

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(200)]


@pytest.mark.parametrize(
    ("records", "seconds", "rate", "kind"),
    [
        pytest.param(1_000, 0.01, 65, "async", id="1000x10ms"),
        pytest.param(200, 0.1, 13, "sync", id="200x100ms", marks=pytest.mark.soak),
        pytest.param(50, 1.0, 3.3, "async", id="50x1s", marks=pytest.mark.soak),
    ],
)
def test_joining_and_leaving_repeats_nothing(
    scene: DirectScene, records: int, seconds: float, rate: float, kind: str
) -> None:
    """Joins and leaves in the middle of the work: none lost, none called twice, none out of order, none at once."""
    settings = {"seconds": seconds, "lanes": 1, "kind": kind}
    present = [scene.worker(**settings)]
    scene.wait_for(lambda: scene.told_by(0), why="a first member")
    traffic = scene.traffic(rate, burst=records // 10, most=records, keys=records // 4)
    leaving, changes = [], 0
    while not traffic.is_over:
        # Whenever one has joined, the oldest leaves, and the next is on its way.
        present.append(scene.worker(**settings))
        newest = len(scene.workers) - 1
        scene.wait_for(lambda newest=newest: scene.told_by(newest), why="partitions for the one that joined")
        changes += 1
        if len(present) > 2:
            leaving.append(present.pop(0))
            leaving[-1].send(signal.SIGTERM)
            changes += 1
    assert [worker.ended(60) for worker in leaving] == [0] * len(leaving)
    scene.wait_until_idle()
    scene.dismiss_all()

    verdict, ownership = scene.judged(), scene.judged_ownership()
    helped = sum(bool(scene.events_of(number)) for number in range(len(scene.workers)))
    print(f"{changes} changes, {helped} workers had work: {verdict} {ownership}")
    assert changes >= 3
    assert helped >= 2
    assert verdict.records == records
    assert verdict.is_clean
    assert scene.begun_twice() == set()
    assert ownership.is_clean, ownership.examples


@pytest.mark.parametrize("rounds", [2, pytest.param(5, marks=pytest.mark.soak)])
def test_rolling_bounces_repeat_nothing(scene: DirectScene, rounds: int) -> None:
    """Three workers are stopped and started again by turns under steady traffic: each record is called once."""
    settings = {"seconds": 0.02, "lanes": 4}
    present = [scene.worker(**settings) for _ in range(3)]
    scene.wait_for(lambda: all(scene.told_by(number) for number in range(3)), why="three members")
    traffic = scene.traffic(100, burst=20)
    for _ in range(rounds):
        for place in range(3):
            scene.dismiss(present[place])
            present[place] = scene.worker(**settings)
            newest = len(scene.workers) - 1
            scene.wait_for(lambda newest=newest: scene.told_by(newest), why="partitions for the one that came back")
    count = traffic.stop()
    scene.wait_until_idle()
    scene.dismiss_all()

    verdict, ownership = scene.judged(), scene.judged_ownership()
    print(f"{count} records, {len(scene.workers)} workers: {verdict} {ownership}")
    assert len(scene.workers) == 3 + 3 * rounds
    assert verdict.records == count
    assert verdict.is_clean
    assert scene.begun_twice() == set()
    assert ownership.is_clean, ownership.examples


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_stop_with_a_backlog_gives_the_partitions_back(scene: DirectScene, kind: str) -> None:
    """What was read and not begun is not waited for: the worker leaves the group cleanly, and nothing is repeated."""
    scene.produce(1_200, keys=300)
    stopped = scene.worker(seconds=0.1, lanes=2, kind=kind)
    scene.wait_for_calls(40)
    scene.dismiss(stopped)
    told = scene.told_by(0)
    # A process that ends before it has given them back keeps the others waiting for its session to run out.
    assert {event.partition for event in told if event.kind == "revoked"} == set(range(6)), stopped.output
    assert scene.lag() > 600
    scene.worker(lanes=20, kind=kind)
    scene.wait_until_idle()
    scene.dismiss_all()

    assert scene.judged().is_clean
    assert scene.begun_twice() == set()
