"""Progress: since when each partition stands where it stands, and why."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from laneway._clock import SystemClock
from laneway._declare.health import Stall, lasting
from laneway._runtime.health.findings import cause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laneway._clock import Clock
    from laneway._kafka import Place
    from laneway._runtime.health.snapshot import HealthSource, PartitionStatus, Snapshot

__all__ = ["Progress"]

_SYSTEM = SystemClock()
_COMMITS = 10.0  # seconds; a commit is due every second
_FULL = "the partition is paused until it is finished, because the commit metadata is full"


class _Mark(NamedTuple):
    """A partition's progress at the last look."""

    offset: int
    """The lowest unfinished offset."""
    kind: str
    """``begun`` if it was read, ``unread`` if it is only in Kafka, ``idle`` if there is none."""
    epoch: int
    since: float
    """Since when offset, kind and epoch are unchanged."""
    behind: float | None
    """Since when finished offsets are not committed."""
    committed: int


class Progress:
    """Remembers the lowest unfinished offset of each partition, and finds the cause when it does not advance.

    The cause is looked up only for partitions without progress. Any thread may call it.
    """

    def __init__(self, watched: HealthSource, clock: Clock = _SYSTEM) -> None:
        self._clock = clock
        self.watched = watched
        self._marks: dict[Place, _Mark] = {}
        self._lock = threading.Lock()

    def look(self, *, is_paused: bool) -> Snapshot:
        """Take a snapshot and update the marks; partitions that are not read here any more are dropped.

        While reading is paused, records that are only in Kafka are no stall.
        """
        now, seen = self._clock.monotonic(), self.watched.look()
        ends = seen.brokers.ends
        with self._lock:
            self._marks = {
                place: self._mark(place, found, _kind(found, ends.get(place, 0), is_paused=is_paused), now)
                for place, found in seen.partitions.items()
            }
        return seen

    def uncommitted(self) -> dict[Place, float]:
        """Partitions with finished offsets that are not committed, and for how many seconds."""
        now = self._clock.monotonic()
        late = {place: now - mark.behind for place, mark in self._marks.items() if mark.behind is not None}
        return {place: seconds for place, seconds in late.items() if seconds > _COMMITS}

    def stalls(self, seen: Snapshot, after: float) -> list[Stall]:
        """Partitions with work but without progress for this many seconds, and the cause."""
        now, ends = self._clock.monotonic(), seen.brokers.ends
        still = {place: mark for place, mark in self._marks.items() if now - mark.since >= after}
        found = self._begun(seen, {place: mark for place, mark in still.items() if mark.kind == "begun"}, now)
        for place, mark in still.items():
            if mark.kind == "unread":
                code, text = _unread(seen, place, ends.get(place, 0) - mark.offset, now - mark.since, after)
                age = timedelta(seconds=now - mark.since)
                found.append(Stall(code, *place, mark.offset, age, text))
        return sorted(found, key=lambda stall: (-stall.age, stall.topic, stall.partition))

    def _mark(self, place: Place, found: PartitionStatus, kind: str, now: float) -> _Mark:
        before = self._marks.get(place)
        if before is None or before.epoch != found.epoch:
            return _Mark(found.low, kind, found.epoch, now, None, found.committed)
        since = before.since if (before.offset, before.kind) == (found.low, kind) else now
        if found.low <= found.committed:
            behind = None
        else:
            is_same = before.behind is not None and found.committed == before.committed
            behind = before.behind if is_same else now
        return _Mark(found.low, kind, found.epoch, since, behind, found.committed)

    def _begun(self, seen: Snapshot, begun: Mapping[Place, _Mark], now: float) -> list[Stall]:
        """Stalls of records that were read."""
        if not begun:
            return []
        spots = [(*place, mark.offset) for place, mark in begun.items()]
        stalls = []
        for spot, handler, location in self.watched.locate(spots):
            place, offset = spot[:2], spot[2]
            code, text = cause(location, handler)
            if seen.partitions[place].is_full:
                text = f"{text}; {_FULL}"
            age = timedelta(seconds=now - begun[place].since)
            stalls.append(
                Stall(code, *place, offset, age, text, handler.handler, location.key, has_key=location.has_key)
            )
        return stalls


def _kind(found: PartitionStatus, end: int, *, is_paused: bool) -> str:
    if found.low < found.delivered:
        return "begun"
    return "unread" if end > found.low and not is_paused else "idle"


def _unread(seen: Snapshot, place: Place, count: int, seconds: float, after: float) -> tuple[str, str]:
    """Why no record of a partition is read."""
    wait = f"{count:,} record{'s' if count > 1 else ''} to read"
    delay = seen.delays.get(place[0])
    if delay is not None and seconds < delay + after:
        return "delay", f"{wait}; each is handled when it is {lasting(delay)} old"
    return "unread", f"{wait}; {seen.partitions[place].waits or 'the brokers return none'}"
