"""KafkaSender: an idempotent producer behind the `Sender` protocol."""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from laneway._kafka.client import quiet
from laneway._kafka.errors import as_produce_error
from laneway._kafka.topic_trouble import trouble_of
from laneway.errors import ProduceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laneway._declare.record import Headers

__all__ = ["KafkaSender"]

_ASK, _ANSWER = (
    1.0,
    0.5,
)  # seconds between metadata requests for a topic, and for the answer: the runner waits for it
_ANY = -1  # the key decides the partition


class KafkaSender:
    """Sends messages with acks=all and idempotence. Create it after a fork, one per process.

    Args:
        options: librdkafka options, as `ClusterSettings.producer_options` gives them.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._producer = Producer(quiet(options))
        self._failed: deque[tuple[str, Any, Callable[[Exception | None], None]]] = deque()
        self._asked: dict[str, tuple[float, str]] = {}

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
        answered = partial(self._answered, topic, delivered)
        where = _ANY if partition is None else partition
        when = timestamp if timestamp is not None and timestamp > 0 else 0
        pairs = headers if type(headers) is list else list(headers)
        while True:
            try:
                self._producer.produce(topic, value, key, where, on_delivery=answered, timestamp=when, headers=pairs)
                return  # noqa: TRY300 - the loop continues only after a full queue
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as error:
                # Refused at once (too large for the client, unknown partition): answered like any delivery.
                if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:  # noqa: SLF001 - public, see _errors
                    self._look(topic)
                delivered(as_produce_error(error.args[0]))
                return

    def poll(self) -> None:
        """Run the callbacks of finished deliveries."""
        self._producer.poll(0)
        self._tell_failed()

    def flush(self, timeout: float) -> int:
        """Wait for all messages in flight; returns how many are still undelivered."""
        left = int(self._producer.flush(timeout))
        self._tell_failed()
        return left

    def _answered(
        self, topic: str, delivered: Callable[[Exception | None], None], error: Any, _message: object
    ) -> None:
        if error is None:
            delivered(None)
        else:
            self._failed.append((topic, error, delivered))

    def _tell_failed(self) -> None:
        """Report failed messages, with the state of their topic, because "timed out" alone does not help.

        Not inside their callbacks: a request from a callback kills the process.
        """
        while self._failed:
            topic, error, delivered = self._failed.popleft()
            cause = as_produce_error(error)
            found = self._look(topic) if error.code() == KafkaError._MSG_TIMED_OUT else ""  # noqa: SLF001 - public
            delivered(ProduceError(f"{cause} ({found})") if found else cause)

    def _look(self, topic: str) -> str:
        """What is wrong with a topic. The request also makes librdkafka notice new partitions minutes earlier."""
        now = time.monotonic()
        asked, found = self._asked.get(topic, (-_ASK, ""))
        if now - asked < _ASK:
            return found
        try:
            state = self._producer.list_topics(topic, timeout=_ANSWER).topics[topic]
        except KafkaException:
            found = "no broker answers"
        else:
            found = trouble_of(state)
        self._asked[topic] = (now, found)
        return found
