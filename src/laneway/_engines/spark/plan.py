"""How far each handler has come, and how a batch is cut into tasks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from laneway._core.finished_map import FinishedMap, decode_finished, encode_finished
from laneway.observe import Tally  # noqa: TC001 - the decoder looks it up

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from laneway._kafka import Place

__all__ = ["Part", "Position", "TaskReport", "TaskSpec", "merged", "pack"]

_SMALL = 2_000  # records: below this one task is faster than several, because each task costs about 10 ms


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The finished offsets of a partition: all before *end* except the unfinished ones.

    Example:
        >>> Position(9, (5, 7)).begin
        5
    """

    end: int
    unfinished: tuple[int, ...] = ()
    """In ascending order."""

    @property
    def begin(self) -> int:
        return self.unfinished[0] if self.unfinished else self.end

    @property
    def text(self) -> str:
        """The finished map of a commit: finished offsets after the first unfinished one, as many as fit."""
        return encode_finished(self.begin, self.end, self.unfinished)

    @classmethod
    def of(cls, offset: int, text: str) -> Position:
        """Parse a commit."""
        finished = decode_finished(offset, text)
        return cls(offset) if finished is None else cls(finished.end, tuple(finished.missing(offset)))

    def finished_from(self, start: int) -> FinishedMap | None:
        """The finished offsets from *start* on; None when there are none."""
        ranges = []
        for offset in (*self.unfinished, self.end):
            if offset > start:
                ranges.append((start, offset))
            start = max(start, offset + 1)
        return FinishedMap(ranges) if ranges else None

    def moved(self, reached: int, unfinished: Iterable[int]) -> Position:
        """The position after reading up to *reached* with these unfinished offsets."""
        if reached >= self.end:
            return Position(reached, tuple(unfinished))
        return Position(self.end, (*unfinished, *(offset for offset in self.unfinished if offset >= reached)))


def merged(positions: Iterable[Position]) -> Position:
    """What all of several handlers have finished."""
    found = list(positions)
    if len(found) == 1:
        return found[0]
    end = min(position.end for position in found)
    waiting = {offset for position in found for offset in position.unfinished if offset < end}
    return Position(end, tuple(sorted(waiting)))


@dataclass(frozen=True)
class Part:
    """A partition of the source or of a retry topic in a task."""

    topic: str
    partition: int
    positions: Mapping[str, Position]
    """The position of each handler that reads it."""
    stop: int
    """Where reading ends: the end of the log when the batch was planned, or the first record that is not due."""
    log_end: int
    """The end of its log; for a retry topic."""
    since: int
    """The time since which copies of its records count, in milliseconds since the epoch."""

    @property
    def place(self) -> Place:
        return (self.topic, self.partition)

    @cached_property
    def position(self) -> Position:
        """What all handlers have finished."""
        return merged(self.positions.values())

    @cached_property
    def length(self) -> int:
        return max(0, self.stop - self.position.begin)


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task: some partitions of the source and of its retry topics, for all handlers."""

    parts: tuple[Part, ...]
    lanes: Mapping[str, int]
    """The number of lanes of each handler."""
    is_recovering: bool = False
    """Whether a killed run may have handled some of the records."""
    batch: int = 0
    topic_id: str = ""
    """The id of the source topic."""


class TaskReport(msgspec.Struct, frozen=True):
    """The row of a task: its positions and counts."""

    batch: int
    attempt: int
    """Spark's attempt number; later attempts have higher numbers."""
    source: str
    topic_id: str
    """The id of the source topic; empty when unknown."""
    positions: list[tuple[str, str, int, Position]]
    since: list[tuple[str, int, int]]
    """Topic, partition, and the time since which copies count."""
    tallies: dict[int, Tally]
    """The counts of each handler, by the number under which they were sent during the task."""

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> TaskReport:
        return msgspec.msgpack.decode(data, type=cls)


def pack(parts: Iterable[Part], *, tasks: int) -> list[tuple[Sequence[Part], float]]:
    """Pack partitions into at most *tasks* shares of about equal length; each with its fraction of the whole.

    Partitions with the same number stay together. The longest goes first into the emptiest share.
    """
    by_number: dict[int, list[Part]] = {}
    for part in parts:
        by_number.setdefault(part.partition, []).append(part)
    lengths = {number: sum(part.length for part in found) for number, found in by_number.items()}
    lengths = {number: length for number, length in lengths.items() if length}
    total = sum(lengths.values())
    if not total:
        return []
    count = 1 if total <= _SMALL else max(1, min(tasks, len(lengths)))
    bins: list[list[int]] = [[] for _ in range(count)]
    sizes = [0] * count
    for number in sorted(lengths, key=lambda number: (-lengths[number], number)):
        smallest = sizes.index(min(sizes))
        bins[smallest].append(number)
        sizes[smallest] += lengths[number]
    return [
        ([part for number in sorted(numbers) for part in by_number[number]], size / total)
        for numbers, size in zip(bins, sizes, strict=True)
    ]
