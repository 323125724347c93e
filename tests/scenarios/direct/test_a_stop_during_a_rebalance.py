"""A worker is stopped while the group waits for a killed member: a clean stop repeats nothing, then too."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from support.waiting import eventually

if TYPE_CHECKING:
    from support.direct_scene import DirectScene
    from support.processes import LanewayRun

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SESSION = {"LANEWAY__CLUSTERS__MAIN__CONSUMER__SESSION_TIMEOUT": "20s"}


def _stopped_in_a_rebalance(scene: DirectScene) -> LanewayRun:
    """Of two workers one is killed and replaced; the other one is stopped while its request to join is not answered."""
    killed, stopped = scene.worker(seconds=0.005, **SESSION), scene.worker(seconds=0.005, **SESSION)
    scene.wait_for(lambda: scene.told_by(0) and scene.told_by(1), why="two members")
    eventually(lambda: not scene.admin.group(scene.group).is_moving, why="a group at rest")
    scene.traffic(60, keys=30)
    scene.wait_for(lambda: len(scene.events_of(1)) >= 60, why="calls")
    killed.kill()
    scene.worker(seconds=0.005, **SESSION)
    eventually(lambda: scene.admin.group(scene.group).is_moving, why="a rebalance that waits")
    ours = len(scene.events_of(1))
    scene.wait_for(lambda: len(scene.events_of(1)) >= ours + 90, why="calls whose commits wait for the rebalance")
    stopped.send(signal.SIGTERM)
    eventually(lambda: "everything is committed" in stopped.output, timeout=15, why=lambda: stopped.output)
    return stopped


def test_what_was_finished_is_committed_and_not_repeated(scene: DirectScene) -> None:
    """The coordinator answers no commit until the killed member's session ends; the stop commits all the same."""
    stopped = _stopped_in_a_rebalance(scene)
    done = {(event.partition, event.offset) for event in scene.events_of(1)}
    committed = {partition: offset for partition, (offset, _) in scene.commits().items()}
    last = {partition: max(offset for part, offset in done if part == partition) for partition, _ in done}
    assert {partition: committed[partition] for partition in last} == {part: at + 1 for part, at in last.items()}

    assert stopped.ended(40) == 0, stopped.output
    scene.wait_for(lambda: scene.told_by(2), timeout=30, why="partitions for the one that came")
    count = scene.quiet()
    scene.wait_until_idle(timeout=15)  # it has left: nothing waits for its session to end
    again = {(event.partition, event.offset) for event in scene.events_of(2)}
    scene.dismiss_all()
    assert done & again == set()
    assert scene.judged().records == count


def test_a_second_signal_does_not_wait_for_the_group(scene: DirectScene) -> None:
    """When everything is committed the process may end at once: its exit is clean, and nothing is repeated."""
    stopped = _stopped_in_a_rebalance(scene)
    stopped.send(signal.SIGTERM)
    assert stopped.ended(5) == 0, stopped.output
