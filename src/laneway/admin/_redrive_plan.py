"""What a redrive does: the actions Replay and Drop, and the plan, made by reading the open records once."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from laneway.admin._error_topic import ErrorTopic, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laneway.admin._error_log import ErrorLog, OpenRange
    from laneway.admin._filter import Filter
    from laneway.admin._parked import ParkedRecord, Position
    from laneway.typing import Sender

__all__ = ["Action", "Drop", "LeftOut", "PartitionPlan", "RedrivePlan", "Replay", "plan_redrive"]

_NAMED = 10  # positions listed per reason; the rest is counted
_NEVER = 2**63  # later than any timestamp


class Action(Protocol):
    """What to do with the records that match a filter."""

    def choose(self, parked: ParkedRecord) -> bool | str:
        """Whether to act on this record; a text says why it is impossible although the record matches.

        Must give the same answer each time: planning and execution must choose the same records.
        """

    def perform(self, parked: ParkedRecord, sender: Sender, delivered: Callable[[Exception | None], None]) -> None:
        """Do it; *delivered* gets None when the result is durable, or the error."""


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


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The work in one partition: its open records from *start* to the last chosen one, before *end*."""

    partition: int
    start: int
    end: int
    committed: int | None
    """The group's offset when the plan was made; if it differs later, another process moved it."""
    chosen: int
    kept: int
    """Open records before the last chosen one that are not chosen; they are appended again."""
    oldest: int = 0
    """The earliest timestamp of a chosen record, in milliseconds."""


@dataclass(slots=True)
class LeftOut:
    """Records that match but cannot be chosen, all for one reason."""

    count: int = 0
    places: list[Position] = field(default_factory=list)
    """The first few."""

    def add(self, place: Position) -> None:
        """Count a record, and keep its position if there is room."""
        self.count += 1
        if len(self.places) < _NAMED:
            self.places.append(place)


@dataclass(slots=True)
class RedrivePlan:
    """What will be done on one error topic."""

    shares: list[PartitionPlan] = field(default_factory=list)
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    """By reason."""

    @property
    def chosen(self) -> int:
        """Records that will be replayed or dropped."""
        return sum(share.chosen for share in self.shares)

    @property
    def oldest(self) -> int:
        """The earliest timestamp of a chosen record, in milliseconds."""
        return min(share.oldest for share in self.shares)

    @property
    def kept(self) -> int:
        """Records that will be appended again."""
        return sum(share.kept for share in self.shares)


def plan_redrive(
    log: ErrorLog,
    extents: dict[int, OpenRange],
    choose: Callable[[ParkedRecord], bool | str],
    limit: int | None = None,
) -> RedrivePlan:
    """Plan partition by partition, without keeping records in memory.

    Args:
        log: the error topic.
        extents: what it holds.
        choose: whether a record is chosen; a text says why it cannot be although it matches.
        limit: choose at most this many, the first in the order of partitions and offsets.
    """
    plan = RedrivePlan()
    for partition, extent in sorted(extents.items()):
        left = None if limit is None else limit - plan.chosen
        if extent.is_settled or left == 0:
            continue
        share = _share(log, partition, extent, choose, left, plan.left_out)
        if share.chosen:
            plan.shares.append(share)
    return plan


def _share(
    log: ErrorLog,
    partition: int,
    extent: OpenRange,
    choose: Callable[[ParkedRecord], bool | str],
    most: int | None,
    left_out: dict[str, LeftOut],
) -> PartitionPlan:
    end, chosen, kept, passed, oldest = extent.open, 0, 0, 0, _NEVER
    with closing(log.read(partition, extent.open, extent.end)) as records:
        for parked in records:
            answer = choose(parked)
            if answer is True:
                # The records skipped so far now lie before a chosen one.
                end, chosen, kept, passed = parked.place.offset + 1, chosen + 1, kept + passed, 0
                oldest = min(oldest, parked.timestamp)
                if chosen == most:
                    break
                continue
            passed += 1
            if answer:
                left_out.setdefault(answer, LeftOut()).add(parked.place)
    return PartitionPlan(partition, extent.open, end, extent.committed, chosen, kept, oldest)
