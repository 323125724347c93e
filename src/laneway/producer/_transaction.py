"""Transaction: messages that are all committed, or none of them."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from laneway._core.interceptors import produced
from laneway._declare.record import as_key
from laneway._kafka import Encoded
from laneway.codecs import Framed, Raw
from laneway.errors import DeclarationError, ProduceError, ProducerFencedError
from laneway.observe import logger
from laneway.settings import message_route, producer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from laneway._declare.interceptors import Interceptor
    from laneway._declare.record import Message, Topic
    from laneway.settings import MessageRoute, Settings

__all__ = ["Transaction", "TransactionWriter", "Transactions", "encoder_for"]

_log = logger("producer")


class TransactionWriter(Protocol):
    """Writes one transaction after the other."""

    def begin(self) -> None:
        """Begin a transaction."""
        ...

    def send(self, message: Encoded) -> None:
        """Send a message in it."""
        ...

    def commit(self) -> None:
        """Commit it."""
        ...

    def abort(self) -> None:
        """Abort it."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class Transaction:
    """One transaction, from `Producer.transaction`. One thread at a time uses it."""

    def __init__(self, owner: Transactions) -> None:
        self._owner: Transactions | None = owner

    def produce(self, message: Message[Any]) -> None:
        """Send a message. Consumers with ``read_committed`` see it when the transaction is committed.

        Raises:
            CodecError: the value cannot be encoded.
            ProduceError: the message was refused, or an earlier one failed.
        """
        if self._owner is None:
            raise ProduceError("the transaction is over")
        self._owner.send(message)

    def produce_all(self, messages: Iterable[Message[Any]]) -> None:
        """Send many messages."""
        for message in messages:
            self.produce(message)

    def end(self) -> None:
        """Internal: take no more messages."""
        self._owner = None


class Transactions:
    """The transactions of a producer, one after the other, with one client.

    Args:
        settings: the configuration.
        interceptors: as for `Producer`.
        connect: makes the client for a route; it needs no broker for that.
    """

    def __init__(
        self,
        settings: Settings,
        interceptors: Sequence[Interceptor],
        connect: Callable[[MessageRoute], TransactionWriter],
    ) -> None:
        self._settings = settings
        self._interceptors = interceptors
        self._connect = connect
        self._lock = threading.Lock()
        self._client: TransactionWriter | None = None
        self._home = message_route(settings, "")
        """The route of the first message; all others must have the same client."""
        self._is_begun = False
        self._encoders: dict[str, tuple[str, Callable[[Any], bytes] | None]] = {}
        """Topic to its name on the brokers, and what encodes its values, if anything does."""

    @contextmanager
    def open(self) -> Iterator[Transaction]:
        """Commit at the end of the block, and abort when it raises."""
        if not self._lock.acquire(blocking=False):
            raise ProduceError("a transaction of this producer is open; threads need a producer each, with its own id")
        transaction, self._is_begun = Transaction(self), False
        try:
            yield transaction
        except BaseException:
            self._abort()
            raise
        else:
            if self._client is not None and self._is_begun:
                self._client.commit()
        finally:
            transaction.end()
            self._lock.release()

    def send(self, message: Message[Any]) -> None:
        """Send a message; the first one begins the transaction."""
        passed = produced(message, self._interceptors) if self._interceptors else message
        if passed is None:
            return
        topic, encode = self._encoders.get(passed.topic.name) or self._encoder(passed.topic)
        value = passed.value if encode is None or passed.value is None else encode(passed.value)
        if self._client is None:
            self._client = self._connect(self._home)
        if not self._is_begun:
            self._client.begin()
            self._is_begun = True
        self._client.send(Encoded(topic, as_key(passed.key), value, passed.headers, passed.partition, passed.timestamp))

    def close(self) -> None:
        """Disconnect; an open transaction is not committed."""
        if self._client is not None:
            self._client.close()

    def _abort(self) -> None:
        if self._client is not None and self._is_begun:
            try:
                self._client.abort()
            except ProducerFencedError as error:  # the error of the block says more
                _log.warning("%s", error)

    def _encoder(self, topic: Topic[Any]) -> tuple[str, Callable[[Any], bytes] | None]:
        route = message_route(self._settings, topic.name)
        if self._client is None:
            self._home = route
        if route.client != self._home.client:
            raise ProduceError(
                f"a message for {topic.name} goes to {route.client}, but the transactions of this producer go to "
                f"{self._home.client}; use a producer for each, with its own transactional id"
            )
        acks = producer_of(self._settings, route).acks
        if acks != "all":
            raise DeclarationError(f"a transaction needs acks: all, but the settings for {topic.name} say {acks}")
        found = self._encoders[topic.name] = (route.topic, encoder_for(topic, route))
        return found


def encoder_for(topic: Topic[Any], route: MessageRoute) -> Callable[[Any], bytes] | None:
    """What encodes the values of a topic; None for raw ones."""
    codec = topic.value
    if type(codec) is Raw:
        return None
    if route.topic != topic.name and isinstance(codec, Framed):
        codec = codec.for_topic(route.topic)  # schemas are registered under the real name
    return codec.encode
