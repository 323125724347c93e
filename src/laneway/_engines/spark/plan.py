"""How much a batch takes, and how it is cut into tasks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from laneway._kafka import OffsetRange

P = TypeVar("P")

__all__ = ["BatchSize", "TaskSpec", "pack", "spread"]

_FIXED = 0.1  # seconds of a batch that are planning and logs, however many records: not part of the pace
_GROWTH = 8.0  # a batch is at most this many times an earlier one, so one lucky measurement cannot ask for an hour
_SMALL = 2_000  # records: below this one task is faster than several, because each task costs about 10 ms


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What one task does: some ranges of a topic, for one handler, with its share of the lanes."""

    route: str
    ranges: tuple[OffsetRange, ...]
    lanes: int
    step: int = 0
    """Which step of the ladder the ranges are of; 0 is the source."""
    pending: tuple[OffsetRange, ...] = ()
    """What waits on higher steps in the same partitions."""
    since: tuple[tuple[str, int, int, int], ...] = ()
    """Of the source and its retry topics: topic, partition, offset up to which everything is finished, and from when on
    copies of what is read there count.
    """
    is_recovering: bool = False
    """Some of the records may have been worked on by a run that was killed."""

    @property
    def length(self) -> int:
        """Offsets in all."""
        return sum(part.length for part in self.ranges)


class BatchSize:
    """Chooses how many records a batch takes so that it lasts about *target* seconds.

    Args:
        target: seconds a batch should take when there is much to do.
        most: records a batch never exceeds.
        first: records of the batch before any pace is known.
    """

    def __init__(self, target: float, most: int, first: int) -> None:
        self._target = target
        self._most = most
        self._first = min(first, most)
        self._rate: float | None = None
        self._proven = 0

    @property
    def limit(self) -> int:
        """Records the next batch may take."""
        if self._rate is None:
            return self._first
        wanted = self._rate * self._target
        return int(max(1, min(wanted, max(self._proven, self._first) * _GROWTH, self._most)))

    def measured(self, records: int, seconds: float) -> None:
        """A batch of so many records took so long."""
        if records <= 0 or seconds <= 0:
            return
        rate = records / max(seconds - _FIXED, seconds / 2)
        # A small batch is all overhead and says little about the pace of a large one: it may only raise it. Nor does it
        # take back how large a batch was seen to go well: a few retries that were due would cut what comes after them.
        is_small = self._rate is not None and records < self._rate * self._target / 4
        if self._rate is None or rate > self._rate:
            self._rate = rate
        elif not is_small:
            self._rate = (self._rate + rate) / 2
        self._proven = max(self._proven, records) if is_small else records


def spread(waiting: dict[P, int], limit: int) -> dict[P, int]:
    """Cut what waits in each partition down to *limit* in all, in proportion, at least one record each."""
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    return {place: min(count, max(1, count * limit // total)) for place, count in waiting.items() if count}


def pack(route: str, ranges: list[OffsetRange], *, lanes: int, tasks: int, is_strict: bool = False) -> list[TaskSpec]:
    """Pack ranges into at most *tasks* shares of about equal length, and give each its part of the lanes.

    The longest range goes first into the emptiest share. A pool of lanes is divided by length, so that no share is
    still busy when the others are done; strict lanes stay with their partitions.

    Args:
        route: name of the handler.
        ranges: what to read.
        lanes: lanes of all partitions together; per partition when they are strict.
        tasks: most shares.
        is_strict: lanes belong to partitions.
    """
    ranges = [part for part in ranges if part.length > 0]
    total = sum(part.length for part in ranges)
    if not ranges:
        return []
    count = 1 if total <= _SMALL else max(1, min(tasks, len(ranges)))
    bins: list[list[OffsetRange]] = [[] for _ in range(count)]
    sizes = [0] * count
    for part in sorted(ranges, key=lambda part: (-part.length, part.partition)):
        smallest = sizes.index(min(sizes))
        bins[smallest].append(part)
        sizes[smallest] += part.length
    shares = []
    for parts, size in zip(bins, sizes, strict=True):
        own = lanes * len(parts) if is_strict else max(1, round(lanes * size / total))
        shares.append(TaskSpec(route, tuple(sorted(parts, key=lambda part: part.partition)), own))
    return shares
