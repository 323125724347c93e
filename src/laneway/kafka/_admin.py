"""Admin: topics and the ends of logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from laneway.errors import AdminError
from laneway.kafka._errors import as_admin_error, text_of
from laneway.kafka._group import GroupOffsets
from laneway.kafka._quiet import quiet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Admin"]


class Admin:
    """Asks the cluster and changes topics. One client is kept: futures die with it. Made after the fork."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = quiet(options)
        self._client = AdminClient(self._options)

    def partitions(self, topic: str, timeout: float = 5.0) -> list[int]:
        """Partition numbers of a topic; empty when there is no such topic.

        Raises:
            BrokerAbsentError: no broker answered in time.
        """
        metadata = self._metadata(timeout, topic)
        found = metadata.topics.get(topic)
        return [] if found is None or found.error is not None else sorted(found.partitions)

    def topics(self, timeout: float = 5.0) -> dict[str, int]:
        """Partition counts of all topics."""
        return {name: len(found.partitions) for name, found in self._metadata(timeout).topics.items()}

    def brokers(self, timeout: float = 5.0) -> int:
        """How many brokers there are."""
        return len(self._metadata(timeout).brokers)

    def ends(self, topic: str, partitions: Sequence[int], timeout: float = 5.0) -> dict[int, int]:
        """The offset after the last readable record of each partition, in one request."""
        return self._offsets(topic, partitions, OffsetSpec.latest(), timeout)

    def starts(self, topic: str, partitions: Sequence[int], timeout: float = 5.0) -> dict[int, int]:
        """The first offset of each partition."""
        return self._offsets(topic, partitions, OffsetSpec.earliest(), timeout)

    def create(
        self, topic: str, partitions: int, *, config: Mapping[str, str] | None = None, replicas: int = -1
    ) -> bool:
        """Create a topic; False when it exists already."""
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
        try:
            self._client.create_topics([wanted], operation_timeout=10)[topic].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise AdminError(f"cannot create topic {topic}: {text_of(error)}") from error
        return True

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        try:
            self._client.delete_topics([topic], operation_timeout=10)[topic].result()
        except KafkaException as error:
            raise AdminError(f"cannot delete topic {topic}: {text_of(error)}") from error

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        from confluent_kafka.admin import NewPartitions

        try:
            self._client.create_partitions([NewPartitions(topic, partitions)])[topic].result()
        except KafkaException as error:
            raise AdminError(f"cannot grow topic {topic}: {text_of(error)}") from error

    def lag(self, group: str, topic: str) -> dict[int, tuple[int | None, int]]:
        """Committed offset (None when there is none) and log end of each partition, as any lag tool would see them."""
        partitions = self.partitions(topic)
        # Not librdkafka's admin request: it crashes the process when the group's coordinator is loading or has moved.
        offsets = GroupOffsets(self._options, group)
        try:
            committed = offsets.committed(topic, partitions)
        finally:
            offsets.close()
        ends = self.ends(topic, partitions)
        return {partition: (committed.get(partition), ends[partition]) for partition in partitions}

    def _metadata(self, timeout: float, topic: str | None = None) -> Any:
        try:
            return (
                self._client.list_topics(topic, timeout=timeout) if topic else self._client.list_topics(timeout=timeout)
            )
        except KafkaException as error:
            raise as_admin_error(error) from error

    def _offsets(self, topic: str, partitions: Sequence[int], spec: OffsetSpec, timeout: float) -> dict[int, int]:
        asked = {TopicPartition(topic, partition): spec for partition in partitions}
        try:
            answers = self._client.list_offsets(
                asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout
            )
            return {place.partition: future.result().offset for place, future in answers.items()}
        except KafkaException as error:
            raise as_admin_error(error) from error
