"""GroupOffsets: a consumer group's committed offsets, read and written without joining the group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from laneway.kafka._errors import as_admin_error
from laneway.kafka._quiet import quiet

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["GroupOffsets"]


class GroupOffsets:
    """Reads and commits the offsets of one group. A job that never joins its group still shows up in lag tools.

    Not thread-safe. Made after the fork.
    """

    def __init__(self, options: Mapping[str, Any], group: str) -> None:
        self._consumer = Consumer({**quiet(options), "group.id": group, "enable.auto.commit": False})

    def committed(self, topic: str, partitions: list[int], timeout: float = 10.0) -> dict[int, int]:
        """Committed offset of each partition that has one.

        Raises:
            BrokerAbsentError: the group's coordinator did not answer or is not ready.
        """
        asked = [TopicPartition(topic, partition) for partition in partitions]
        try:
            answers = self._consumer.committed(asked, timeout)
        except KafkaException as error:
            raise as_admin_error(error) from error
        return {answer.partition: answer.offset for answer in answers if answer.offset >= 0}

    def commit(self, topic: str, offsets: Mapping[int, int], *, wait: bool) -> None:
        """Commit offsets of one topic; with *wait* return when the broker has them."""
        self.commit_all({(topic, partition): offset for partition, offset in offsets.items()}, wait=wait)

    def commit_all(self, offsets: Mapping[tuple[str, int], int], *, wait: bool) -> None:
        """Commit offsets of partitions of any topics in one request, so that all of them count or none."""
        places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        if not places:
            return
        try:
            self._consumer.commit(offsets=places, asynchronous=not wait)
        except KafkaException as error:
            raise as_admin_error(error) from error

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()
