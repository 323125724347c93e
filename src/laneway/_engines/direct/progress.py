"""Progress: since when each partition of a crew stands where it stands."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from laneway._declare.health import Stall, lasting
from laneway._engines.direct.stalls import Cause, explain
from laneway._runtime.partition import Pause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from laneway._engines.direct.crew import Crew
    from laneway._engines.direct.stalls import Heard, Spot
    from laneway._kafka import Place
    from laneway._runtime.handler_worker import HandlerWorker

__all__ = ["Progress"]

_COMMITS = 10.0  # seconds; a commit is due every second
_FULL = "the partition is not read on before it is finished, because commits can tell of no more records past it"
_PATIENCE = 0.3  # seconds that a station may take to answer; an event loop that does not is blocked


class _Mark(NamedTuple):
    """Where a partition stands."""

    offset: int
    """The lowest that is not finished."""
    kind: str
    """``begun`` when it was read, ``unread`` when it is only in Kafka, ``idle`` when nothing is to be done."""
    since: float
    """Since when both are what they are."""
    behind: float | None
    """Since when more is finished than the brokers know of."""
    committed: int


class Progress:
    """Remembers the lowest unfinished offset of each partition, and looks up what holds those up that stand still.

    To remember costs no more than a commit, once a second. What holds a partition up is looked for only when it has
    stood still for a while, and then by going once through what its stations hold.

    Args:
        crew: whose partitions.
        heard: what events have told.
        is_paused: whether nothing is to be read anyway.
    """

    def __init__(self, crew: Crew, heard: Heard, is_paused: Callable[[], bool]) -> None:
        self._crew = crew
        self._heard = heard
        self._is_paused = is_paused
        self._marks: dict[Place, _Mark] = {}
        self._lock = threading.Lock()
        self._delays = {
            step.spec.topic.name: step.spec.delay.total_seconds()
            for station in crew.stations
            for step in station.processor.steps
            if step.spec.delay
        }

    def look(self) -> None:
        """See where the partitions stand; those that are not ours any more are forgotten."""
        now, found = time.monotonic(), self._crew.worker_loop.status().partitions
        with self._lock:
            kinds = {place: self._kind(place, view.low, view.delivered) for place, view in found.items()}
            self._marks = {place: self._mark(place, found[place].low, kind, now) for place, kind in kinds.items()}

    def forget(self, partitions: set[int]) -> None:
        """These came or went: how long they stood still before says nothing."""
        with self._lock:
            self._marks = {place: mark for place, mark in self._marks.items() if place[1] not in partitions}
            for place in [place for place in self._heard.committed if place[1] in partitions]:
                self._heard.committed.pop(place, None)

    def lag(self) -> dict[Place, int]:
        """How many records of our partitions are not finished, in Kafka and here."""
        ends, found = self._crew.monitor.view.ends, self._crew.worker_loop.status().partitions
        return {place: max(0, ends[place] - view.low) for place, view in found.items() if place in ends}

    def uncommitted(self) -> dict[Place, float]:
        """Partitions where records are finished and the brokers have not been told, and for how many seconds."""
        self.look()
        now = time.monotonic()
        late = {place: now - mark.behind for place, mark in self._marks.items() if mark.behind is not None}
        return {place: seconds for place, seconds in late.items() if seconds > _COMMITS}

    def stalls(self, after: float) -> list[Stall]:
        """Partitions that have stood still for so many seconds although there is something to do, and why."""
        self.look()
        now, ends = time.monotonic(), self._crew.monitor.view.ends
        still = {place: mark for place, mark in self._marks.items() if now - mark.since >= after}
        found = self._held_up({place: mark for place, mark in still.items() if mark.kind == "begun"}, now)
        for place, mark in still.items():
            if mark.kind == "unread":
                cause = self._unread(place, ends.get(place, 0) - mark.offset, now - mark.since, after)
                found.append(_stall(place, mark, cause, now, ""))
        return sorted(found, key=lambda stall: (-stall.age, stall.topic, stall.partition))

    def _mark(self, place: Place, offset: int, kind: str, now: float) -> _Mark:
        before = self._marks.get(place)
        if before is None:
            return _Mark(offset, kind, now, None, self._heard.committed.get(place, offset))
        committed = self._heard.committed.get(place, before.committed)
        since = before.since if (before.offset, before.kind) == (offset, kind) else now
        if offset <= committed:
            behind = None
        else:
            behind = before.behind if before.behind is not None and committed == before.committed else now
        return _Mark(offset, kind, since, behind, committed)

    def _kind(self, place: Place, offset: int, delivered: int) -> str:
        if offset < delivered:
            return "begun"
        is_waiting = self._crew.monitor.view.ends.get(place, 0) > offset and not self._is_paused()
        return "unread" if is_waiting else "idle"

    def _held_up(self, begun: Mapping[Place, _Mark], now: float) -> list[Stall]:
        """Partitions of which something was read and is not finished."""
        found, patience = [], _PATIENCE
        for station in self._crew.stations if begun else ():
            spots = {
                (topic, partition, mark.offset): mark for (topic, partition), mark in begun.items()
                if topic in station.topics and self._is_at(station, (topic, partition), mark.offset)
            }  # fmt: skip
            if not spots:
                continue
            causes, is_sure = self._causes(station, list(spots), patience)
            patience = patience if is_sure else 0.0
            for spot, mark in spots.items():
                cause, place = causes[spot], spot[:2]
                if not is_sure and station.spec.is_async:
                    words = f"the event loop does not answer: something blocks it; {cause.words}"
                    cause = Cause("loop", words, cause.record)
                if Pause.METADATA in self._paused(place):
                    cause = cause._replace(words=f"{cause.words}; {_FULL}")
                found.append(_stall(place, mark, cause, now, station.spec.name))
        return found

    def _causes(self, station: HandlerWorker, spots: list[Spot], patience: float) -> tuple[dict[Spot, Cause], bool]:
        timeout = self._crew.cluster.producer.timeout.total_seconds()
        try:
            return station.look(lambda: explain(station, spots, self._heard, timeout), patience)
        except RuntimeError:  # it changed under the eyes of one who could not make it stand still
            return dict.fromkeys(spots, Cause("unknown", "it is being worked on")), True

    @staticmethod
    def _is_at(station: HandlerWorker, place: Place, offset: int) -> bool:
        """Whether it is this handler that has not finished an offset; another one of the topic may be."""
        end, unfinished = station.progress(place, offset)
        return end <= offset or offset in unfinished

    def _unread(self, place: Place, count: int, seconds: float, after: float) -> Cause:
        """Why nothing is read of a partition that has something."""
        wait = f"{count:,} record{'s wait' if count > 1 else ' waits'} to be read"
        delay = self._delays.get(place[0])
        if delay is not None and seconds < delay + after:
            return Cause("delay", f"{wait}; each of them when it is {lasting(delay)} old")
        reasons = self._paused(place)
        words = next((reason.value for reason in Pause if reason in reasons), "")
        return Cause("unread", f"{wait}; {words or 'the brokers give none'}")

    def _paused(self, place: Place) -> AbstractSet[Pause]:
        partition = self._crew.worker_loop.partitions.get(place)
        return frozenset() if partition is None else partition.paused.copy()


def _stall(place: Place, mark: _Mark, cause: Cause, now: float, handler: str) -> Stall:
    return Stall(
        cause.code,
        *place,
        mark.offset,
        timedelta(seconds=now - mark.since),
        cause.words,
        handler,
        None if cause.record is None else cause.record.key,
        has_key=cause.record is not None,
    )
