"""The checker: lost, duplicate, inverted and overlapping calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from laneway.history._recorder import Event

__all__ = ["Verdict", "check"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checker found."""

    calls: int
    records: int
    lost: int
    """Expected records without a call."""
    duplicates: int
    """Records called successfully more than once."""
    inversions: int
    """First calls of a key that began after the first call of a later record of that key."""
    overlaps: int
    """Calls of a key that began before the one before had ended."""
    most_at_once: int
    """The most calls that ran at the same moment."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, repeated or out of order."""
        return not (self.lost or self.duplicates or self.inversions or self.overlaps)


def check(events: Iterable[Event], expected: Mapping[int, int] | None = None) -> Verdict:
    """Check a history.

    Args:
        events: what the handlers wrote.
        expected: how many records each partition has, counted from offset 0; None leaves loss unchecked.
    """
    calls = sorted(events, key=lambda event: event.start)
    first: dict[tuple[int, int], Event] = {}
    duplicates = 0
    by_key: dict[int, list[Event]] = {}
    for event in calls:
        place = (event.partition, event.offset)
        seen = first.setdefault(place, event)
        # A retry has a higher attempt; the same attempt again is a repeat.
        if seen is not event and event.attempt <= seen.attempt:
            duplicates += 1
        if event.key:
            by_key.setdefault(event.key, []).append(event)
    lost = sum(
        1
        for partition, count in (expected or {}).items()
        for offset in range(count)
        if (partition, offset) not in first
    )
    inversions = overlaps = 0
    for line in by_key.values():
        highest: dict[int, int] = {}
        end = 0.0
        for event in line:
            overlaps += event.start < end
            end = max(end, event.end)
            is_first = first[event.partition, event.offset] is event
            inversions += is_first and event.offset < highest.get(event.partition, -1)
            highest[event.partition] = max(event.offset, highest.get(event.partition, -1))
    return Verdict(len(calls), len(first), lost, duplicates, inversions, overlaps, _most_at_once(calls))


def _most_at_once(calls: list[Event]) -> int:
    edges = sorted([(event.start, 1) for event in calls] + [(event.end, -1) for event in calls])
    running = most = 0
    for _time, change in edges:
        running += change
        most = max(most, running)
    return most
