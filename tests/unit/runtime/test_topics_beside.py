"""Retry and error topics: what is created beside a source, and what is done about one that is missing."""

from __future__ import annotations

import threading

import pytest

from laneway import App, Topic
from laneway._kafka import BrokerUnavailableError
from laneway._runtime import topics as _topics
from laneway._runtime.feeds import Feeds
from laneway._runtime.lifecycle import Lifecycle
from laneway._runtime.topics import Feed, create_beside, prepare_topics
from laneway.errors import AdminError
from laneway.settings import load

SOURCE, ERROR, RETRY = "orders", "orders.billing.error", "orders.billing.retry.1"


class Cluster:
    """Topics as an admin sees them."""

    def __init__(self, *topics, largest=1000, refuses=()):
        self.topics = dict.fromkeys(topics, 3)
        self.configs = {}
        self._largest, self._refuses = largest, refuses

    def partitions(self, topic):
        return list(range(self.topics.get(topic, 0)))

    def largest(self, topic):
        return self._largest

    def create(self, topic, partitions, *, config):
        for name in self._refuses:
            if name in config:
                raise AdminError(f"cannot create topic {topic}: {name} is not allowed")
        self.topics[topic], self.configs[topic] = partitions, config
        return True


@pytest.mark.parametrize(
    ("cluster", "config"),
    [
        (Cluster(SOURCE), {"retention.ms": "-1", "max.message.bytes": str(1000 + 2**16)}),
        (Cluster(SOURCE, largest=2**31 - 1), {"retention.ms": "-1", "max.message.bytes": str(2**31 - 1)}),
        (Cluster(SOURCE, largest=None), {"retention.ms": "-1"}),  # we may not know
        (Cluster(SOURCE, refuses=["max.message.bytes"]), {"retention.ms": "-1"}),  # a cluster with rules of its own
    ],
)
def test_a_topic_beside_a_source_takes_what_that_takes(cluster, config):
    """And the headers of a copy; it keeps its records."""
    assert create_beside(cluster, ERROR, SOURCE, 3)
    assert cluster.configs == {ERROR: config}


def test_a_topic_that_may_not_be_created_is_an_error():
    """Not a loop: the same is refused without the limit."""
    with pytest.raises(AdminError, match=r"retention\.ms is not allowed"):
        create_beside(Cluster(SOURCE, refuses=["retention.ms"]), ERROR, SOURCE, 3)


def test_a_retry_topic_that_may_not_be_created_is_waited_for(caplog):
    """Nothing is read meanwhile, and it is said, but not all the time."""
    cluster = Cluster(SOURCE)
    feeds = (Feed(SOURCE, ("charge",)), Feed(RETRY, ("charge",), 1, 5.0))
    looked_at = Feeds(feeds, cluster, may_create=False)
    for _ in range(3):
        with pytest.raises(BrokerUnavailableError, match="create_topics is false"):
            looked_at.numbers(feeds[0])
    assert caplog.text.count(f"the retry topic {RETRY} is missing, and create_topics is false") == 1
    assert set(cluster.topics) == {SOURCE}
    assert Feeds(feeds, cluster).numbers(feeds[1]) == [0, 1, 2]
    assert caplog.messages[-1] == f"created topic {RETRY} again: it was deleted"


@pytest.mark.parametrize("may_create", [True, False])
def test_at_the_start_the_same_rule_holds(monkeypatch, caplog, may_create):
    """What is missing is created and said; or it is waited for, and the state says for what."""
    caplog.set_level("INFO", "laneway")
    app, cluster, life = App("billing"), Cluster(SOURCE), Lifecycle()
    app.handler(Topic(SOURCE))(lambda record: None)
    monkeypatch.setattr(_topics, "Admin", lambda _: cluster)
    settings, looks = load(overrides={"create_topics": may_create}), []

    def is_stopping():
        looks.append(life.detail)
        return len(looks) > 5

    assert prepare_topics(app, settings, life, is_stopping, threading.Event()) == may_create
    if may_create:
        assert caplog.messages == [f"created topic {ERROR} with 3 partitions"]
    else:
        assert looks[-1] == f"waiting for topic {ERROR} (create_topics is false)"
        assert set(cluster.topics) == {SOURCE}
