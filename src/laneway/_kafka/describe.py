"""Describes a consumer group: its state, its members, and what they read."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from laneway._kafka.errors import as_admin_error

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from laneway._kafka.group import Place

__all__ = ["Group", "GroupMember", "describe"]

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
