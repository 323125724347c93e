"""A cluster for the length of a ``with`` block."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from laneway.devkit.broker import _plan
from laneway.devkit.broker._cluster import Running, bring_up, end_nodes, prepare, require_space
from laneway.devkit.broker._home import home_directory
from laneway.devkit.broker._jars import Progress, require_jars
from laneway.devkit.broker._java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["ephemeral"]


@contextmanager
def ephemeral(
    nodes: int = 1,
    configs: Mapping[str, object] | None = None,
    java_options: Sequence[str] = (),
    *,
    progress: Progress | None = None,
    home: Path | None = None,
    is_proxied: bool = False,
) -> Iterator[Running]:
    """Run a cluster on free ports with data in a temporary folder; leave nothing behind.

    A small watcher process stops the nodes and removes the folder even when this process is killed with SIGKILL.

    Args:
        nodes: 1 or 3.
        configs: broker settings that override the defaults.
        java_options: JVM flags that override the defaults.
        progress: called while the jars are fetched, at the first start only.
        home: folder of the jars; default ``LANEWAY_HOME``.
        is_proxied: give each node a second listener, for a proxy that the caller runs between the two ports of
            ``node.plan.proxy``. Clients that start at a proxy stay with the proxies.

    Example::

        with laneway.devkit.broker.ephemeral(nodes=3) as cluster:
            connect(cluster.bootstrap)
            cluster.nodes[0].kill()

    Raises:
        BrokerError: with the reason and the fix.
    """
    java = find_java()
    libs = require_jars(home_directory(home), progress)
    # Resolved, because the watcher compares the folder with process arguments.
    folder = Path(tempfile.mkdtemp(prefix="laneway-ephemeral-")).resolve()
    try:
        require_space(folder)
        with _watched(folder):
            data = folder / "data"
            plan = _plan.make("ephemeral", folder, data, nodes=nodes, port=None, ephemeral=True, is_proxied=is_proxied)
            handles = prepare(plan, java, libs, configs, java_options)
            try:
                yield bring_up(plan, handles, java, libs)
            finally:
                end_nodes(handles, timedelta(0))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _watched(folder: Path) -> Iterator[None]:
    script = Path(__file__).with_name("_watcher.py")
    with subprocess.Popen(
        [sys.executable, "-I", str(script), str(folder), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ):
        # Leaving the block closes the watcher's input and waits for its end.
        yield
