"""What is said of partitions whose leader is gone."""

from __future__ import annotations

import pytest

from support.doors import Admin, BrokerUnavailableError, produce_many
from support.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(180)]


def test_its_offsets_are_waited_for_and_never_made_up(three_nodes):
    """The client gives -1001 for such a partition, and goes on asking the old leader; the truth comes soon after."""
    options = {"bootstrap.servers": three_nodes.bootstrap}
    admin = Admin(options)
    admin.create("orders", 6, replicas=3)
    produce_many(options, "orders", ((b"k%d" % number, b"v") for number in range(600)))
    partitions = list(range(6))
    truth = admin.ends("orders", partitions)
    assert sum(truth.values()) == 600
    three_nodes.nodes[0].kill()

    def asked():
        try:
            found = admin.ends("orders", partitions, timeout=2.0)
        except BrokerUnavailableError:
            return None
        assert found == truth
        return found

    for _ in range(20):
        asked()
    assert eventually(asked, timeout=60) == truth
