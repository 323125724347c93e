"""A named cluster of one node starts, answers and stops; an ephemeral one takes its data with it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from laneway.devkit import broker

pytestmark = pytest.mark.broker


def test_an_ephemeral_cluster_starts_and_leaves_nothing(home):
    """After stop neither the process nor the data is there, and `laneway kafka status` does not list it."""
    running = broker.start(port=None, name="it", ephemeral=True, home=home)
    (node,) = running.nodes
    pid, data = node.pid, node.plan.data.parent

    state = broker.status("it", home=home)
    assert (True, running.bootstrap, "running") == (state.running, state.bootstrap, state.nodes[0].state)
    assert "Kafka Server started" in "\n".join(broker.log_tail("it", home=home)[1])
    assert broker.stop("it", home=home)
    assert (psutil.pid_exists(pid), Path(data).exists()) == (False, False)
    assert (broker.names(home=home), broker.status("it", home=home)) == ([], None)
    assert not broker.stop("it", home=home)


def test_a_start_of_what_runs_gives_the_same_cluster(home):
    """A second start changes nothing and gives the same processes."""
    first = broker.start(port=None, name="it", ephemeral=True, home=home)
    second = broker.start(port=None, name="it", ephemeral=True, home=home)

    assert (first.pids, first.bootstrap) == (second.pids, second.bootstrap)
