"""A worker is frozen for longer than its session lasts, another takes over, and then it thaws."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from support.waiting import eventually

if TYPE_CHECKING:
    from support.direct_scene import DirectScene

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(200)]


@pytest.mark.parametrize("kind", ["async", "sync", "processes"])
def test_its_late_results_count_for_nothing(scene: DirectScene, kind: str) -> None:
    """It begins, sends and commits nothing of what it lost, nothing is lost, and it goes on as a member.

    When it is frozen, hundreds of records wait for a lane, and calls are under way whose messages are still to be sent.
    """
    replies = f"{scene.topic}.replies"
    scene.admin.create(replies, 1)
    frozen = scene.worker(seconds=0.05 if kind == "processes" else 0.3, lanes=4, kind=kind, replies=replies)
    other = scene.worker(seconds=0.02, lanes=4, kind=kind, replies=replies)
    scene.wait_for(lambda: scene.told_by(0) and scene.told_by(1), why="two members")
    scene.produce(1_500, keys=200)
    traffic = scene.traffic(60, burst=30, keys=200)
    scene.wait_for(lambda: min(len(scene.events_of(0)), len(scene.events_of(1))) >= 40, why="work of both")
    frozen.send(signal.SIGSTOP)
    owned = _owned(scene, 0)
    assert owned
    scene.wait_for(lambda: _owned(scene, 1) == set(range(6)), why="the other takes over")
    seen = len(scene.events_of(1))
    scene.wait_for(lambda: len(scene.events_of(1)) >= seen + 100, why="the other goes on")
    thawed = (time.monotonic(), time.time())
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
    # Before it hears of its loss it may hear that a commit from before the stop has arrived. Whether one was taken
    # later, the verdict on ownership shows, from the log of the brokers.
    late = [event for event in scene.told_by(0) if event.kind == "committed" and lost < event.time < again]
    # It reports partitions a little later than it gets them, so what it begins by then may be its own.
    theirs = {(event.partition, event.offset) for event in scene.events_of(1, "begun") if event.start < thawed[0]}
    begun_late = [event for event in scene.events_of(0, "begun") if thawed[0] <= event.start]
    zombies = [event for event in begun_late if event.start < lost or (event.partition, event.offset) in theirs]
    back = thawed[1] + again - thawed[0]
    sent = [at for at in sent_by(scene, replies, scene.workers.index(frozen)) if thawed[1] <= at < back]
    twice = scene.begun_twice()
    begun = {(event.partition, event.offset) for event in scene.events_of(0, "begun") if event.start < lost}
    print(f"{len(twice)} called twice; {verdict}; {ownership}")
    assert zombies == []
    # One: it may have been stopped between the look at its lease and the call of the client, which a lock allows once.
    assert len(sent) <= 1
    assert late == []
    assert verdict.lost == 0
    assert verdict.inversions == 0
    assert (ownership.ahead, ownership.after_revoke, ownership.backwards) == (0, 0, 0), ownership.examples
    assert (ownership.unwritten, ownership.strays) == (0, 0), ownership.examples
    assert twice <= begun


def test_one_that_is_still_a_member_goes_on(scene: DirectScene) -> None:
    """Frozen for longer than calls may begin without a poll, but not for a whole session: nothing runs twice."""
    frozen = scene.worker(seconds=0.02, lanes=2, LANEWAY__CLUSTERS__MAIN__CONSUMER__SESSION_TIMEOUT="10s")
    scene.wait_for(lambda: scene.told_by(0), why="a member")
    scene.produce(1_500, keys=200)
    scene.wait_for_calls(100)
    frozen.send(signal.SIGSTOP)
    time.sleep(7.5)
    frozen.send(signal.SIGCONT)
    scene.wait_until_idle()
    scene.dismiss_all()

    assert _times(scene, 0, "lost") == []
    assert scene.begun_twice() == set()
    assert scene.judged().is_clean


def sent_by(scene: DirectScene, replies: str, number: int) -> list[float]:
    """When a worker sent its messages."""
    client = Consumer({"bootstrap.servers": scene.bootstrap, "group.id": "none", "enable.auto.commit": False})
    _, end = client.get_watermark_offsets(TopicPartition(replies, 0), 10)
    client.assign([TopicPartition(replies, 0, 0)])
    found: list[tuple[bytes, float]] = []

    def is_read() -> bool:
        new = [message for message in client.consume(10_000, 0.5) if message.error() is None]
        found.extend((message.value(), message.timestamp()[1] / 1000) for message in new)
        return len(found) >= end

    eventually(is_read, why="all messages")
    client.close()
    return [at for value, at in found if value == scene._history(f"-{number}").name.encode()]


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
