"""As many lanes as the partitions that a process owns now: when others join, and when a topic grows."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from laneway import App, DirectEngine, Topic
from laneway.settings import load
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.direct_scene import DirectScene

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LANES = 2


class Members:
    """Members of one group on threads of this process; what runs at once is counted, and waits for a gate."""

    def __init__(self, scene: DirectScene, kind: str) -> None:
        self._scene, self._kind = scene, kind
        self.gate = threading.Event()
        self.engines: list[DirectEngine] = []
        self.running: dict[int, int] = defaultdict(int)
        """Partition to how many calls run."""
        self.most: dict[int, int] = defaultdict(int)
        """Partition to how many ran at once."""
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def join(self) -> DirectEngine:
        """One more member."""
        app = App(self._scene.group)
        app.handler(Topic(self._scene.topic), lanes=LANES)({"async": self._wait, "sync": self._work}[self._kind])
        overrides = {
            "brokers": self._scene.bootstrap,
            "clusters.main.consumer.metadata_refresh": "500ms",
            "clusters.main.consumer.heartbeat_interval": "500ms",
            "drain": "2s",
        }
        engine = DirectEngine(load(overrides=overrides))
        thread = threading.Thread(target=engine.run, args=(app,), daemon=True)
        thread.start()
        self.engines.append(engine)
        self._threads.append(thread)
        return engine

    def owned(self) -> list[int]:
        """How many partitions each member owns."""
        return [sum(len(cluster.owned) for cluster in engine._clusters) for engine in self.engines]

    def end(self) -> None:
        self.gate.set()
        for engine in self.engines:
            engine.stop()
        for thread in self._threads:
            thread.join(40)
            assert not thread.is_alive()

    def _count(self, partition: int, change: int) -> None:
        with self._lock:
            self.running[partition] += change
            self.most[partition] = max(self.most[partition], self.running[partition])

    def _work(self, record: Any) -> None:
        self._count(record.partition, 1)
        self.gate.wait(60)
        self._count(record.partition, -1)

    async def _wait(self, record: Any) -> None:
        import asyncio

        self._count(record.partition, 1)
        while not self.gate.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.02)
        self._count(record.partition, -1)


@pytest.fixture(params=["async", "sync"])
def members(scene: DirectScene, request: pytest.FixtureRequest) -> Iterator[Members]:
    made = Members(scene, request.param)
    yield made
    made.end()


def test_four_members_with_one_partition_each(scene: DirectScene, members: Members) -> None:
    """Each runs as many keys of its partition at once as the handler has lanes, and no more."""
    scene.topic = f"{scene.topic}.four"
    scene.create(scene.topic, 4)
    for _ in range(4):
        members.join()
    eventually(lambda: members.owned() == [1] * 4, why=lambda: f"one partition each: {members.owned()}")
    for partition in range(4):
        scene.produce_rows([(b"k%d" % number, b"v") for number in range(40)], partition=partition)
    eventually(lambda: len(members.most) == 4 and min(members.most.values()) >= LANES, why="all lanes at work")
    time.sleep(0.5)  # more would have begun by now
    assert dict(members.most) == dict.fromkeys(range(4), LANES)


def test_a_topic_that_grows_from_one_to_eight_partitions(scene: DirectScene, members: Members) -> None:
    """One member has lanes for each of the new partitions."""
    scene.topic = f"{scene.topic}.one"
    scene.create(scene.topic, 1)
    members.join()
    eventually(lambda: members.owned() == [1], why="the first partition")
    scene.admin.grow(scene.topic, 8)
    eventually(lambda: members.owned() == [8], why=lambda: f"eight partitions: {members.owned()}")
    scene._producer = None  # one that knew the topic before would not know of the new partitions for minutes
    for partition in range(8):
        scene.produce_rows([(b"k%d-%d" % (partition, number), b"v") for number in range(40)], partition=partition)
    eventually(lambda: sum(members.running.values()) == 8 * LANES, why=lambda: f"16 at once: {dict(members.running)}")
    time.sleep(0.5)  # more would have begun by now
    assert sum(members.running.values()) == 8 * LANES
