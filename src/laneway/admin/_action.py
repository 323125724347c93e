"""Replay and Drop: the two actions on a parked record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from laneway.admin._error_topic import ErrorTopic, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laneway.admin._filter import Filter
    from laneway.admin._parked import ParkedRecord
    from laneway.typing import Sender

__all__ = ["Action", "Drop", "Replay"]


class Action(Protocol):
    """What to do with the records that match a filter."""

    def choose(self, parked: ParkedRecord) -> bool | str:
        """Whether to act on this record; a text says why it is impossible although the record matches.

        Must give the same answer each time: planning and execution must choose the same records.
        """
        ...

    def perform(self, parked: ParkedRecord, sender: Sender, delivered: Callable[[Exception | None], None]) -> None:
        """Do it; *delivered* gets None when the result is durable, or the error."""
        ...


@dataclass(frozen=True, slots=True)
class Replay:
    """Sends records back to the topic they came from, unchanged.

    Args:
        topic: the error topic.
        filter: which records.
        partitions: how many partitions each topic of the cluster has.
        to: another topic for all of them, chosen by the user.
    """

    topic: ErrorTopic
    filter: Filter
    partitions: Mapping[str, int]
    to: str | None = None

    def choose(self, parked: ParkedRecord) -> bool | str:
        """Whether the filter matches and the target is known."""
        if not self.filter.matches(parked):
            return False
        target = self.target_of(parked)
        return target if isinstance(target, str) else True

    def target_of(self, parked: ParkedRecord) -> Target | str:
        """Where a record goes, or why that is unknown."""
        if self.to is not None and not parked.is_reference:
            return Target(self.to)
        return self.topic.target_of(parked, self.partitions)

    def perform(self, parked: ParkedRecord, sender: Sender, delivered: Callable[[Exception | None], None]) -> None:
        """Send it."""
        target = self.target_of(parked)
        if isinstance(target, str):
            raise TypeError(f"{parked.place} cannot be replayed: {target}")
        sender.send(
            target.topic,
            key=parked.key,
            value=parked.value,
            headers=self.topic.replayed_headers(parked),
            delivered=delivered,
            partition=target.partition,
            timestamp=parked.timestamp,
        )


@dataclass(frozen=True, slots=True)
class Drop:
    """Marks records as done without sending them anywhere."""

    filter: Filter

    def choose(self, parked: ParkedRecord) -> bool | str:
        """Whether the filter matches."""
        return self.filter.matches(parked)

    def perform(self, parked: ParkedRecord, sender: Sender, delivered: Callable[[Exception | None], None]) -> None:
        """Send nothing."""
        del parked, sender
        delivered(None)
