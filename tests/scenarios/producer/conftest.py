"""Topics and settings for tests of the producer."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from laneway import Topic
from laneway.settings import Settings, load
from support.topics import read_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laneway import Record
    from support.contract import Cluster


class Place:
    """A broker with a topic of the test's own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def topic(self, partitions: int = 4, *codec: Any, config: dict[str, str] | None = None, **more: Any) -> Topic[Any]:
        name = f"p-{uuid.uuid4().hex[:8]}"
        self.cluster.admin.create(name, partitions, config=config)
        return Topic(name, *codec, **more)

    def settings(self, brokers: str | None = None, **more: object) -> Settings:
        given = {key.replace("__", "."): value for key, value in more.items()}
        return load(overrides={"brokers": brokers or self.cluster.bootstrap, **given})

    def records(self, topic: Topic[Any] | str) -> list[Record[Any]]:
        name = topic if isinstance(topic, str) else topic.name
        return read_all(self.cluster.admin, self.settings().cluster().consumer_options(), name)


@pytest.fixture
def place(cluster: Cluster) -> Iterator[Place]:
    return Place(cluster)
