"""A cluster of a ``with`` block does not outlive a killed parent."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from support.doors import wait_over

pytestmark = pytest.mark.broker

PARENT = """
from laneway.devkit import broker
with broker.ephemeral() as cluster:
    print(cluster.pids[0], cluster.nodes[0].plan.directory.parent, flush=True)
    input()
"""


def test_a_killed_parent_leaves_no_process_and_no_folder():
    """After SIGKILL of the parent its broker, its watcher and its folder are gone."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with parent:
        pid, folder = parent.stdout.readline().split()
        node = psutil.Process(int(pid))
        watchers = [child for child in psutil.Process(parent.pid).children() if child.pid != node.pid]
        parent.kill()

    alive = wait_over([node, *watchers], timedelta(seconds=20))

    assert (len(watchers), alive, Path(folder).exists()) == (1, [], False)
