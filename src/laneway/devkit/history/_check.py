"""The checker: lost, duplicate, inverted and overlapping calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from laneway.devkit.history._recorder import Event

__all__ = ["Position", "Verdict", "check", "most_at_once"]

Position = tuple[int, int]
"""Partition and offset of a record."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the checker."""

    calls: int
    records: int
    lost: int
    """Expected records without a call and without a parked copy."""
    duplicates: int
    """Repeated calls that were no retries, and repeated parked copies."""
    inversions: int
    """Calls of a key, without repeats, that started after a call of a later record of the key."""
    overlaps: int
    """Calls of a key that started before the previous one had ended."""
    most_at_once: int
    """The largest number of concurrent calls."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, repeated or out of order."""
        return not (self.lost or self.duplicates or self.inversions or self.overlaps)


def check(
    events: Iterable[Event],
    expected: Mapping[int, int] | None = None,
    *,
    failed: Iterable[Event] | None = None,
    parked: Iterable[Position] = (),
) -> Verdict:
    """Check a history.

    Args:
        events: what the handlers wrote.
        expected: how many records each partition has, counted from offset 0; None leaves loss unchecked.
        failed: calls that raised, when the handlers wrote them apart. Then `events` are those that succeeded: only
            they keep a record from being lost, and any call after one of them is a duplicate.
        parked: where the copies on the error topic came from, a place for each copy.
    """
    succeeded = list(events)
    failures = list(failed or ())
    calls = sorted([*succeeded, *failures], key=lambda event: event.start)
    repeats = _repeats(calls, frozenset(map(id, succeeded)) if failed is not None else frozenset())
    copies = list(parked)
    ended = {(event.partition, event.offset) for event in succeeded} | set(copies)
    lost = sum(
        1
        for partition, count in (expected or {}).items()
        for offset in range(count)
        if (partition, offset) not in ended
    )
    duplicates = len(repeats) + len(copies) - len(set(copies))
    inversions, overlaps = _disorder(calls, repeats)
    records = len({(event.partition, event.offset) for event in calls})
    most = most_at_once((call.start, call.end) for call in calls)
    return Verdict(len(calls), records, lost, duplicates, inversions, overlaps, most)


def _repeats(calls: list[Event], successes: frozenset[int]) -> frozenset[int]:
    """Calls that should not have been: of an attempt that was made before, or of a record that had succeeded."""
    highest: dict[Position, int] = {}
    done: set[Position] = set()
    repeats = []
    for event in calls:
        place = (event.partition, event.offset)
        # A retry has a higher attempt; the same attempt again is a repeat.
        if event.attempt <= highest.get(place, 0) or place in done:
            repeats.append(id(event))
        highest[place] = max(event.attempt, highest.get(place, 0))
        if id(event) in successes:
            done.add(place)
    return frozenset(repeats)


def _disorder(calls: list[Event], repeats: frozenset[int]) -> tuple[int, int]:
    """Inversions and overlaps, key by key."""
    by_key: dict[int, list[Event]] = {}
    for event in calls:
        if event.key:
            by_key.setdefault(event.key, []).append(event)
    inversions = overlaps = 0
    for line in by_key.values():
        highest: dict[int, int] = {}
        repeated: set[Position] = set()
        end = 0.0
        for event in line:
            overlaps += event.start < end
            end = max(end, event.end)
            place = (event.partition, event.offset)
            if id(event) in repeats:
                # What follows a repeat, its retries too, is repeated with it: counted once, as a duplicate.
                repeated.add(place)
            latest = highest.get(event.partition, -1)
            inversions += event.offset < latest and place not in repeated
            highest[event.partition] = max(event.offset, latest)
    return inversions, overlaps


def most_at_once(calls: Iterable[tuple[float, float]]) -> int:
    """The largest number of concurrent calls, each given by its begin and end."""
    edges = sorted(edge for begin, end in calls for edge in ((begin, 1), (end, -1)))
    running = most = 0
    for _time, change in edges:
        running += change
        most = max(most, running)
    return most
