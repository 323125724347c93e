"""Three nodes start, know each other, and go on without one of them."""

from __future__ import annotations

import psutil
import pytest

from laneway.devkit import broker

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_three_nodes_start_lose_one_and_take_it_back():
    """All three are known at the start; a killed one comes back on its own port; all are gone at the end."""
    with broker.ephemeral(nodes=3) as cluster:
        pids = cluster.pids
        assert [{1, 2, 3}] * 3 == [node.knows() for node in cluster.nodes]

        cluster.nodes[0].kill()
        assert (2, set()) == (len(cluster.pids), cluster.nodes[0].knows())

        cluster.nodes[0].start()
        assert 1 in cluster.nodes[0].knows()
        pids += cluster.pids

    assert [pid for pid in pids if psutil.pid_exists(pid)] == []
