"""KafkaSender: a producer client behind the `Sender` protocol."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from laneway._kafka.encoded import Encoded
from laneway._kafka.producer_client import ProducerClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laneway._declare.record import Headers

__all__ = ["KafkaSender"]


class KafkaSender:
    """Sends messages of handlers and copies of records. Create it after a fork, one per process.

    It uses the client of `laneway.producer`, without its thread: answers are handled inside `poll`.

    Args:
        options: librdkafka options, as `ClusterSettings.producer_options` gives them.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._client = ProducerClient(options, has_thread=False)
        self.poll = self._client.poll
        """Handle the answers that have come."""
        self.flush = self._client.flush
        """Wait for all messages in flight, at most some seconds; returns how many have no answer."""

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
        """Queue a message; waits while the buffer is full."""
        self._client.send(Encoded(topic, key, value, headers, partition, timestamp), partial(_answered, delivered))


def _answered(
    delivered: Callable[[Exception | None], None], error: Exception | None, _partition: int, _offset: int
) -> None:
    delivered(error)
