"""What is found out about brokers, topics and partitions that do not answer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from laneway._engines.direct.outlook import Outlook
from laneway._kafka import BrokerUnavailableError
from laneway.errors import AdminError


class Admin:
    """A cluster of which a test says what is wrong."""

    def __init__(self):
        self.is_away, self.leaderless, self.known = False, False, {"orders": [0, 1]}

    def ends_of(self, places, timeout):
        if self.is_away or self.leaderless:
            raise BrokerUnavailableError("no leader for orders[1]")
        return dict.fromkeys(places, 10)

    def topics(self, timeout):
        if self.is_away:
            raise AdminError("Connection refused")
        return self.known

    def brokers(self, timeout):
        return 3


@pytest.fixture
def admin():
    return Admin()


@pytest.fixture
def outlook(admin):
    member = SimpleNamespace(partitions=[("orders", 0), ("orders", 1)])
    cluster = SimpleNamespace(brokers=("kafka:9092",))
    return Outlook(SimpleNamespace(member=member, admin=admin, cluster=cluster, sources=["orders"]), 1)


def found(outlook, looks=5):
    """The troubles of some looks, one after the other."""
    codes = []
    for _ in range(looks):
        outlook.look()
        codes.append(outlook.trouble.code)
    return codes


def test_all_is_well(outlook):
    """The ends of the logs are known then."""
    assert set(found(outlook)) == {""}
    assert outlook.ends == {("orders", 0): 10, ("orders", 1): 10}


def test_a_partition_without_a_leader(admin, outlook):
    """Brokers answer and the topic is there; a change of leaders, which is over at the next look, is not told."""
    admin.leaderless = True
    codes = found(outlook)
    assert codes[0] == ""
    assert codes[-1] == "partitions-unavailable"
    assert outlook.trouble.words == "partitions at kafka:9092 cannot be asked: no leader for orders[1]"
    admin.leaderless = False
    assert found(outlook, 1) == [""]


def test_a_topic_that_is_gone(admin, outlook):
    """It is told by its name."""
    admin.leaderless, admin.known = True, {}
    assert found(outlook)[-1] == "topic-missing"
    assert outlook.trouble.words == "there is no topic orders at kafka:9092"


def test_no_broker_is_told_at_once(admin, outlook):
    """With the reason that the client gives."""
    admin.is_away = True
    assert found(outlook, 1) == ["brokers-unreachable"]
    assert outlook.trouble.words == "no answer from Kafka at kafka:9092: Connection refused"
