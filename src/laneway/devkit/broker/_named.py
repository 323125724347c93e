"""Named clusters, which outlive the command that started them."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from laneway.devkit.broker import _plan
from laneway.devkit.broker._cluster import Running, bring_up, end_nodes, prepare, require_space
from laneway.devkit.broker._home import KAFKA_VERSION, clusters_directory, home_directory, locked
from laneway.devkit.broker._jars import Progress, require_jars
from laneway.devkit.broker._java import find_java
from laneway.devkit.broker._node import PATIENCE, Node
from laneway.devkit.broker._ports import DEFAULT_PORT
from laneway.devkit.broker._process import last_lines
from laneway.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ClusterStatus", "NodeStatus", "log_files", "log_tail", "names", "start", "status", "stop"]


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The status of one node; *state* is ``running``, ``silent`` (alive but not answering) or ``stopped``."""

    id: int
    address: str
    pid: int | None
    state: str
    log: str


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The status of a named cluster."""

    name: str
    running: bool
    bootstrap: str
    kafka_version: str
    ephemeral: bool
    nodes: tuple[NodeStatus, ...]


def start(
    *,
    nodes: int = 1,
    port: int | None = DEFAULT_PORT,
    name: str = "default",
    ephemeral: bool = False,
    configs: Mapping[str, object] | None = None,
    progress: Progress | None = None,
    home: Path | None = None,
) -> Running:
    """Start the cluster *name*, or its stopped nodes, and wait until every node answers.

    Args:
        nodes: 1, or 3 with every topic on all three of them.
        port: of the first node, the others take the ports after it; None takes free ones.
        name: data, logs and pid files are kept under this name.
        ephemeral: put the data into a temporary folder that goes when the cluster stops.
        configs: broker settings that go over the chosen ones.
        progress: called while the jars are fetched, at the first start only.
        home: default ``LANEWAY_HOME``.

    Raises:
        BrokerError: with the reason and the fix.
    """
    home = home_directory(home)
    directory = _directory(home, name)
    with locked(directory / ".lock"):
        java = find_java()
        libs = require_jars(home, progress)
        plan = _plan.load(directory)
        if plan is not None and _live(plan):
            _require_same(plan, nodes, port)
        else:
            plan = _renewed(plan, name, directory, nodes=nodes, port=port, ephemeral=ephemeral)
        require_space(plan.nodes[0].data)
        try:
            _plan.save(plan, directory)
            handles = prepare(plan, java, libs, configs)
            return bring_up(plan, handles, java, libs)
        except BaseException:
            if plan.ephemeral and not _live(plan):
                _remove_data(plan)
            raise


def stop(name: str = "default", *, home: Path | None = None, patience: timedelta = PATIENCE) -> bool:
    """Stop the cluster *name* and return whether it was running. Removes an ephemeral one.

    Signals only processes that have the cluster's configuration file among their arguments.
    """
    directory = _directory(home_directory(home), name)
    if not directory.is_dir():
        return False
    with locked(directory / ".lock"):
        plan = _plan.load(directory)
        if plan is None:
            return False
        # Data that is removed anyway need not be closed cleanly.
        ran = end_nodes(_handles(plan), timedelta(0) if plan.ephemeral else patience)
        if plan.ephemeral:
            _remove_data(plan)
            _plan.remove(plan, directory)
    return ran > 0


def status(name: str = "default", *, home: Path | None = None) -> ClusterStatus | None:
    """The status of the cluster *name*; None if it was never started."""
    plan = _plan.load(_directory(home_directory(home), name))
    if plan is None:
        return None
    nodes = []
    for node in _handles(plan):
        pid = node.pid
        state = "stopped" if pid is None else "running" if node.knows() else "silent"
        nodes.append(NodeStatus(node.id, node.address, pid, state, str(node.log)))
    running = all(node.state == "running" for node in nodes)
    return ClusterStatus(plan.name, running, plan.bootstrap, plan.kafka_version, plan.ephemeral, tuple(nodes))


def names(*, home: Path | None = None) -> list[str]:
    """The names of all clusters below *home*."""
    return sorted(file.parent.name for file in clusters_directory(home_directory(home)).glob("*/cluster.json"))


def log_files(name: str = "default", *, home: Path | None = None) -> list[Path]:
    """The log file of each node.

    Raises:
        BrokerError: no such cluster was ever started.
    """
    plan = _plan.load(_directory(home_directory(home), name))
    if plan is None:
        raise BrokerError(f"There is no cluster {name!r}. Fix: `laneway kafka start --name {name}`")
    return [node.log for node in _handles(plan)]


def log_tail(name: str = "default", lines: int = 50, *, home: Path | None = None) -> dict[int, list[str]]:
    """The last *lines* of each node's log, by node id."""
    return {number: last_lines(file, lines) for number, file in enumerate(log_files(name, home=home), start=1)}


def _directory(home: Path, name: str) -> Path:
    if not _plan.name_is_valid(name):
        raise BrokerError(f"{name!r} cannot name a cluster. Fix: use letters, digits, dots and dashes, 64 at most")
    return clusters_directory(home) / name


def _handles(plan: _plan.ClusterPlan) -> list[Node]:
    return [Node(node, ()) for node in plan.nodes]


def _live(plan: _plan.ClusterPlan) -> bool:
    return any(node.is_running for node in _handles(plan))


def _require_same(plan: _plan.ClusterPlan, nodes: int, port: int | None) -> None:
    if len(plan.nodes) != nodes or (port is not None and plan.nodes[0].port != port):
        raise BrokerError(
            f"Cluster {plan.name!r} is already running with {len(plan.nodes)} node(s) at {plan.bootstrap}. "
            f"Fix: use it, stop it with `laneway kafka stop --name {plan.name}`, or start another --name"
        )


def _renewed(
    old: _plan.ClusterPlan | None, name: str, directory: Path, *, nodes: int, port: int | None, ephemeral: bool
) -> _plan.ClusterPlan:
    if old is not None and old.ephemeral:
        # Left behind by a reboot or a kill.
        _remove_data(old)
    if ephemeral:
        data = Path(tempfile.mkdtemp(prefix=f"laneway-{name}-"))
        return _plan.make(name, directory, data, nodes=nodes, port=port, ephemeral=True)
    data = directory / "data"
    other = _difference(old, nodes, _plan.stored_cluster_id(data)) if old is not None and not old.ephemeral else None
    if other:
        raise BrokerError(
            f"The data in {data} {other}. Fix: start as before, start under another --name, or remove that folder"
        )
    return _plan.make(name, directory, data, nodes=nodes, port=port, ephemeral=False)


def _difference(old: _plan.ClusterPlan, nodes: int, stored_id: str | None) -> str | None:
    if stored_id is None:
        return None
    if stored_id != old.cluster_id:
        return f"belongs to another cluster ({stored_id}, not {old.cluster_id})"
    if old.kafka_version != KAFKA_VERSION:
        return f"was written by Kafka {old.kafka_version}, this is {KAFKA_VERSION}"
    return f"belongs to a cluster of {len(old.nodes)} node(s), not {nodes}" if len(old.nodes) != nodes else None


def _remove_data(plan: _plan.ClusterPlan) -> None:
    for folder in {node.data.parent for node in plan.nodes}:
        shutil.rmtree(folder, ignore_errors=True)
