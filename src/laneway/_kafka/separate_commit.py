"""Commits offsets in a separate transaction, on a connection that no rebalance blocks."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer, TopicPartition

from laneway._kafka.client import quiet
from laneway._kafka.errors import as_admin_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laneway._kafka.group import OffsetAndMetadata, Place

__all__ = ["commit_apart"]

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
