"""Stage: a cluster of three nodes behind proxies, with one topic and one group."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laneway._kafka import Admin
from laneway.devkit.broker import ephemeral
from laneway.errors import AdminError
from support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laneway.devkit.broker import Node, Running

__all__ = ["Stage", "set_up"]

TOPIC, GROUP = "soak", "soak-app"


@dataclass(frozen=True, slots=True)
class Stage:
    """What the workers play on. Its own clients go straight to the nodes, those of the workers through the proxies."""

    cluster: Running
    proxies: tuple[Proxy, ...]
    """One for each node, in their order."""
    admin: Admin
    topic: str = TOPIC
    group: str = GROUP

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the cluster."""
        return self.cluster.nodes

    @property
    def bootstrap(self) -> str:
        """The nodes themselves."""
        return self.cluster.bootstrap

    @property
    def options(self) -> dict[str, Any]:
        """Options of clients that go straight to the nodes, and say nothing of those that are away."""
        return options(self.bootstrap)

    @property
    def proxied(self) -> str:
        """The nodes behind their proxies; a client that starts here stays behind them."""
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)

    def ends(self, topic: str = "") -> dict[int, int]:
        """The end of each partition.

        Raises:
            AdminError: the leader of one of them is away.
        """
        name = topic or self.topic
        # Asked for each time: an admin client does not find out by itself who leads after a leader was lost.
        ends = self.admin.ends(name, self.admin.partitions(name))
        if min(ends.values()) < 0:
            raise AdminError(f"not all partitions of {name} have a leader")
        return ends


def options(bootstrap: str) -> dict[str, Any]:
    """Where to connect, without a word about it."""
    return {"bootstrap.servers": bootstrap, "log_level": 0}


@contextmanager
def set_up(partitions: int) -> Iterator[Stage]:
    """Start everything, and end it with the block."""
    with ExitStack() as stack:
        cluster = stack.enter_context(ephemeral(nodes=3, is_proxied=True))
        proxies = []
        for node in cluster.nodes:
            assert node.plan.proxy
            proxies.append(stack.enter_context(Proxy(node.plan.proxy.back, node.plan.proxy.front)))
        admin = Admin(options(cluster.bootstrap))
        admin.create(TOPIC, partitions)
        yield Stage(cluster, tuple(proxies), admin)
