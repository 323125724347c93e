"""Only a process that is ours is ever signalled."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import psutil
import pytest

from laneway.devkit.broker import _plan
from laneway.devkit.broker._node import Node
from laneway.devkit.broker._process import end, find, launch
from laneway.errors import BrokerError

WAITS = "import sys, signal; signal.pause()"


@pytest.fixture
def node(tmp_path):
    plan = _plan.make("it", tmp_path, tmp_path / "data", nodes=1, port=None, ephemeral=True).nodes[0]
    plan.directory.mkdir(parents=True)
    handle = Node(plan, (sys.executable, "-c", WAITS, str(plan.config)))
    yield handle
    handle.kill()


def test_a_process_without_our_mark_is_not_found(tmp_path):
    """A pid file that names a process of another program finds nothing, so nothing is signalled."""
    (tmp_path / "pid").write_text(str(os.getpid()))

    assert find(tmp_path / "pid", str(tmp_path / "server.properties")) is None


@pytest.mark.parametrize("text", ["", "no number", "999999999"])
def test_a_senseless_pid_file_finds_nothing(tmp_path, text):
    """Broken files and numbers of no process count as not running."""
    (tmp_path / "pid").write_text(text)

    assert find(tmp_path / "pid", "x") is None


def test_stop_leaves_a_foreign_process_alone(node):
    """Stopping a node whose number now belongs to another process does not touch that process."""
    foreign = launch((sys.executable, "-c", WAITS), node.plan.directory, node.output)
    (node.plan.directory / "pid").write_text(str(foreign))

    node.stop()

    process = psutil.Process(foreign)
    assert process.is_running()
    end([process], timedelta(0))


def test_a_launched_node_runs_in_its_own_session_until_killed(node):
    """Ctrl-C reaches the terminal's session only; kill ends the node and leaves no zombie."""
    node.launch()
    pid = node.pid

    assert pid == os.getsid(pid)
    node.kill()
    assert (node.is_running, psutil.pid_exists(pid)) == (False, False)


def test_a_suspended_node_can_be_stopped(node):
    """A frozen process is woken so that it can follow the request to stop."""
    node.launch()
    node.suspend()

    node.stop(timedelta(seconds=10))

    assert not node.is_running


def test_a_stopped_node_cannot_be_suspended(node):
    """Freezing what does not run is an error that says so."""
    with pytest.raises(BrokerError, match="is not running"):
        node.suspend()


def test_a_node_that_dies_says_why(node):
    """The text a process leaves becomes the reason of the error."""
    broken = Node(
        node.plan,
        (sys.executable, "-c", "print('No space left on device'); raise SystemExit(1)", str(node.plan.config)),
    )

    with pytest.raises(BrokerError, match=r"did not start: the disk is full\. Fix: free some space"):
        broken.start()
