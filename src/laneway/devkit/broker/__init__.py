"""A real Kafka for development: version 4.3.1 in KRaft mode from its Maven jars, one or three nodes, no docker.

`start` and `stop` handle named clusters that outlive the command; `ephemeral` is a cluster for one ``with``
block. Brokers listen on 127.0.0.1 only. Java 17 or newer is needed; the jars are fetched once and checked against
pinned SHA-256 sums before every start.
"""

from __future__ import annotations

from laneway.devkit.broker._class_archive import build_archive, find_archive
from laneway.devkit.broker._cluster import Running
from laneway.devkit.broker._config import FULL_SPEED
from laneway.devkit.broker._ephemeral import ephemeral
from laneway.devkit.broker._home import KAFKA_VERSION, home_directory, jars_directory
from laneway.devkit.broker._jars import Progress, fetch, jar_problems
from laneway.devkit.broker._java import MINIMUM_JAVA, Java, find_java
from laneway.devkit.broker._named import ClusterStatus, NodeStatus, log_files, log_tail, names, start, status, stop
from laneway.devkit.broker._node import Node
from laneway.devkit.broker._ports import DEFAULT_PORT, HOST, is_free, port_holder
from laneway.devkit.broker._probe import BrokerAddress, ask_api_versions, ask_brokers

__all__ = [
    "DEFAULT_PORT",
    "FULL_SPEED",
    "HOST",
    "KAFKA_VERSION",
    "MINIMUM_JAVA",
    "BrokerAddress",
    "ClusterStatus",
    "Java",
    "Node",
    "NodeStatus",
    "Progress",
    "Running",
    "ask_api_versions",
    "ask_brokers",
    "build_archive",
    "ephemeral",
    "fetch",
    "find_archive",
    "find_java",
    "home_directory",
    "is_free",
    "jar_problems",
    "jars_directory",
    "log_files",
    "log_tail",
    "names",
    "port_holder",
    "start",
    "status",
    "stop",
]
