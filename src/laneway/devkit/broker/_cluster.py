"""Prepare the folders of a cluster, format its storage, and bring its nodes up together."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from laneway.devkit.broker._config import LOGGING, archive_options, jvm_options, properties_text, server_properties
from laneway.devkit.broker._node import PATIENCE, Node, wait_ready
from laneway.devkit.broker._ports import require_free
from laneway.devkit.broker._process import diagnose, end
from laneway.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from laneway.devkit.broker._java import Java
    from laneway.devkit.broker._plan import ClusterPlan

__all__ = ["Running", "bring_up", "end_nodes", "prepare", "require_space"]

_SPACE = 2**30
_FORMAT_LIMIT = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Running:
    """A running cluster."""

    name: str
    bootstrap: str
    nodes: tuple[Node, ...]

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the running nodes."""
        return tuple(pid for node in self.nodes if (pid := node.pid) is not None)


def require_space(folder: Path) -> None:
    """Raise a `BrokerError` when the disk of *folder* has less than 1 GiB left."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < _SPACE:
        raise BrokerError(
            f"Only {free // 2**20} MiB are free on the disk of {existing}; a broker needs 1024. "
            "Fix: free some space, or set LANEWAY_HOME to another disk"
        )


def prepare(
    plan: ClusterPlan,
    java: Java,
    libs: Path,
    configs: Mapping[str, object] | None = None,
    java_options: Sequence[str] = (),
) -> tuple[Node, ...]:
    """Write the configuration of every node and return their handles; starts nothing."""
    nodes = []
    for node in plan.nodes:
        node.directory.mkdir(parents=True, exist_ok=True)
        node.data.mkdir(parents=True, exist_ok=True)
        node.config.write_text(properties_text(server_properties(plan, node, configs)), encoding="ascii")
        logging = node.directory / "log4j2.properties"
        logging.write_text(LOGGING, encoding="ascii")
        command = (
            str(java.executable),
            *jvm_options(len(plan.nodes)),
            *archive_options(java, libs),
            f"-Dlog4j2.configurationFile={logging.as_uri()}",
            f"-Dlaneway.log={node.directory / 'node.log'}",
            *java_options,
            "-cp",
            f"{libs}/*",
            "kafka.Kafka",
            str(node.config),
        )
        nodes.append(Node(node, command))
    return tuple(nodes)


def bring_up(plan: ClusterPlan, nodes: Sequence[Node], java: Java, libs: Path) -> Running:
    """Start the stopped nodes, and wait until all know each other.

    If one cannot start, those started here are stopped again.
    """
    stopped = [node for node in nodes if not node.is_running]
    for node in stopped:
        require_free(node.plan.port)
    _format(plan, stopped, java, libs)
    try:
        for node in stopped:
            # The log of an earlier failure must not explain this start.
            node.output.unlink(missing_ok=True)
            node.log.unlink(missing_ok=True)
            node.launch()
        wait_ready(nodes, {node.id for node in nodes})
    except BaseException:
        end_nodes(stopped, timedelta(0))
        raise
    return Running(plan.name, plan.bootstrap, tuple(nodes))


def end_nodes(nodes: Sequence[Node], patience: timedelta = PATIENCE) -> int:
    """Stop the nodes in parallel and return how many were running."""
    processes = [process for node in nodes if (process := node._process())]  # noqa: SLF001 - of the same room
    end(processes, patience)
    for node in nodes:
        node.stop(timedelta(0))
    return len(processes)


def _format(plan: ClusterPlan, nodes: Sequence[Node], java: Java, libs: Path) -> None:
    runs = []
    for node in nodes:
        if (node.plan.data / "meta.properties").exists():
            continue
        command = [str(java.executable), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += archive_options(java, libs)
        command += [f"-Dlog4j2.configurationFile={(node.plan.directory / 'log4j2.properties').as_uri()}"]
        command += [f"-Dlaneway.log={node.plan.directory / 'format.log'}", "-cp", f"{libs}/*"]
        command += ["kafka.tools.StorageTool", "format", "--ignore-formatted"]
        command += ["--cluster-id", plan.cluster_id, "--config", str(node.plan.config)]
        # In parallel: one takes 0.8 s, so three in a row would double the time of a start.
        runs.append((node, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
    failures = []
    for node, run in runs:
        try:
            text, _ = run.communicate(timeout=_FORMAT_LIMIT.total_seconds())
        except subprocess.TimeoutExpired:
            run.kill()
            text, _ = run.communicate()
        if run.returncode:
            failures.append(f"The storage of node {node.id} cannot be formatted: {diagnose(text, node.plan.data)}")
    if failures:
        raise BrokerError("\n".join(failures))
