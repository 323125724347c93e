"""What a node is started with: ``server.properties``, the logging configuration, and the flags of its JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway.devkit.broker._ports import HOST
from laneway.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from laneway.devkit.broker._java import Java
    from laneway.devkit.broker._plan import ClusterPlan, NodePlan

__all__ = [
    "FULL_SPEED",
    "LOGGING",
    "archive_options",
    "archive_path",
    "jvm_options",
    "properties_text",
    "server_properties",
]

FULL_SPEED = ("-XX:TieredStopAtLevel=4",)
"""JVM flags for a node in a benchmark: more compilation for more speed."""

_OURS = frozenset(
    {
        "process.roles",
        "node.id",
        "controller.quorum.voters",
        "controller.listener.names",
        "inter.broker.listener.name",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "log.dirs",
    }
)

# Configuration dumps and per-partition lines are nine tenths of a start's log and would hide an error.
LOGGING = """\
status = error
name = laneway

appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:laneway.log}
appender.file.filePattern = ${sys:laneway.log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2

rootLogger.level = warn
rootLogger.appenderRef.file.ref = file

logger.server.name = kafka.server
logger.server.level = info
logger.configs.name = kafka.server.KafkaConfig
logger.configs.level = warn
"""


def server_properties(
    plan: ClusterPlan, node: NodePlan, configs: Mapping[str, object] | None = None
) -> dict[str, object]:
    """The settings of one node; *configs* override them.

    Raises:
        BrokerError: *configs* sets an address, a role or a folder, which belong to the cluster.
    """
    taken = sorted(_OURS & set(configs or ()))
    if taken:
        raise BrokerError(
            f"{', '.join(taken)} cannot be set: the cluster chooses addresses, roles and folders. "
            "Fix: remove it from configs"
        )
    listeners = f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}"
    advertised = f"PLAINTEXT://{node.address}"
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    if node.proxy:
        # Not on the listener that the nodes use: a cut in the proxy must affect only clients.
        listeners += f",PROXIED://{HOST}:{node.proxy.back}"
        advertised += f",PROXIED://{node.proxy.address}"
        protocols += ",PROXIED:PLAINTEXT"
    copies = len(plan.nodes)
    in_sync = 2 if copies > 1 else 1
    return {
        "process.roles": "broker,controller",
        "node.id": node.id,
        "controller.quorum.voters": ",".join(f"{each.id}@{HOST}:{each.controller_port}" for each in plan.nodes),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": listeners,
        "advertised.listeners": advertised,
        "listener.security.protocol.map": protocols,
        "log.dirs": node.data,
        # A topic created by a typing error is worse than an error message.
        "auto.create.topics.enable": False,
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 8,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": 4,
        # The only consumer of a developer need not wait three seconds for others.
        "group.initial.rebalance.delay.ms": 0,
        # A killed node can rejoin only after its old session times out, by default 9 s.
        "broker.session.timeout.ms": 6000,
        "broker.heartbeat.interval.ms": 1000,
        # The default of 128 MiB takes a third of a small node's heap at the start.
        "log.cleaner.dedupe.buffer.size": 16 * 2**20,
        "num.network.threads": 2,
        "num.io.threads": 4,
        **(configs or {}),
    }


def properties_text(settings: Mapping[str, object]) -> str:
    r"""Format settings as Java reads them.

    >>> properties_text({"auto.create.topics.enable": False, "log.dirs": "/tmp/a b"})
    'auto.create.topics.enable=false\nlog.dirs=/tmp/a b\n'
    """
    return "".join(f"{key}={_escape(value)}\n" for key, value in settings.items())


def jvm_options(nodes: int) -> tuple[str, ...]:
    """The JVM flags: small heaps, the collector without extra threads, the fast compiler.

    Most development nodes run for seconds; a benchmark needs ``FULL_SPEED``.
    """
    heap = ("-Xms256m", "-Xmx1g") if nodes == 1 else ("-Xms128m", "-Xmx384m")
    quick = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
    return (*heap, *quick, "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true")


def archive_path(java: Java, libs: Path) -> Path:
    """Path of the archive for this Java and these jars."""
    return libs.parent / f"classes-java-{java.version}.jsa"


def archive_options(java: Java, libs: Path) -> tuple[str, ...]:
    """JVM flags that use the archive, if it was built; a JVM silently ignores one that does not fit."""
    path = archive_path(java, libs)
    return (f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off") if path.exists() else ()


def _escape(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    text = text.replace("\\", "\\\\")
    units = (text[i : i + 1] for i in range(len(text)))
    return "".join(unit if " " <= unit <= "~" else _as_java_escape(unit) for unit in units)


def _as_java_escape(character: str) -> str:
    # Java reads the file as Latin-1, with anything else as UTF-16 escapes.
    encoded = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{encoded[i]:02x}{encoded[i + 1]:02x}" for i in range(0, len(encoded), 2))
