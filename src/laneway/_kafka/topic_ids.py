"""TopicIds: a request for the ids of topics."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka import __version__ as _version

from laneway._kafka.errors import as_admin_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka.admin import AdminClient

__all__ = ["TopicIds"]

_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001 - public, see _errors
_NONE = "A" * 22  # zero, which brokers without topic ids answer
_LEAKS = _version.startswith("2.16.")  # confluent-kafka keeps a reference to each id that it makes, see `_id_of`


class TopicIds:
    """Sends a request and has the answer later, so that the reading thread need not wait."""

    def __init__(self, client: AdminClient, topics: Iterable[str], timeout: float) -> None:
        names = list(topics)
        self._answers: dict[str, Any] = (
            client.describe_topics(TopicCollection(names), request_timeout=timeout) if names else {}
        )

    @property
    def is_done(self) -> bool:
        """Whether `result` returns at once."""
        return all(answer.done() for answer in self._answers.values())

    def result(self) -> dict[str, str]:
        """Topic to id, as Kafka's own tools show it; topics that do not exist are left out.

        The id is empty when the brokers are too old to have any.

        Raises:
            BrokerUnavailableError: no broker answered in time.
        """
        found: dict[str, str] = {}
        for topic, answer in self._answers.items():
            try:
                text = _id_of(answer.result())
            except KafkaException as error:
                if error.args[0].code() not in _MISSING:
                    raise as_admin_error(error) from error
                continue
            found[topic] = "" if text == _NONE else text
        return found


def _id_of(description: Any) -> str:
    text = str(description.topic_id or "").replace("+", "-").replace("/", "_")
    # A hundred bytes per request are megabytes per day. The list beside it has no extra reference.
    if _LEAKS and sys.getrefcount(description.topic_id) == sys.getrefcount(description.partitions) + 1:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(description.topic_id))
    return text
