"""FakeProducer: a `Producer` that writes to a fake Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from laneway._kafka import RefusedMessage
from laneway.errors import ProduceError, TransactionAbortedError
from laneway.producer import Producer
from laneway.producer._clients import Clients
from laneway.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laneway._declare.interceptors import Interceptor
    from laneway._declare.record import Topic
    from laneway._kafka import Answered, Encoded
    from laneway.settings import MessageRoute, Settings
    from laneway.testing._fake_topics import FakeTopics

__all__ = ["FakeProducer"]


class FakeProducer(Producer):
    """A `Producer` on a fake Kafka: messages are written and answered at once, and nothing runs on a thread.

    `FakeKafka.fail_writes` lets messages for a topic fail.
    """

    def __init__(
        self,
        kafka: FakeTopics,
        settings: Settings | None = None,
        *,
        topics: Iterable[Topic[Any]] = (),
        interceptors: Iterable[Interceptor] = (),
        transactional_id: str = "",
    ) -> None:
        self._kafka = kafka
        super().__init__(
            settings or load(), topics=topics, interceptors=interceptors, transactional_id=transactional_id
        )

    def _new_clients(self) -> Clients:
        return Clients(self._connected, has_thread=False)

    def _new_transactional_client(self, route: MessageRoute) -> _FakeTransactions:
        return _FakeTransactions(self._connected(route))

    def _connected(self, route: MessageRoute) -> _FakeClient:
        is_home = route.cluster == self._settings.default_cluster
        return _FakeClient(self._kafka, "" if is_home else f"@{route.cluster}")

    def _is_on_loop(self) -> bool:
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        """Stay where the fake Kafka is."""
        raise TypeError("a FakeProducer cannot be sent to another process, because its Kafka is in this one")

    def __enter__(self) -> Self:
        """Use it."""
        return self


class _FakeClient:
    """Writes to one cluster of a fake Kafka.

    Args:
        kafka: where to write.
        suffix: follows the names of topics on other clusters.
    """

    def __init__(self, kafka: FakeTopics, suffix: str) -> None:
        self._kafka = kafka
        self._suffix = suffix

    def __len__(self) -> int:
        return 0

    def send(self, message: Encoded, answered: Answered) -> None:
        error, partition, offset = self._written(message)
        answered(error, partition, offset)

    def send_all(self, messages: Iterable[Any], answered: Callable[[Any, Any], None]) -> int:
        count = 0
        for count, message in enumerate(messages, 1):  # noqa: B007 - the last number is the answer
            error, *_ = self._written(message)
            answered(error, RefusedMessage(message[0], message[1]))
        return count

    def failed(self, topic: str, error: Any, answered: Answered) -> None:
        del topic
        answered(error, -1, -1)

    def flush(self, timeout: float) -> int:
        del timeout
        return 0

    def topics(self, timeout: float) -> dict[str, str]:
        del timeout
        found = (name for name in self._kafka if name.partition("@")[1:] == self._suffix.partition("@")[1:])
        return {name.partition("@")[0]: "" for name in found}

    def close(self, timeout: float) -> None:
        del timeout

    def fault(self, topic: str) -> ProduceError | None:
        """Why messages for a topic fail now."""
        fault = self._kafka.fault(topic + self._suffix)
        return fault if fault is None or isinstance(fault, ProduceError) else ProduceError(str(fault))

    def _written(self, message: Any) -> tuple[ProduceError | None, int, int]:
        topic, key, value, headers, partition, timestamp = message
        name = topic + self._suffix
        if (fault := self.fault(topic)) is not None:
            return fault, -1, -1
        record = self._kafka.append_produced(name, key, value, headers, partition, timestamp)
        return None, record.partition, record.offset


class _FakeTransactions:
    """Keeps the messages of a transaction until its commit, because readers of a fake Kafka see all that is written."""

    def __init__(self, client: _FakeClient) -> None:
        self._client = client
        self._messages: list[Encoded] = []

    def begin(self) -> None:
        self._messages = []

    def send(self, message: Encoded) -> None:
        self._messages.append(message)

    def commit(self) -> None:
        for message in self._messages:
            if (fault := self._client.fault(message.topic)) is not None:
                raise TransactionAbortedError(f"the transaction was aborted: {fault}") from fault
        for message in self._messages:
            self._client.send(message, lambda *_: None)

    def abort(self) -> None:
        self._messages = []

    def close(self) -> None:
        self._messages = []
