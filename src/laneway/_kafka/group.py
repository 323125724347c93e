"""A consumer group as others see it: its offsets, its members, and commits on a separate connection."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from laneway._kafka.client import quiet
from laneway._kafka.errors import as_admin_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka.admin import AdminClient

__all__ = ["Group", "GroupMember", "GroupOffsets", "OffsetAndMetadata", "Place", "commit_apart", "describe", "known_to"]


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


_COORDINATOR_MOVES = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One consumer of a group."""

    client: str
    host: str
    places: tuple[Place, ...]
    """What it reads."""


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group at one moment."""

    name: str
    state: str
    """``stable``, ``empty``, ``preparing rebalancing``, …; ``unknown`` for a group that does not exist."""
    members: tuple[GroupMember, ...] = ()

    @property
    def is_moving(self) -> bool:
        """Whether it is rebalancing."""
        return "rebalancing" in self.state


def describe(client: AdminClient, name: str, timeout: float) -> Group:
    """Describe a group.

    Raises:
        BrokerUnavailableError: no broker answered.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            found = client.describe_consumer_groups([name], request_timeout=timeout)[name].result()
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                return Group(name, "unknown")
            if code not in _COORDINATOR_MOVES or time.monotonic() > deadline:
                raise as_admin_error(error) from error
            time.sleep(0.1)  # a loading coordinator is ready within a second
            continue
        members = [
            GroupMember(
                member.client_id,
                member.host.lstrip("/"),
                tuple(sorted((part.topic, part.partition) for part in member.assignment.topic_partitions)),
            )
            for member in found.members
        ]
        return Group(name, found.state.name.lower().replace("_", " "), tuple(members))


_EXPIRES = 10_000  # milliseconds after which brokers abort an open transaction


def commit_apart(
    options: Mapping[str, Any], group: str, member: Any, offsets: Mapping[Place, OffsetAndMetadata], timeout: float
) -> None:
    """Commit offsets of a group member without using its connection.

    Brokers answer the requests of one connection in order, and answer a join request when the rebalance is over. A
    killed member delays that until its session times out, and so delays every later commit on the connection. Only a
    transactional producer may commit for a member on another connection; the broker checks the member's generation as
    with any commit.

    Args:
        options: librdkafka options that every client of the cluster needs.
        group: the group's name.
        member: the member's group metadata.
        offsets: what to commit.
        timeout: seconds for each of the three requests.

    Raises:
        BrokerUnavailableError: it is unknown whether the commit happened.
        FencedError: the member is no longer in the group.
        AdminError: the client has no permission for transactions.
    """
    name = f"{group}.stop.{uuid.uuid4().hex}"
    producer = Producer({**quiet(options), "transactional.id": name, "transaction.timeout.ms": _EXPIRES})
    try:
        producer.list_topics(timeout=timeout)  # a connected client initialises ten times faster
        producer.init_transactions(timeout)
        producer.begin_transaction()
        places = [TopicPartition(*place, offset, text) for place, (offset, text) in offsets.items()]
        producer.send_offsets_to_transaction(places, member, timeout)
        producer.commit_transaction(timeout)
    except KafkaException as error:
        raise as_admin_error(error) from error
