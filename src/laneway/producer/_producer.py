"""Producer: one verb for messages, from sync and async code."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import threading
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from laneway._clock import SystemClock
from laneway._core.interceptors import produced
from laneway._declare.interceptors import is_async, name_of
from laneway._declare.record import Message, as_key
from laneway._declare.state import State
from laneway._kafka import Encoded, ProducerClient, TransactionalClient
from laneway.errors import DeclarationError, ProduceError, text_of
from laneway.observe import RateLimit, logger
from laneway.producer._bulk import BulkDelivery
from laneway.producer._clients import Client, Clients
from laneway.producer._delivery import Delivery
from laneway.producer._transaction import Transactions, encoder_for
from laneway.settings import effective, message_route, producer_of, producer_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from laneway._declare.health import Health
    from laneway._declare.interceptors import Interceptor
    from laneway._declare.record import Topic
    from laneway.producer._transaction import Transaction, TransactionWriter
    from laneway.settings import MessageRoute, Settings

__all__ = ["Producer", "ProducerCounts"]

_log = logger("producer")

_open: WeakSet[Producer] = WeakSet()
"""Producers to flush at the end of the process, and to start again in a forked one."""


@dataclass(frozen=True, slots=True)
class ProducerCounts:
    """What a producer has done so far."""

    acknowledged: int = 0
    """Messages that the brokers have."""
    failed: int = 0
    """Messages that failed, those in doubt included."""
    unobserved: int = 0
    """Of these, messages whose error no code has waited for."""
    pending: int = 0
    """Messages without an answer yet."""


class Producer:
    """Sends messages to the topics of the configuration. Any thread and any event loop may use one.

    It needs no broker to be made: it connects in the background, and messages wait meanwhile, each for as long as
    ``producer.timeout`` says. By default a message counts as written when all in-sync replicas have it, and the
    brokers leave out what a retry sends twice. A full buffer makes `produce` wait.

    Args:
        settings: the configuration; by default ``laneway.yaml``, if it exists, and the environment.
        brokers: bootstrap servers of the default cluster; overrides the configuration.
        topics: topics that health checks before the first message for them.
        interceptors: functions that take a message and return it, a changed one, or None to drop it. `current_record`
            says which record is being handled.
        transactional_id: allows `transaction`. A name that stays the same when the process is started again, and that
            no other running producer has: by it the brokers abort what a killed process left open.

    Example::

        producer = Producer(brokers="127.0.0.1:9092")
        producer.produce(orders.message(order))                # an error is logged and counted
        producer.produce(orders.message(order)).result(10)     # sync code waits
        await producer.produce(orders.message(order))          # async code waits
        producer.produce_all(map(orders.message, many)).result()
        producer.close()                                       # or use it in a `with` block
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        brokers: str | None = None,
        topics: Iterable[Topic[Any]] = (),
        interceptors: Iterable[Interceptor] = (),
        transactional_id: str = "",
    ) -> None:
        self._transactional_id = transactional_id
        self._settings = effective(settings, {"brokers": brokers})
        self._topics, self._interceptors = tuple(topics), tuple(interceptors)
        for interceptor in self._interceptors:
            if is_async(interceptor):
                raise DeclarationError(
                    f"produce interceptor {name_of(interceptor)!r} is async; it runs in sync code, too"
                )
        self._prepare()
        for name in [topic.name for topic in self._topics] or [""]:
            self._clients.client(message_route(self._settings, name))
        _open.add(self)

    def _new_clients(self) -> Clients:
        return Clients(partial(_connected, self._settings))

    def _new_transactional_client(self, route: MessageRoute) -> TransactionWriter:
        timeout = producer_of(self._settings, route).timeout.total_seconds()
        return TransactionalClient(producer_options(self._settings, route), self._transactional_id, timeout)

    def _prepare(self) -> None:
        """Be as new; clients are made when they are needed."""
        self.lock = threading.RLock()  # the garbage collector may end a delivery in the middle of another one
        self._acknowledged = self._failed = self._unobserved = 0
        self._limit = RateLimit(SystemClock())
        self._clients = self._new_clients()
        self._targets: dict[str, tuple[MessageRoute, Client]] = {}
        self._transactions = Transactions(self._settings, self._interceptors, self._new_transactional_client)

    def produce(self, message: Message[Any]) -> Delivery:
        """Send a message.

        It returns at once unless the buffer is full; on an event loop it does so even then, while fewer than ten
        thousand messages wait for room.

        Raises:
            CodecError: the value cannot be encoded.
            ProduceError: the producer is closed.
        """
        passed = next(self.passed((message,)), None) if self._interceptors else message
        if passed is None:
            delivery = Delivery(self, message.topic.name)
            delivery.drop()
            return delivery
        route, client, encode = self.target(passed.topic)
        value = passed.value if encode is None or passed.value is None else encode(passed.value)
        delivery = Delivery(self, route.topic)
        sent = Encoded(route.topic, as_key(passed.key), value, passed.headers, passed.partition, passed.timestamp)
        client.send(sent, delivery.answered)
        return delivery

    def produce_all(self, messages: Iterable[Message[Any]]) -> BulkDelivery:
        """Send many messages, with far less work for each than `produce`.

        Sync code sends them here and waits while the buffer is full. On an event loop a thread sends them, and
        *messages* is iterated there. The messages of one key stay in order.
        """
        delivery = BulkDelivery(self)
        if not self._is_on_loop():
            self._send_all(messages, delivery)
        else:
            run = partial(copy_context().run, self._send_all, messages, delivery)
            threading.Thread(target=run, name="laneway-produce-all", daemon=True).start()
        return delivery

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Write messages that are all committed at the end of the block, or none of them when it raises.

        Consumers with ``isolation.level=read_committed`` see nothing of it before. The brokers abort a transaction that
        is open for longer than ``transaction.timeout.ms``, a minute, counted from its first message. The block waits
        for brokers, so async code runs it in a thread.

        Example::

            producer = Producer(transactional_id="billing-1")
            with producer.transaction() as tx:
                tx.produce(debits.message(debit))
                tx.produce(credits.message(credit))

        Raises:
            DeclarationError: the producer has no transactional id.
            TransactionAbortedError: at the end: nothing of it counts, and it may be tried again.
            InDoubtError: at the end: it was either committed or aborted, and it is unknown which.
            ProducerFencedError: another producer has the id now; nothing of it counts.
            ProduceError: no broker answers, a message was refused, or another transaction of this producer is open.
        """
        if not self._transactional_id:
            raise DeclarationError(
                "a producer with transactions needs a name of its own: Producer(transactional_id='billing-1')"
            )
        if self.state in (State.CLOSING, State.CLOSED):
            raise ProduceError("the producer is closed")
        return self._transactions.open()

    def flush(self, timeout: float | None = None) -> int:
        """Wait until every message has its answer, and give how many have none after *timeout* seconds."""
        return self._clients.flush(self._patience if timeout is None else timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flush and disconnect; messages without an answer after *timeout* seconds fail.

        By default it waits as long as messages may take.
        """
        self._clients.close(self._patience if timeout is None else timeout)
        self._transactions.close()
        _open.discard(self)

    @property
    def state(self) -> State:
        """``initialising`` until every cluster in use has answered, then ``producing``; at the end ``closed``."""
        return self._clients.state

    def wait_for(self, state: State, timeout: float | None = None) -> bool:
        """Wait for a state; False when it did not come within *timeout* seconds."""
        return self._clients.wait_for(state, timeout)

    def health(self) -> Health:
        """Whether messages can be written: a missing topic is a warning, brokers that do not answer are critical."""
        return self._clients.health()

    @property
    def counts(self) -> ProducerCounts:
        """What it has done so far."""
        with self.lock:
            return ProducerCounts(self._acknowledged, self._failed, self._unobserved, self._clients.pending())

    def answered(self, acknowledged: int, failed: int) -> None:
        """Internal: messages have their answers."""
        with self.lock:
            self._acknowledged += acknowledged
            self._failed += failed

    def unobserved(self, count: int, error: Exception) -> None:
        """Internal: messages failed, and no code looked at their delivery."""
        with self.lock:
            self._unobserved += count
            is_new = self._limit.allows(type(error).__name__)
        if is_new:
            _log.error("a message was not written, and no code waited for its delivery: %s", text_of(error))

    def _is_on_loop(self) -> bool:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True

    @property
    def _patience(self) -> float:
        """Seconds after which every message has succeeded or failed, and a little more."""
        routes = [route for route, _ in self._targets.values()] or [message_route(self._settings, "")]
        return max(producer_of(self._settings, route).timeout.total_seconds() for route in routes) + 1

    def _send_all(self, messages: Iterable[Message[Any]], delivery: BulkDelivery) -> None:
        stream, sent = _Stream(self, messages), 0
        while (client := stream.next_client()) is not None:
            sent += client.send_all(stream.part(client), delivery.callback(client))
        delivery.sent(sent, stream.error)

    def target(self, topic: Topic[Any]) -> tuple[MessageRoute, Client, Callable[[Any], bytes] | None]:
        """Internal: where messages for a topic go, and what encodes their values, if anything does."""
        route, client = self._targets.get(topic.name) or self._target(topic.name)
        return route, client, encoder_for(topic, route)

    def passed(self, messages: Iterable[Message[Any]]) -> Iterator[Message[Any]]:
        """Internal: what the interceptors make of messages, without those that they drop."""
        if not self._interceptors:
            return iter(messages)
        return filter(None, (produced(message, self._interceptors) for message in messages))

    def _target(self, name: str) -> tuple[MessageRoute, Client]:
        route = message_route(self._settings, name)
        found = self._targets[name] = (route, self._clients.client(route))
        return found

    def __enter__(self) -> Self:
        """Use it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Flush and disconnect."""
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the configuration: a handler that uses a producer travels to processes with their own connections."""
        if self._transactional_id:
            raise DeclarationError(
                f"the producer with the transactional id {self._transactional_id!r} cannot be sent to another process: "
                f"two producers with one id fence each other; create it there"
            )
        return (_made, (self._settings, self._topics, self._interceptors))

    def __repr__(self) -> str:
        """State and clusters."""
        return f"<Producer: {self.state.value}>"


class _Stream:
    """Messages on their way to clients, in their order; each part goes to one client.

    Args:
        producer: encodes them.
        messages: what to send.
    """

    def __init__(self, producer: Producer, messages: Iterable[Message[Any]]) -> None:
        self._producer = producer
        self._messages = producer.passed(messages)
        self._ahead: Message[Any] | None = None
        """The first message of the next part."""
        self.error: Exception | None = None
        """What ended the messages early: the user's iterable, a codec or an interceptor."""

    def next_client(self) -> Client | None:
        """The client of the next part; None at the end."""
        try:
            if self.error is None and self._ahead is None:
                self._ahead = next(self._messages)
            return None if self._ahead is None else self._producer.target(self._ahead.topic)[1]
        except StopIteration:
            return None
        except Exception as error:  # noqa: BLE001 - user code, or a producer that was closed
            self._ahead, self.error = None, error
            return None

    def part(self, client: Client) -> Iterator[tuple[Any, ...]]:
        """Encode messages until one goes to another client."""
        first, self._ahead = self._ahead, None
        assert first is not None  # noqa: S101 - for the type checker: `next_client` has found it
        known, name, encode = None, "", None
        try:
            for message in itertools.chain((first,), self._messages):
                if message.topic is not known:
                    route, target, encode = self._producer.target(message.topic)
                    if target is not client:
                        self._ahead = message
                        return
                    known, name = message.topic, route.topic
                value = message.value
                if encode is not None and value is not None:
                    value = encode(value)
                yield name, message.key, value, message.headers, message.partition, message.timestamp
        except Exception as error:  # noqa: BLE001 - user code
            self.error = error


def _connected(settings: Settings, route: MessageRoute) -> ProducerClient:
    return ProducerClient(producer_options(settings, route))


def _made(settings: Settings, topics: tuple[Topic[Any], ...], interceptors: tuple[Interceptor, ...]) -> Producer:
    return Producer(settings, topics=topics, interceptors=interceptors)


def _flush_all() -> None:
    for producer in list(_open):
        if producer.counts.pending:
            _log.warning("the process ends, and a producer still waits for %d messages", producer.counts.pending)
        producer.close()


_inherited: list[tuple[Clients, Transactions]] = []
"""Clients of the parent process: in a fork they must neither be used nor ended."""


def _forked() -> None:
    for producer in list(_open):
        _inherited.append((producer._clients, producer._transactions))  # noqa: SLF001 - of this module
        producer._prepare()  # noqa: SLF001 - as above


atexit.register(_flush_all)
os.register_at_fork(after_in_child=_forked)
