"""Admin: topics and the ends of logs."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, OffsetSpec, ResourceType

from laneway._kafka.client import quiet
from laneway._kafka.errors import BrokerUnavailableError, as_admin_error, as_refusal, is_auth_error
from laneway._kafka.group import GroupOffsets, Place, describe
from laneway._kafka.topic_ids import TopicIds
from laneway._kafka.topic_trouble import MISSING, trouble_of
from laneway.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from laneway._kafka.group import Group

__all__ = ["Admin"]

_AGES = 36_500 * 86_400_000  # milliseconds; a hundred years count as forever, and more would not fit into a timedelta


class PartitionLayout(NamedTuple):
    """Which brokers have a partition."""

    leader: int
    """Negative when there is none."""
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class Admin:
    """Reads cluster metadata and changes topics. One client, because futures die with it. Create it after a fork."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = quiet(options)
        self._refusal: str | None = None
        self._trouble = ""
        """The last connection error."""
        self._client = AdminClient({**self._options, "error_cb": self._noticed})
        self._groups: dict[str, GroupOffsets] = {}

    def partitions(self, topic: str, timeout: float = 5.0) -> list[int]:
        """Partition numbers of a topic; empty when there is no such topic.

        Raises:
            BrokerUnavailableError: no broker answered in time.
        """
        metadata = self._metadata(timeout, topic)
        found = metadata.topics.get(topic)
        return [] if found is None or found.error is not None else sorted(found.partitions)

    def topics(self, timeout: float = 5.0) -> dict[str, int]:
        """Partition counts of all topics."""
        return {name: len(found.partitions) for name, found in self._metadata(timeout).topics.items()}

    def layout(self, topic: str, timeout: float = 5.0) -> dict[int, PartitionLayout]:
        """Where each partition of a topic is; empty when there is no such topic."""
        found = self._metadata(timeout, topic).topics.get(topic)
        if found is None or found.error is not None:
            return {}
        return {
            number: PartitionLayout(part.leader, tuple(part.replicas), tuple(part.isrs))
            for number, part in sorted(found.partitions.items())
        }

    def changed_config(self, topic: str, timeout: float = 5.0) -> dict[str, str]:
        """The options of a topic that differ from the brokers' defaults.

        Raises:
            AdminError: it may not be read.
        """
        found = self._config(topic, timeout)
        of_topic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in sorted(found.items()) if entry.source == of_topic}

    def brokers(self, timeout: float = 5.0) -> int:
        """How many brokers there are."""
        return len(self._metadata(timeout).brokers)

    def ends(self, topic: str, partitions: Sequence[int], timeout: float = 5.0) -> dict[int, int]:
        """The offset after the last readable record of each partition, in one request."""
        return self._offsets(topic, partitions, OffsetSpec.latest(), timeout)

    def starts(self, topic: str, partitions: Sequence[int], timeout: float = 5.0) -> dict[int, int]:
        """The first offset of each partition."""
        return self._offsets(topic, partitions, OffsetSpec.earliest(), timeout)

    def bounds(self, topic: str, partition: int, timeout: float = 5.0) -> tuple[int, int]:
        """The first and the end offset of a log."""
        return self.starts(topic, [partition], timeout)[partition], self.ends(topic, [partition], timeout)[partition]

    def ends_of(self, places: Sequence[Place], timeout: float = 5.0) -> dict[Place, int]:
        """The offset after the last readable record of partitions of any topics, in one request."""
        return self._offsets_of(dict.fromkeys(places, OffsetSpec.latest()), timeout)

    def first_since(self, places: Mapping[Place, int], timeout: float = 5.0) -> dict[Place, int | None]:
        """The first offset whose record has at least the given timestamp, in milliseconds; None when there is none."""
        found = self._offsets_of({place: OffsetSpec.for_timestamp(time) for place, time in places.items()}, timeout)
        return {place: offset if offset >= 0 else None for place, offset in found.items()}

    def high_watermarks(self, places: Sequence[Place], timeout: float = 5.0) -> dict[Place, int]:
        """As `ends_of`, with open transactions included: no offset that was ever read lies past it."""
        return self._offsets_of(dict.fromkeys(places, OffsetSpec.latest()), timeout, IsolationLevel.READ_UNCOMMITTED)

    def ask_topic_ids(self, topics: Iterable[str], timeout: float = 5.0) -> TopicIds:
        """Request the ids of topics; the answer comes later."""
        return TopicIds(self._client, topics, timeout)

    def topic_ids(self, topics: Iterable[str], timeout: float = 5.0) -> dict[str, str]:
        """The id of each topic, which changes when it is deleted and recreated; those that do not exist are left out.

        Raises:
            BrokerUnavailableError: no broker answered in time.
        """
        return self.ask_topic_ids(topics, timeout).result()

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
            raise as_refusal(f"create topic {topic}", error) from error
        return True

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        try:
            self._client.delete_topics([topic], operation_timeout=10)[topic].result()
        except KafkaException as error:
            raise as_refusal(f"delete topic {topic}", error) from error

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        from confluent_kafka.admin import NewPartitions

        try:
            self._client.create_partitions([NewPartitions(topic, partitions)])[topic].result()
        except KafkaException as error:
            raise as_refusal(f"grow topic {topic}", error) from error

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete the records of each partition that lie before an offset; gives where the logs begin then."""
        if any(offset < 0 for offset in before.values()):
            # Kafka reads a negative offset as the end of the log: a mistake would delete everything.
            raise AdminError(f"cannot delete records of topic {topic}: an offset is negative")
        places = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        if not places:
            return {}
        try:
            answers = self._client.delete_records(places, operation_timeout=10)
            return {place.partition: future.result().low_watermark for place, future in answers.items()}
        except KafkaException as error:
            raise as_refusal(f"delete records of topic {topic}", error) from error

    def retention(self, topic: str, timeout: float = 5.0) -> timedelta | None:
        """How long a topic keeps records, from their timestamps on; None for forever."""
        found = self._config(topic, timeout)
        kept = int(found["retention.ms"].value)
        is_bounded = 0 <= kept < _AGES and "delete" in found["cleanup.policy"].value
        return timedelta(milliseconds=kept) if is_bounded else None

    def trouble(self, topic: str, timeout: float = 5.0) -> str:
        """What is wrong with a topic; empty when nothing is.

        Raises:
            BrokerUnavailableError: no broker answered in time.
        """
        state = self._metadata(timeout, topic).topics.get(topic)
        found = trouble_of(state)
        if found == MISSING or state is None:
            return found
        with suppress(AdminError):  # no permission to read it
            needed = int(self._config(topic, timeout)["min.insync.replicas"].value)
            there = min(len(part.isrs) for part in state.partitions.values())
            if there < min(needed, *(len(part.replicas) for part in state.partitions.values())):
                return f"{there} replicas are in sync, and min.insync.replicas is {needed}"
        return found

    def largest(self, topic: str, timeout: float = 5.0) -> int | None:
        """The largest batch of records that a topic accepts, in bytes; None without permission to read it."""
        try:
            return int(self._config(topic, timeout)["max.message.bytes"].value)
        except AdminError:
            return None

    def group(self, name: str, timeout: float = 10.0) -> Group:
        """A consumer group now: its state, its members, and what they read."""
        return describe(self._client, name, timeout)

    def members(self, group: str, timeout: float = 10.0) -> int:
        """How many members a group has now; 0 if it does not exist."""
        return len(self.group(group, timeout).members)

    def lag(self, group: str, topic: str) -> dict[int, tuple[int | None, int]]:
        """Committed offset (or None) and log end of each partition, as any lag tool sees them."""
        partitions = self.partitions(topic)
        # Not librdkafka's admin request: it crashes the process while the group's coordinator loads or moves.
        # One client is kept, because each one leaks memory when it is closed, and the lag is requested regularly.
        if group not in self._groups:
            self._groups[group] = GroupOffsets(self._options, group)
        committed = self._groups[group].committed(topic, partitions)
        ends = self.ends(topic, partitions)
        return {partition: (committed.get(partition), ends[partition]) for partition in partitions}

    def _config(self, topic: str, timeout: float) -> Any:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            return self._client.describe_configs([resource], request_timeout=timeout)[resource].result()
        except KafkaException as error:
            raise as_admin_error(error) from error

    def _metadata(self, timeout: float, topic: str | None = None) -> Any:
        self._trouble = ""
        try:
            found = (
                self._client.list_topics(topic, timeout=timeout) if topic else self._client.list_topics(timeout=timeout)
            )
        except KafkaException as error:
            # A refused login is reported only here; the request itself just finds no broker.
            self._client.poll(0)
            if self._refusal is not None:
                raise AdminError(self._refusal) from error
            raise as_admin_error(error, self._trouble) from error
        # Earlier errors are over, and must not be reported with the next one.
        self._client.poll(0)
        self._refusal = None
        return found

    def _noticed(self, error: Any) -> None:
        if is_auth_error(error):
            self._refusal = f"{error.name()}: {error.str()}"
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - public, see _errors
            self._trouble = error.str().partition(" (after ")[0]  # times and counts would make each one differ

    def _offsets(self, topic: str, partitions: Sequence[int], spec: OffsetSpec, timeout: float) -> dict[int, int]:
        asked = {(topic, partition): spec for partition in partitions}
        return {partition: offset for (_, partition), offset in self._offsets_of(asked, timeout).items()}

    def _offsets_of(
        self,
        asked: Mapping[Place, OffsetSpec],
        timeout: float,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[Place, int]:
        try:
            answers = self._client.list_offsets(
                {TopicPartition(*place): spec for place, spec in asked.items()},
                isolation_level=isolation,
                request_timeout=timeout,
            )
            found = {(place.topic, place.partition): future.result().offset for place, future in answers.items()}
        except KafkaException as error:
            self._learn_leaders(asked)
            raise as_admin_error(error) from error
        lacking = [place for place, offset in found.items() if offset == OFFSET_INVALID]
        if lacking:
            # librdkafka's answer for a partition without a leader.
            self._learn_leaders(lacking)
            raise BrokerUnavailableError("no leader for " + ", ".join(f"{name}[{part}]" for name, part in lacking[:5]))
        return found

    def _learn_leaders(self, places: Iterable[Place]) -> None:
        """Make the client refresh its leaders: after a refused offset it keeps asking the old one."""
        with suppress(KafkaException):
            for topic in {topic for topic, _ in places}:
                self._client.list_topics(topic, timeout=1.0)
