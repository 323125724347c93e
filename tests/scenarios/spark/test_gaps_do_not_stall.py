"""Offsets that hold no record: aborted transactions, control records, compaction."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from support.waiting import eventually

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def _transaction(scene: Scene, producer: Producer, *, commits: bool) -> None:
    before = scene.ends()
    producer.begin_transaction()
    for partition in range(3):
        for _ in range(20):
            producer.produce(scene.topic, b"v", b"k", partition=partition)
    assert producer.flush(60) == 0
    if commits:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
    # The marker is written after the answer, and the end that readers see moves with it.
    eventually(lambda: all(end == before[partition] + 21 for partition, end in scene.ends().items()))


def test_ranges_that_end_in_gaps_end(scene: Scene) -> None:
    """A run over ranges that end in aborted records or markers ends, with all that was committed and without lag."""
    producer = Producer({"bootstrap.servers": scene.bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    _transaction(scene, producer, commits=True)
    _transaction(scene, producer, commits=False)
    scene.finish(seconds=0)
    assert sorted((call.partition, call.offset) for call in scene.calls()) == [
        (partition, offset) for partition in range(3) for offset in range(20)
    ]
    assert scene.lag() == 0
    # Nothing but gaps from here to the end.
    _transaction(scene, producer, commits=False)
    scene.finish(seconds=0)
    assert len(scene.calls()) == 60
    assert scene.lag() == 0


def test_a_compacted_topic(scene: Scene) -> None:
    """A topic whose older offsets were compacted away is read to its end."""
    name = f"{scene.topic}.compacted"
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": str(1 << 20),
        "segment.ms": "100",
        "max.compaction.lag.ms": "100",
        "delete.retention.ms": "0",
    }
    scene.admin.create(name, 1, config=config)
    scene.topic = name
    for _ in range(3):
        scene.produce(400, keys=10)
    # Compaction leaves the active segment alone; a new record makes a new one.
    eventually(lambda: scene.produce(1, keys=1) or len(scene.read(name)) < 600, timeout=60, every=1)
    scene.finish(seconds=0)
    left = [(record.partition, record.offset) for record in scene.read(name)]
    assert set(left) <= {(call.partition, call.offset) for call in scene.calls()}
    assert len(scene.calls()) < 1_000
    assert scene.lag() == 0
