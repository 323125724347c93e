"""The plan of a cluster: its nodes, ports and folders; stored for later commands."""

from __future__ import annotations

import base64
import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - pydantic reads the annotations

from pydantic import TypeAdapter, ValidationError

from laneway.devkit.broker._home import KAFKA_VERSION
from laneway.devkit.broker._ports import HOST, free_ports
from laneway.errors import BrokerError

__all__ = [
    "NODE_COUNTS",
    "ClusterPlan",
    "NodePlan",
    "ProxyPorts",
    "load",
    "make",
    "name_is_valid",
    "remove",
    "save",
    "stored_cluster_id",
]

NODE_COUNTS = (1, 3)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE = "cluster.json"


@dataclass(frozen=True, slots=True)
class ProxyPorts:
    """A second listener of a node, behind a proxy that the caller runs."""

    front: int
    """Port of the proxy, which the node advertises to its clients."""
    back: int
    """Port of the node's listener for the proxy."""

    @property
    def address(self) -> str:
        """The address clients connect to."""
        return f"{HOST}:{self.front}"


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One combined broker and controller."""

    id: int
    port: int
    controller_port: int
    directory: Path
    data: Path
    proxy: ProxyPorts | None = None

    @property
    def config(self) -> Path:
        """The ``server.properties``; its path on the command line is how a process is known to be ours."""
        return self.directory / "server.properties"

    @property
    def address(self) -> str:
        """The address clients connect to."""
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The plan of a cluster."""

    name: str
    cluster_id: str
    kafka_version: str
    ephemeral: bool
    nodes: tuple[NodePlan, ...]

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers, comma separated."""
        return ",".join(node.address for node in self.nodes)


_FORMAT = TypeAdapter(ClusterPlan)
"""The stored form."""


def name_is_valid(name: str) -> bool:
    """Whether *name* can be a folder on every file system."""
    return _NAME.fullmatch(name) is not None


def make(
    name: str,
    directory: Path,
    data: Path,
    *,
    nodes: int,
    port: int | None,
    ephemeral: bool,
    is_proxied: bool = False,
) -> ClusterPlan:
    """Choose ports and folders; existing data keeps its cluster id."""
    if nodes not in NODE_COUNTS:
        raise BrokerError(f"A cluster of {nodes} nodes is not offered. Fix: give 1 or 3")
    ports = free_ports(nodes) if port is None else list(range(port, port + nodes))
    controllers = free_ports(nodes, exclude=frozenset(ports))
    proxies = free_ports(2 * nodes, exclude=frozenset([*ports, *controllers])) if is_proxied else []
    return ClusterPlan(
        name=name,
        cluster_id=stored_cluster_id(data) or _new_cluster_id(),
        kafka_version=KAFKA_VERSION,
        ephemeral=ephemeral,
        nodes=tuple(
            NodePlan(
                number,
                ports[number - 1],
                controllers[number - 1],
                directory / f"node-{number}",
                data / f"{number}",
                ProxyPorts(proxies[number - 1], proxies[number - 1 + nodes]) if is_proxied else None,
            )
            for number in range(1, nodes + 1)
        ),
    )


def stored_cluster_id(data: Path) -> str | None:
    """Read the cluster id from formatted data.

    Raises:
        BrokerError: the nodes' folders belong to different clusters.
    """
    found = set()
    for file in data.glob("*/meta.properties"):
        pairs = (line.partition("=") for line in file.read_text(encoding="utf-8").splitlines())
        found |= {value.strip() for key, _, value in pairs if key.strip() == "cluster.id"}
    if len(found) > 1:
        raise BrokerError(
            f"The folders in {data} belong to different clusters ({', '.join(sorted(found))}). "
            "Fix: remove that folder to start empty, or start under another --name"
        )
    return found.pop() if found else None


def save(plan: ClusterPlan, directory: Path) -> None:
    """Store the plan in *directory*."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _FILE).write_bytes(_FORMAT.dump_json(plan, indent=2))


def load(directory: Path) -> ClusterPlan | None:
    """Load the plan; None if no cluster was ever started there.

    Raises:
        BrokerError: the file exists but is not a plan.
    """
    file = directory / _FILE
    try:
        return _FORMAT.validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise BrokerError(f"{file} cannot be read: {where}: {first['msg']}. Fix: remove that file") from error


def remove(plan: ClusterPlan, directory: Path) -> None:
    """Remove the plan from *directory*, with the configuration and logs of its nodes; the lock of the folder stays."""
    (directory / _FILE).unlink(missing_ok=True)
    for node in plan.nodes:
        shutil.rmtree(node.directory, ignore_errors=True)


def _new_cluster_id() -> str:
    # Kafka writes ids as unpadded base64 of a UUID; one that starts with a dash would read as an option.
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
