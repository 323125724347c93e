"""The ids of topics, as laneway asks for them once a second for as long as an app runs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import psutil
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
        return psutil.Process().memory_info().rss

    before = ask(2_000)
    grown = (ask(4_000) - before) / 4_000
    assert grown < 50, f"{grown:.0f} bytes for each question"
