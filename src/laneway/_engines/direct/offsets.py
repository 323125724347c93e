"""Offsets: up to where each partition may be committed, and what is finished past that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from laneway._core.commit_markers import UNDER_WAY, since_of, under_way
from laneway._core.finished_map import CLEAN, encode_finished, readable_to, with_topic_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping

    from laneway._core.finished_map import FinishedMap
    from laneway._engines.direct.station import Station
    from laneway._kafka import OffsetAndMetadata, Place

__all__ = ["Offsets", "marker_at"]

_AHEAD = 1_000  # records that one read may bring after it was found that a partition may be read on


class Offsets:
    """What may be committed of the partitions that are ours, over all handlers that read them.

    The member's thread owns it. Threads that read put their marks into `delivered` and `reached`, which is one
    operation of the interpreter each.

    Args:
        stations: topic to the stations that read it.
        reached: up to where partitions were read without a record to show for it; kept by those who read.
    """

    def __init__(self, stations: Mapping[str, list[Station]], reached: dict[Place, int]) -> None:
        self._stations = stations
        self._spanned = 0
        self._starts: dict[Place, int] = {}
        self._words: dict[Place, str] = {}
        self._ids: dict[Place, str] = {}
        """The ids of their topics: every commit says of which topic it is."""
        self._committed: dict[Place, OffsetAndMetadata] = {}
        self._sent: dict[Place, OffsetAndMetadata] = {}
        self.stops: dict[Place, int] = {}
        """Up to where a partition may be read before `may_read_on` has to be asked again."""
        self.delivered: dict[Place, int] = {}
        """The offset after the last record that was put into the intakes."""
        self.reached = reached
        self.full: set[Place] = set()
        """Partitions that are not read on, because commits could not tell of all that might be finished then."""

    @property
    def spanned(self) -> int:
        """How many offsets of the sources and their retry topics were passed, with or without a record."""
        now = {place: self.position(place) for place in self.places}
        return self._spanned + sum(at - self._starts.get(place, at) for place, at in now.items())

    @property
    def places(self) -> Iterable[Place]:
        """The partitions that are ours."""
        return tuple(self._starts)

    def begin(
        self, place: Place, start: int, known: OffsetAndMetadata | None, word: str = "", *, topic_id: str = ""
    ) -> None:
        """A partition is ours, and is read from an offset on; commits that have nothing else to tell say *word*."""
        self._starts[place] = self.delivered[place] = start
        self._words[place] = word
        self.stops[place] = start
        self.full.discard(place)
        self._ids[place] = topic_id
        self.reached.pop(place, None)
        if known is not None:
            self._committed[place] = self._sent[place] = known

    def end(self, place: Place) -> None:
        """A partition is ours no longer."""
        if place in self._starts:
            self._spanned += self.position(place) - self._starts[place]
        for kept in (self._starts, self._words, self._ids, self._committed, self._sent, self.stops):
            kept.pop(place, None)
        for kept in (self.delivered, self.reached):
            kept.pop(place, None)
        self.full.discard(place)

    def with_times(self, starts: Mapping[Place, int]) -> dict[Place, tuple[int, int]]:
        """Beside the offset of each partition that is ours from when on copies count, milliseconds since the epoch."""
        return {place: (at, since_of(self._words[place]) or 0) for place, at in starts.items() if place in self._words}

    def has(self, place: Place) -> bool:
        """Whether a partition is ours."""
        return place in self._starts

    def id_of(self, place: Place) -> str:
        """The id of the topic whose partition this is; empty when it is not known."""
        return self._ids.get(place, "")

    def committed(self, place: Place) -> int:
        """The offset that the broker has, or where the partition was begun."""
        return self._committed.get(place, (self._starts[place], ""))[0]

    def position(self, place: Place) -> int:
        """The offset that is read next, as far as it is known."""
        return max(self.delivered[place], self.reached.get(place, 0))

    def progress(self, place: Place) -> tuple[int, int, list[int]]:
        """What may be committed, up to where it was read, and the unfinished offsets between."""
        reached, delivered = self.reached.get(place, 0), self.delivered[place]
        topic, partition = place
        start = self._starts[place]
        found = [station.progress(partition, start) for station in self._stations[topic]]
        end = min([reach for reach, _ in found])
        unfinished = found[0][1] if len(found) == 1 else sorted({offset for _, rest in found for offset in rest})
        unfinished = [offset for offset in unfinished if offset < end] if len(found) > 1 else unfinished
        if end >= delivered:
            # All that was put in has been taken out: what lies between it and the mark holds no record for us.
            end = max(end, reached)
        return (unfinished[0] if unfinished else end), end, unfinished

    def may_read_on(self, place: Place, before: FinishedMap | None) -> bool:
        """Whether commits can tell of all that is finished, in whatever order, when more of a partition is read.

        Args:
            place: the partition.
            before: what owners before us had finished. Up to its end everything is read, however much that is: as long
                as it is not read, nothing of it can be finished.
        """
        if place not in self._starts:
            return True
        position = self.position(place)
        if position >= self.stops[place]:
            stop = readable_to(*_with(self.progress(place), before)) - _AHEAD
            self.stops[place] = stop if before is None else max(stop, before.end)
        may = position < self.stops[place]
        (self.full.discard if may else self.full.add)(place)
        return may

    def due(
        self, earlier: MutableMapping[Place, FinishedMap], last_of: Iterable[Place] = ()
    ) -> dict[Place, OffsetAndMetadata]:
        """What is to be committed because it has changed.

        Args:
            earlier: what owners before us had finished; left out from when all that it tells of is in our own books.
            last_of: only these partitions, for the last time: where nothing is under way, the commit says so.
        """
        last = tuple(last_of)
        changed: dict[Place, OffsetAndMetadata] = {}
        for place in last or self.places:
            if place not in self._starts:
                continue
            found, before = self.progress(place), earlier.get(place)
            if before is not None and before.end <= found[1]:
                del earlier[place]
            offset, end, unfinished = _with(found, before)
            text = encode_finished(offset, end, unfinished)
            # The time of the marker stands behind the map, too.
            text = text and text + self._words[place][len(self._words[place].partition("~")[0]) :]
            text = text or (CLEAN if last and not unfinished else self._words[place])
            said = (offset, with_topic_id(text, self._ids[place]))
            # The last time it must have arrived, too: nobody is here to send again what is only on its way.
            if said != self._sent.get(place) or (last and said != self._committed.get(place)):
                changed[place] = said
        return changed

    def marks(self, places: Iterable[Place]) -> dict[Place, OffsetAndMetadata]:
        """What is to be committed before records of these run: that something may be under way from now on.

        Also where nothing was committed yet: an owner that is killed before its first commit may have left copies. And
        after a reset: the time tells copies that are made from now on from those that were made before.
        """
        ours = [place for place in places if place in self._starts]
        known = {place: self._committed.get(place, (self._starts[place], CLEAN)) for place in ours}
        return {
            place: (offset, with_topic_id(self._words[place], self._ids[place]))
            for place, (offset, text) in known.items()
            if since_of(text) is None
        }

    def sent(self, offsets: Mapping[Place, OffsetAndMetadata]) -> None:
        """These are on their way to the broker."""
        self._sent |= offsets

    def acknowledged(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        """The broker has these; gives those of partitions that are still ours."""
        ours = {place: offset for place, offset in offsets.items() if place in self._starts}
        for place in ours:
            if place in self._sent:  # a later commit may have failed meanwhile
                self._committed[place] = self._sent[place]
        return ours

    def failed(self, offsets: Iterable[Place]) -> None:
        """These did not get there, and are to be sent again."""
        for place in offsets:
            self._sent.pop(place, None)


def _with(found: tuple[int, int, list[int]], before: FinishedMap | None) -> tuple[int, int, list[int]]:
    """What may be committed, the end and what is unfinished between, with what owners before us had finished."""
    _, end, unfinished = found
    if before is None or before.end <= end:
        return found
    unfinished = [*unfinished, *before.missing(end)]
    return (unfinished[0] if unfinished else before.end), before.end, unfinished


def marker_at(found: OffsetAndMetadata | None, word: str = UNDER_WAY) -> str:
    """The marker that the commits of an owner carry which begins now.

    Args:
        found: the commit that it begins at.
        word: what stands before the time.
    """
    return under_way("" if found is None else found[1], int(time.time() * 1000), word)
