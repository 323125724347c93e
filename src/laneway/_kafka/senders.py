"""ClusterSenders: one sender for messages that go to several clusters."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from laneway._kafka.sender import KafkaSender

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laneway._declare.record import Headers

__all__ = ["ClusterSenders", "sender_of"]


def sender_of(home: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> KafkaSender | ClusterSenders:
    """A sender for the source cluster, and for others if messages may go there; see `ClusterSenders`."""
    return ClusterSenders(home, others) if others else KafkaSender(home)


class ClusterSenders:
    """Sends to topics of the source cluster, and for ``name@cluster`` to topics of another cluster.

    The producer for another cluster is created with the first message for it.

    Args:
        home: options of the producer for the source cluster.
        others: name of each other cluster to the options of its producer.
    """

    def __init__(self, home: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> None:
        self._home = KafkaSender(home)
        self._options = others
        self._others: dict[str, KafkaSender] = {}
        self._lock = threading.Lock()

    def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        delivered: Callable[[Exception | None], None],
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Queue a message; waits while the local queue is full."""
        name, _, cluster = topic.partition("@")
        sender = self._sender_to(cluster) if cluster else self._home
        sender.send(
            name,
            key=key,
            value=value,
            headers=headers,
            delivered=delivered,
            partition=partition,
            timestamp=timestamp,
        )

    def poll(self) -> None:
        """Run the callbacks of finished deliveries."""
        for sender in self._all:
            sender.poll()

    def flush(self, timeout: float) -> int:
        """Wait for all messages in flight, at most *timeout*; returns how many are still undelivered."""
        end = time.monotonic() + timeout
        return sum(sender.flush(max(0.0, end - time.monotonic())) for sender in self._all)

    @property
    def _all(self) -> tuple[KafkaSender, ...]:
        return (self._home, *self._others.values()) if self._others else (self._home,)

    def _sender_to(self, cluster: str) -> KafkaSender:
        sender = self._others.get(cluster)
        if sender is None:
            with self._lock:  # handlers of one process share this, each on a thread of its own
                sender = self._others.get(cluster) or KafkaSender(self._options[cluster])
                self._others = {**self._others, cluster: sender}  # other threads may iterate over the old one
        return sender
