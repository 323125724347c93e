"""Snapshot: what health and `why` are judged by, on one cluster at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from laneway._declare.health import Level  # noqa: TC001 - part of a public value
from laneway._runtime.monitor import BrokerView

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import timedelta

    from laneway._core.locate import HandlerStatus, Location, Spot
    from laneway._kafka import Place

__all__ = ["Finding", "HealthSource", "Located", "MemberStatus", "PartitionStatus", "Snapshot"]


class Finding(NamedTuple):
    level: Level
    code: str
    subject: str
    """The subject: findings with the same code and subject are the same finding over time."""
    words: str
    seconds: float | None = None
    """How long it has lasted, if known."""


class PartitionStatus(NamedTuple):
    """A partition that is read here."""

    low: int
    """The lowest offset that some handler has not finished."""
    delivered: int
    """The offset after the last record given to the handlers."""
    committed: int
    epoch: int = 0
    """Changes when the partition was revoked and assigned again, or its log started again."""
    waits: str = ""
    """Why it is not read; empty if it may be."""
    is_full: bool = False
    """Whether the commit metadata has no room for more finished offsets."""


class MemberStatus(NamedTuple):
    """The member of a consumer group."""

    has_joined: bool
    """Whether the first assignment has arrived; it may be empty."""
    is_over: bool
    silent: float
    """Seconds since the last poll."""
    allowed: float
    """Seconds that are allowed between polls."""
    session: timedelta
    """The session timeout, after which the group reassigns a killed member's partitions."""


class Snapshot(NamedTuple):
    """One cluster of an app at one moment."""

    where: str
    brokers: BrokerView = BrokerView()
    partitions: Mapping[Place, PartitionStatus] = {}
    handlers: Sequence[HandlerStatus] = ()
    delays: Mapping[str, float] = {}
    """Delayed topics, and the delay in seconds."""
    member: MemberStatus | None = None
    owned: Collection[Place] = ()
    """The partitions of sources that are read here."""
    findings: Sequence[Finding] = ()
    """Findings that only this engine can make."""

    @property
    def lag(self) -> dict[Place, int]:
        """Unfinished records of each partition, in Kafka and here."""
        ends = self.brokers.ends
        return {place: max(0, ends[place] - found.low) for place, found in self.partitions.items() if place in ends}


class Located(NamedTuple):
    """Where the lowest unfinished record of a partition is."""

    spot: Spot
    handler: HandlerStatus
    location: Location


class HealthSource(Protocol):
    """A health source: one cluster's part of an engine. Any thread may call it."""

    def refresh(self) -> None:
        """Request the status of other processes, and wait a moment for it."""

    def look(self) -> Snapshot:
        """A snapshot, without asking a broker."""

    def locate(self, spots: Collection[Spot]) -> list[Located]:
        """The locations of unfinished records: one entry for each handler that has not finished the record."""

    def count_brokers(self) -> None:
        """Count the brokers from now on."""
