"""Offsets that hold no record: aborted transactions, control records, compaction, deletion."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition

from support.waiting import eventually

if TYPE_CHECKING:
    from support.direct_scene import DirectScene

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def transaction(scene: DirectScene, producer: Producer, *, commits: bool) -> None:
    """Twenty records to each partition, and the marker behind them."""
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


def test_lag_is_zero_behind_transactions(scene: DirectScene) -> None:
    """Gaps between records and at the end of the log are passed while it runs; after a restart nothing is repeated."""
    producer = Producer({"bootstrap.servers": scene.bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    transaction(scene, producer, commits=False)
    worker = scene.worker(seconds=0.002)
    scene.wait_until_idle()
    for commits in (True, False, True, False):
        transaction(scene, producer, commits=commits)
        scene.wait_until_idle()
    scene.dismiss(worker)
    transaction(scene, producer, commits=False)
    scene.worker(seconds=0.002)
    scene.wait_until_idle()
    scene.dismiss_all()

    assert sorted((event.partition, event.offset) for event in scene.events()) == [
        (partition, 21 * block + offset) for partition in range(6) for block in (1, 3) for offset in range(20)
    ]
    assert scene.lag() == 0


def test_lag_is_zero_on_a_compacted_topic(scene: DirectScene) -> None:
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
    scene.worker(seconds=0.002)
    scene.wait_until_idle()
    scene.produce(50, keys=10)
    scene.wait_until_idle()
    scene.dismiss_all()

    left = {(record.partition, record.offset) for record in scene.read(name)}
    assert left <= {(event.partition, event.offset) for event in scene.events()}
    assert len(scene.events()) < 1_000
    assert scene.begun_twice() == set()


def test_lag_is_zero_where_records_were_deleted(scene: DirectScene) -> None:
    """A group that begins after the first records were deleted begins where the log does, and so does a new owner."""
    scene.produce(600)
    ends = scene.ends()
    places = [TopicPartition(scene.topic, partition, end // 2) for partition, end in ends.items()]
    for future in scene.client.delete_records(places).values():
        future.result(30)
    scene.worker(seconds=0.002)
    scene.wait_until_idle()
    scene.dismiss_all()

    assert sorted((event.partition, event.offset) for event in scene.events()) == [
        (partition, offset) for partition, end in sorted(ends.items()) for offset in range(end // 2, end)
    ]


def test_records_that_were_deleted_below_the_commit_are_counted(scene: DirectScene) -> None:
    """With on_data_loss: continue a group whose next records are gone goes on with the first that is there."""
    scene.produce(600)
    ends = scene.ends()
    scene.commit(dict.fromkeys(ends, 2))
    places = [TopicPartition(scene.topic, partition, end // 2) for partition, end in ends.items()]
    for future in scene.client.delete_records(places).values():
        future.result(30)
    worker = scene.worker(seconds=0.002, LANEWAY_ON_DATA_LOSS="continue")
    scene.wait_until_idle()
    scene.dismiss_all()

    assert len(scene.events()) == sum(end - end // 2 for end in ends.values())
    assert f"{sum(end // 2 - 2 for end in ends.values())} lost before they could be read" in worker.output
