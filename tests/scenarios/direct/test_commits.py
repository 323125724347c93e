"""How offsets reach the group: one request after the other, or in a producer's transaction."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition

from laneway import App, Topic
from laneway.settings import load
from support.doors import ClusterRuntime, FencedError, GroupConsumer
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.direct_scene import DirectScene
    from support.doors import OffsetAndMetadata, Place

pytestmark = [pytest.mark.broker, pytest.mark.slow]


class _Begins:
    """An owner that reads from the start and keeps nothing."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.partitions: dict[Place, Any] = {}

    def assigned(self, places: list[Place]) -> dict[Place, int]:
        self.places = places
        return dict.fromkeys(places, 0)

    def revoked(self, places: list[Place]) -> None:
        pass

    lost = revoked


def _joined(scene: DirectScene, **options: int) -> GroupConsumer:
    owner = _Begins()
    options = {**load(overrides={"brokers": scene.bootstrap}).cluster().consumer_options(), **options}
    member = GroupConsumer(options, scene.group)
    member.subscribe([scene.topic], owner)  # type: ignore[arg-type]
    eventually(lambda: member.read(1, 0.1) or owner.places, timeout=30)
    return member


def test_the_next_commit_waits_for_the_answer_to_the_last(scene: DirectScene) -> None:
    """What is offered meanwhile is refused; the answer comes with a read, and says what it is the answer to."""
    member = _joined(scene)
    first = {(scene.topic, 0): (0, "one")}

    assert member.commit_soon(first)
    assert not member.commit_soon({(scene.topic, 0): (0, "two")})
    member.commit({(scene.topic, 1): (0, "meanwhile")})  # this one has an answer of its own
    found = eventually(lambda: member.read(1, 0.1) or member.answers(), timeout=30)
    assert found == [(first, None)]
    assert member.answers() == []
    assert member.commit_soon({(scene.topic, 0): (0, "three")})
    eventually(lambda: member.read(1, 0.1) or member.answers(), timeout=30)
    known = member.known([(scene.topic, 0), (scene.topic, 1)], 10)
    assert known == {(scene.topic, 0): (0, "three"), (scene.topic, 1): (0, "meanwhile")}
    member.close()


def test_a_commit_of_a_former_member_fails_at_once(scene: DirectScene) -> None:
    """To repeat the commit would change nothing: another member has the partitions by now."""
    member = _joined(scene, **{"session.timeout.ms": 6_000, "max.poll.interval.ms": 6_000})
    eventually(lambda: not scene.admin.members(scene.group), timeout=40, why="the group to go on without it")

    with pytest.raises(FencedError):
        member.commit({(scene.topic, 0): (0, "late")})
    assert member.known([(scene.topic, 0)], 10) == {}
    member.close()


class _InTransactions:
    """Commits offsets in transactions of a producer, as an app would that sends messages in them too."""

    def __init__(self, member: GroupConsumer, bootstrap: str, name: str, *, aborts: bool) -> None:
        self._member = member
        self._aborts = aborts
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        self._producer.init_transactions(30)
        self._answers: list[tuple[Mapping[Place, OffsetAndMetadata], None]] = []

    def commit(self, offsets: Mapping[Place, OffsetAndMetadata]) -> None:
        self._producer.begin_transaction()
        places = [TopicPartition(*place, offset, text) for place, (offset, text) in offsets.items()]
        self._producer.send_offsets_to_transaction(places, self._member.metadata(), 30)
        if self._aborts:
            self._producer.abort_transaction(30)
        else:
            self._producer.commit_transaction(30)

    commit_apart = commit

    def commit_soon(self, offsets: Mapping[Place, OffsetAndMetadata]) -> bool:
        self.commit(offsets)
        self._answers.append((offsets, None))
        return True

    def answers(self) -> list[tuple[Mapping[Place, OffsetAndMetadata], None]]:
        found, self._answers = self._answers, []
        return found


@pytest.mark.parametrize("aborts", [False, True], ids=["committed", "aborted"])
def test_offsets_may_go_into_a_transaction(scene: DirectScene, *, aborts: bool) -> None:
    """All of the engine's commits go through the seam: those of a transaction that is aborted are as if never made."""
    scene.produce(600)
    topic, calls = Topic(scene.topic), []
    app = App(scene.group)

    @app.handler(topic, lanes=4)
    def handle(record: object) -> None:
        calls.append(record)

    settings = load(overrides={"brokers": scene.bootstrap})
    loop = asyncio.new_event_loop()

    class Transactional(ClusterRuntime):
        def _commits_of(self, consumer):
            return _InTransactions(consumer, scene.bootstrap, scene.group, aborts=aborts)

    listener = SimpleNamespace(event=lambda event: None, note=lambda words: None)
    crew = Transactional(
        scene.group,
        list(app.routes),
        settings.cluster(),
        settings,
        host=SimpleNamespace(loop=loop),
        listener=listener,
    )
    crew.start()
    eventually(lambda: len(calls) == 600, timeout=60)
    time.sleep(1.5)  # one regular commit at least
    crew.stop()
    eventually(lambda: crew.is_finished, timeout=30)
    crew.end(SimpleNamespace(is_forced=False))
    crew.raise_if_failed()
    loop.close()

    known = scene.admin.lag(scene.group, scene.topic).values()
    assert all(committed == (None if aborts else end) for committed, end in known)
    assert not [thread for thread in threading.enumerate() if thread.name == "laneway-member"]
