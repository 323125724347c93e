"""The ids of topics, as laneway asks for them once a second for as long as an app runs."""

from __future__ import annotations

import gc
import sys
import uuid
from typing import TYPE_CHECKING

import pytest

from support.waiting import eventually

if TYPE_CHECKING:
    from support.contract import Cluster

pytestmark = pytest.mark.broker


def test_a_recreated_topic_has_another_id(cluster: Cluster) -> None:
    """It is written as Kafka's own tools write it; a topic that is missing has none."""
    topic = f"ids-{uuid.uuid4().hex[:8]}"
    assert cluster.admin.topic_ids([topic]) == {}
    cluster.admin.create(topic, 1)
    first = eventually(lambda: cluster.admin.topic_ids([topic]))[topic]
    assert len(first) == 22
    assert not {"+", "/"} & set(first)
    cluster.admin.delete(topic)
    eventually(lambda: cluster.admin.create(topic, 1), every=0.01)
    eventually(lambda: cluster.admin.topic_ids([topic]).get(topic, first) != first)


def test_asking_leaves_nothing_behind(cluster: Cluster) -> None:
    """A few dozen bytes for each question would be megabytes a day."""
    topic = f"ids-{uuid.uuid4().hex[:8]}"
    cluster.admin.create(topic, 1)
    eventually(lambda: cluster.admin.topic_ids([topic]))

    def ask(count: int) -> int:
        for _ in range(count):
            cluster.admin.topic_ids([topic])
        gc.collect()
        return sys.getallocatedblocks()

    before = ask(100)
    grown = (ask(2_000) - before) / 2_000
    assert grown < 0.5, f"{grown:.1f} blocks of memory for each question"
