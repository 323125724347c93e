"""How far each handler has come, and how a batch is cut into tasks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from laneway._core.finished_map import decode_finished, encode_finished
from laneway.observe import Tally  # noqa: TC001 - the decoder looks it up

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laneway._kafka import OffsetRange

__all__ = ["Position", "TaskReport", "TaskSpec", "merged", "pack"]

_SMALL = 2_000  # records: below this one task is faster than several, because each task costs about 10 ms


class Position(msgspec.Struct, frozen=True, array_like=True):
    """What is finished of a partition: every offset before *end*, but for the unfinished ones.

    Example:
        >>> Position(9, (5, 7)).begin
        5
    """

    end: int
    unfinished: tuple[int, ...] = ()
    """Ascending."""

    @property
    def begin(self) -> int:
        """The lowest offset that is not finished."""
        return self.unfinished[0] if self.unfinished else self.end

    @property
    def text(self) -> str:
        """The finished offsets past the first unfinished one, for the metadata of a commit; as many as fit."""
        return encode_finished(self.begin, self.end, self.unfinished)

    @classmethod
    def of(cls, offset: int, text: str) -> Position:
        """What a commit says."""
        finished = decode_finished(offset, text)
        return cls(offset) if finished is None else cls(finished.end, tuple(finished.missing(offset)))

    def moved(self, reached: int, unfinished: Iterable[int]) -> Position:
        """After reading on from the begin up to *reached*, when these offsets before it are unfinished."""
        if reached >= self.end:
            return Position(reached, tuple(unfinished))
        return Position(self.end, (*unfinished, *(offset for offset in self.unfinished if offset >= reached)))


def merged(positions: Iterable[Position]) -> Position:
    """What several handlers have finished together."""
    found = list(positions)
    if len(found) == 1:
        return found[0]
    end = min(position.end for position in found)
    waiting = {offset for position in found for offset in position.unfinished if offset < end}
    return Position(end, tuple(sorted(waiting)))


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
    batch: int = 0
    topic_id: str = ""
    """Of the source."""
    positions: tuple[tuple[int, Position], ...] = ()
    """Partition to what the handler has finished of it already."""
    others: tuple[tuple[int, Position], ...] = ()
    """Partition to what those handlers of the topic have finished that take no part in this batch."""

    @property
    def length(self) -> int:
        """Offsets in all."""
        return sum(part.length for part in self.ranges)


class TaskReport(msgspec.Struct, frozen=True):
    """The row of a task: how far it has come, and its counts."""

    batch: int
    attempt: int
    """Spark's number of the attempt; later ones have higher numbers."""
    route: str
    topic: str
    topic_id: str
    """Of the source; empty when the topic is another one, or it is not known."""
    positions: dict[int, Position]
    others: dict[int, Position]
    since: dict[int, int]
    """Partition to the time from which on copies count."""
    tally: Tally

    def encode(self) -> bytes:
        """As bytes."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> TaskReport:
        """From bytes."""
        return msgspec.msgpack.decode(data, type=cls)


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
