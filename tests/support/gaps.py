"""Logs with offsets that hold no record: transactions, compaction, deletion."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from confluent_kafka import Producer, TopicPartition

from support.waiting import eventually

if TYPE_CHECKING:
    from support.spark_scene import Scene

__all__ = ["Transactions", "compact", "delete_half"]

_COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": str(1 << 20),
    "segment.ms": "100",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "0",
}


class Transactions:
    """Writes to a scene's topic in transactions, each of which ends in a marker."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._producer = Producer({"bootstrap.servers": scene.bootstrap, "transactional.id": uuid.uuid4().hex})
        self._producer.init_transactions(30)

    def write(self, *, commits: bool) -> None:
        """Twenty records to each partition, and the marker behind them; without a commit all 21 are a gap."""
        scene, producer = self._scene, self._producer
        before = scene.ends()
        producer.begin_transaction()
        for partition in before:
            for number in range(20):
                producer.produce(scene.topic, b"v", b"k%d" % number, partition=partition)
        assert producer.flush(60) == 0
        if commits:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        # The marker is written after the answer, and the end that readers see moves with it.
        eventually(lambda: all(end == before[partition] + 21 for partition, end in scene.ends().items()))


def compact(scene: Scene) -> None:
    """Give a scene a topic of one partition, most of whose 1,200 first offsets were compacted away."""
    scene.topic = f"{scene.topic}.compacted"
    scene.admin.create(scene.topic, 1, config=_COMPACTED)
    for _ in range(3):
        scene.produce(400, keys=10)
    # Compaction leaves the active segment alone; a new record makes a new one.
    eventually(lambda: scene.produce(1, keys=1) or len(scene.read(scene.topic)) < 600, timeout=60, every=1)


def delete_half(scene: Scene) -> None:
    """Delete the first half of each partition."""
    places = [TopicPartition(scene.topic, partition, end // 2) for partition, end in scene.ends().items()]
    for future in scene.client.delete_records(places).values():
        future.result(30)
