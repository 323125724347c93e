"""Holds the notes of a run against the contents of its topic."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from notes import Notes
    from topics import Contents

__all__ = ["judge", "latency"]


def judge(notes: Notes, contents: Contents) -> dict[str, Any]:
    """Find what was handled, in which time, and what should not be there.

    Inversions are calls of a key that began after a call of a later record of that key; overlaps are calls of a key
    that began before the one before had ended. Of a record called twice only the first call counts for both.
    """
    counted, first, last = notes.counted
    if counted:
        # Single records were not recorded, so their order is unknown.
        return {
            "handled": counted,
            "seconds": last - first,
            "duplicates": max(0, counted - contents.records),
            "inversions": None,
            "overlaps": None,
        }
    handled = duplicates = inversions = overlaps = 0
    earliest, latest = float("inf"), 0.0
    for partition, offsets in contents.by_key:
        base = partition * notes.stride
        called = [place for place in (base + offset for offset in offsets) if notes.calls[place]]
        if not called:
            continue
        handled += len(called)
        duplicates += sum(notes.calls[place] - 1 for place in called)
        starts, ends = [notes.starts[place] for place in called], [notes.ends[place] for place in called]
        earliest, latest = min(earliest, *starts), max(latest, *ends)
        inversions += _inversions(starts)
        overlaps += _overlaps(starts, ends)
    return {
        "handled": handled,
        "seconds": max(0.0, latest - earliest),
        "duplicates": duplicates,
        "inversions": inversions,
        "overlaps": overlaps,
    }


def _inversions(starts: list[float]) -> int:
    """How many calls, given in the order of their offsets, began after one behind them."""
    found, soonest = 0, float("inf")
    for start in reversed(starts):
        found += start > soonest
        soonest = min(soonest, start)
    return found


def _overlaps(starts: list[float], ends: list[float]) -> int:
    if all(end <= start for end, (_, start) in zip(ends, pairwise(starts), strict=False)):
        return 0
    found, busy_until = 0, 0.0
    for start, end in sorted(zip(starts, ends, strict=True)):
        found += start < busy_until
        busy_until = max(busy_until, end)
    return found


def latency(notes: Notes, contents: Contents, since: float, clock: float) -> dict[str, float | None]:
    """Milliseconds from a record's timestamp to the end of its call, of records produced after *since*.

    Args:
        notes: of the run.
        contents: of its topic.
        since: seconds since the epoch.
        clock: what to add to a time of the notes to get seconds since the epoch.
    """
    times = sorted(
        notes.ends[partition * notes.stride + offset] + clock - produced
        for partition, line in enumerate(contents.times)
        for offset, produced in enumerate(line)
        if produced >= since and notes.calls[partition * notes.stride + offset]
    )
    return {f"p{part}_ms": _rank(times, part) for part in (50, 99)}


def _rank(times: list[float], part: int) -> float | None:
    return round(times[min(len(times) - 1, len(times) * part // 100)] * 1000, 1) if times else None
