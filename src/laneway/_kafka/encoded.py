"""Messages as they are handed to a client, and what receives the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from laneway._declare.record import Headers
    from laneway.errors import ProduceError

__all__ = ["Answered", "Encoded", "RefusedMessage"]

Answered = Callable[["ProduceError | None", int, int], None]
"""Receives the error or None, the partition and the offset; runs on a thread of the client or on one that sends."""


class Encoded(NamedTuple):
    """A message as it is sent."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


class RefusedMessage:
    """Stands for a message that librdkafka did not take."""

    def __init__(self, topic: str, key: bytes | None) -> None:
        self._topic, self._key = topic, key

    def topic(self) -> str:
        """The name on the brokers."""
        return self._topic

    def key(self) -> bytes | None:
        """The raw key."""
        return self._key
