"""GroupOffsets: a consumer group's committed offsets, read and written without joining the group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from laneway._kafka.client import quiet
from laneway._kafka.errors import as_admin_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["GroupOffsets", "OffsetAndMetadata", "Place", "known_to"]


Place = tuple[str, int]
"""A topic and a partition."""
OffsetAndMetadata = tuple[int, str]
"""An offset and the metadata that were committed with it."""


def known_to(consumer: Consumer, places: Iterable[Place], timeout: float) -> dict[Place, OffsetAndMetadata]:
    """Committed offsets of a consumer's group; partitions without a commit are left out.

    Raises:
        BrokerUnavailableError: the group's coordinator did not answer or is not ready.
    """
    try:
        answers = consumer.committed([TopicPartition(*place) for place in places], timeout)
    except KafkaException as error:
        raise as_admin_error(error) from error
    found: dict[Place, OffsetAndMetadata] = {}
    for answer in answers:
        if answer.error is not None:  # not the same as no commit: then it would be read from the start
            raise as_admin_error(KafkaException(answer.error))
        if answer.offset >= 0:
            found[answer.topic, answer.partition] = (answer.offset, answer.metadata or "")
    return found


class GroupOffsets:
    """Reads and commits the offsets of one group without joining it, so that lag tools see the group.

    Not thread-safe. Create it after a fork.
    """

    def __init__(self, options: Mapping[str, Any], group: str) -> None:
        self._consumer = Consumer({**quiet(options), "group.id": group, "enable.auto.commit": False})

    def committed(self, topic: str, partitions: list[int], timeout: float = 10.0) -> dict[int, int]:
        """Committed offset of each partition that has one.

        Raises:
            BrokerUnavailableError: the group's coordinator did not answer or is not ready.
        """
        found = self.known([(topic, partition) for partition in partitions], timeout)
        return {partition: offset for (_, partition), (offset, _) in found.items()}

    def known(self, places: Iterable[Place], timeout: float = 10.0) -> dict[Place, OffsetAndMetadata]:
        """Committed offsets of partitions of any topics, with their metadata.

        Raises:
            BrokerUnavailableError: the group's coordinator did not answer or is not ready.
        """
        return known_to(self._consumer, places, timeout)

    def commit_all(self, offsets: Mapping[Place, OffsetAndMetadata], *, wait: bool) -> None:
        """Commit offsets of partitions of any topics in one request, all or none.

        With *wait* it returns when the broker has them.
        """
        places = [TopicPartition(*place, offset, text) for place, (offset, text) in offsets.items()]
        if not places:
            return
        try:
            self._consumer.commit(offsets=places, asynchronous=not wait)
        except KafkaException as error:
            raise as_admin_error(error) from error

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
