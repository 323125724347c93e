"""KafkaSender: an idempotent producer behind the `Sender` protocol."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from laneway.kafka._errors import as_produce_error
from laneway.kafka._quiet import quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laneway._record import Headers

__all__ = ["KafkaSender"]

_UNSAFE = {
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001 - public, see _errors
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
_ASK = 5.0  # seconds between questions for the state of a topic; each may take one


class KafkaSender:
    """Sends messages with acks=all and idempotence; made after the fork, one per process.

    Args:
        options: librdkafka options, as `ClusterSettings.producer_options` gives them.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._producer = Producer(quiet(options))
        self._asked, self._known = -_ASK, ""

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
        """Hand over a message; when the local queue is full, wait for room."""

        def on_delivery(error: Any, _message: Any) -> None:
            delivered(None if error is None else as_produce_error(error, self._why(error, topic)))

        rest: dict[str, Any] = {}
        if partition is not None:
            rest["partition"] = partition
        if timestamp is not None and timestamp > 0:
            rest["timestamp"] = timestamp
        while True:
            try:
                self._producer.produce(
                    topic, value, key, headers=list(headers) or None, on_delivery=on_delivery, **rest
                )
                return  # noqa: TRY300 - the loop goes on only after a full queue
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as error:
                # Refused at once (too large for the client, unknown partition): the answer comes the usual way.
                delivered(as_produce_error(error.args[0]))
                return

    def _why(self, error: Any, topic: str) -> str:
        """What the client does not tell: a message that no broker would take just times out."""
        if error.code() not in _UNSAFE or time.monotonic() - self._asked < _ASK:
            return self._known if error.code() in _UNSAFE else ""
        self._asked, self._known = time.monotonic(), ""
        try:
            partitions = self._producer.list_topics(topic, timeout=1.0).topics[topic].partitions.values()
        except (KafkaException, KeyError):
            return ""
        fewest = min(partitions, key=lambda found: len(found.isrs) - len(found.replicas), default=None)
        if fewest is not None and len(fewest.isrs) < len(fewest.replicas):
            self._known = f"{len(fewest.isrs)} of {len(fewest.replicas)} replicas are in sync"
        return self._known

    def poll(self) -> None:
        """Run the callbacks of messages whose fate is known."""
        self._producer.poll(0)

    def flush(self, timeout: float) -> int:
        """Wait for everything under way; returns how many messages are still not delivered."""
        return int(self._producer.flush(timeout))
