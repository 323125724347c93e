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

__all__ = ["Finding", "Located", "MemberStatus", "PartitionStatus", "Snapshot", "Watched"]


class Finding(NamedTuple):
    """One thing that is worth saying about an engine."""

    level: Level
    code: str
    subject: str
    """What it is about: two findings with the same code and subject are one that lasts."""
    words: str
    seconds: float | None = None
    """How long it has been so, if that is known."""


class PartitionStatus(NamedTuple):
    """A partition that is read here."""

    low: int
    """The lowest offset that is not finished by every handler."""
    delivered: int
    """The offset after the last record that was given to the handlers."""
    committed: int
    """The offset that the broker has."""
    epoch: int = 0
    """Another number means that it was given away, and came back, or that its log began again."""
    waits: str = ""
    """Why nothing is read of it now; empty when nothing keeps it from being read."""
    is_full: bool = False
    """Whether commits can tell of no more records that are finished past the lowest unfinished one."""


class MemberStatus(NamedTuple):
    """The member of a consumer group."""

    has_joined: bool
    """Whether the group has given it partitions, or said that there are none for it."""
    is_over: bool
    silent: float
    """Seconds since it last polled."""
    allowed: float
    """Seconds for which it may be silent."""
    session: timedelta
    """After this time the group takes partitions from a member that was killed."""


class Snapshot(NamedTuple):
    """One cluster of an app at one moment."""

    where: str
    """The brokers."""
    brokers: BrokerView = BrokerView()
    partitions: Mapping[Place, PartitionStatus] = {}
    handlers: Sequence[HandlerStatus] = ()
    """One for each handler and process."""
    delays: Mapping[str, float] = {}
    """Topics whose records wait until they are old, and how old."""
    member: MemberStatus | None = None
    """None where the engine does not join the group."""
    owned: Collection[Place] = ()
    """The partitions of sources that are read here."""
    findings: Sequence[Finding] = ()
    """What only this engine knows."""

    @property
    def lag(self) -> dict[Place, int]:
        """How many records of the partitions are not finished, in Kafka and here."""
        ends = self.brokers.ends
        return {place: max(0, ends[place] - found.low) for place, found in self.partitions.items() if place in ends}


class Located(NamedTuple):
    """Where the lowest unfinished record of a partition is."""

    spot: Spot
    handler: HandlerStatus
    location: Location


class Watched(Protocol):
    """What an engine lets be watched: the part of an app on one cluster. Any thread may call it."""

    def refresh(self) -> None:
        """Let other processes say how they are, and wait a moment for that."""

    def look(self) -> Snapshot:
        """How it is now. It asks no broker."""

    def locate(self, spots: Collection[Spot]) -> list[Located]:
        """Where unfinished records are; for each one entry for every handler that has not finished it."""

    def count_brokers(self) -> None:
        """Keep the number of brokers up to date from now on."""
