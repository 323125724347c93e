"""Assignment: the partitions that the group gives and takes. Called inside reads, on the member's thread."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from laneway.errors import DataLossError
from laneway.events import OffsetsCommitted, PartitionsAssigned, PartitionsRevoked
from laneway.kafka import BrokerAbsentError
from laneway.lanes import CLEAN, decode_finished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from laneway.engines.direct._offsets import Offsets
    from laneway.engines.direct._recovery import Recovery
    from laneway.engines.direct._retries import Retries
    from laneway.engines.direct._station import Station
    from laneway.events import Event
    from laneway.kafka import Committed, Membership, Place

__all__ = ["Assignment"]

_ANSWER = 5.0  # seconds to wait for the coordinator at a time
_PATIENCE = 60.0  # seconds in all
_LOOK = 0.002  # seconds between looks at what is being finished


class Assignment:
    """Sees to it that a partition has one owner: begins where the last one ended, ends where the next one begins.

    Args:
        stations: topic, of retries too, to the stations that read it.
        retries: source to what reads its retry topics.
        offsets: what may be committed.
        recovery: looks for copies that a killed process has left.
        start: topic to where a group begins that has committed nothing: ``earliest`` or ``latest``.
        skip_lost: go on when records were deleted before they were read.
        budget: seconds that giving partitions back may take.
        tell: told of events.
        note: told in words what is unusual.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        stations: Mapping[str, list[Station]],
        *,
        retries: Mapping[str, Retries],
        offsets: Offsets,
        recovery: Recovery,
        start: Mapping[str, str],
        skip_lost: bool,
        budget: float,
        tell: Callable[[Event], None],
        note: Callable[[str], None],
    ) -> None:
        self._stations = stations
        self._retries = retries
        self._offsets = offsets
        self._recovery = recovery
        self._start = start
        self._skip_lost = skip_lost
        self._budget = budget
        self._tell = tell
        self._note = note
        self.membership: Membership
        self._settled_topics: set[str] = set()
        """Topics that the group has begun to read before: their new partitions are read from the first record on."""
        self.is_leaving = False
        """Whether nothing is waited for any more when partitions are given back."""
        self._new: list[Place] = []
        self.is_holding = False
        """Whether partitions that come now are not to be read yet."""
        self.is_leaving = False
        """Whether nothing is to be waited for any more when partitions are given back. Any thread may set it."""
        self.has_joined = threading.Event()
        """Set when partitions were assigned for the first time."""
        self.gone = 0
        """Records that were deleted before they could be read."""

    def assigned(self, places: list[Place]) -> Mapping[Place, int]:
        """These partitions are ours from now on; gives where each is read from."""
        everything = self._with_retries(places)
        known = self._known(everything)
        self._settled_topics.update(topic for topic, _ in known)
        starts = {place: self._begin(place, known.get(place)) for place in everything}
        self._settled_topics.update(topic for topic, _ in places)
        for source in dict.fromkeys(topic for topic, _ in places):
            self._open(source, [part for topic, part in places if topic == source], starts, known)
        if self.is_holding:
            self.membership.paused.update(places)
        for topic in dict.fromkeys(topic for topic, _ in places):
            self._tell(PartitionsAssigned(topic, tuple(part for name, part in places if name == topic)))
        self.has_joined.set()
        return starts

    def revoked(self, places: list[Place]) -> None:
        """Finish what was begun of these partitions, commit it, and let go of them."""
        everything = self._with_retries(places)
        deadline = time.monotonic() + (0.0 if self.is_leaving else self._budget)
        for topic, partition in everything:
            for station in self._stations[topic]:
                station.order(_releasing(station, partition))
        while not (self.is_leaving or self._is_drained(everything)) and time.monotonic() < deadline:
            time.sleep(_LOOK)
        self._commit_last(everything, deadline)
        self._let_go(places)
        self._tell_revoked(places, is_lost=False)

    def lost(self, places: list[Place]) -> None:
        """Somebody else has these partitions already: forget them."""
        self._let_go(places)
        self._tell_revoked(places, is_lost=True)

    def committed(self, offsets: Mapping[Place, int], error: str | None) -> None:
        """What became of a commit that was not waited for."""
        if error is not None:
            self._offsets.failed(offsets)
            return
        held: dict[Place, int] = {}
        for place, offset in offsets.items():
            # One that was sent before it may have failed, and then what was sent is forgotten: it is sent again.
            with suppress(KeyError):
                held |= self._offsets.acknowledged({place: offset})
        self.tell_committed(held)

    def out_of_range(self, place: Place) -> None:
        """The offset to be read is not in the log: records were deleted, or the topic was made anew."""
        if not self._offsets.has(place):
            return
        (low, high), at = self.membership.bounds(place), self._offsets.position(place)
        topic, partition = place
        is_anew = high < at
        told = f"the log ends at {high}" if is_anew else f"the log begins at {low}"
        if not self._skip_lost:
            raise DataLossError(
                f"{topic}[{partition}]: offset {at} is gone ({told} now). Records were deleted before they were read, "
                "or the topic was made anew. To go on without them set on_data_loss: continue"
            )
        self._note(f"{topic}[{partition}] is read from offset {low} on, because {told}")
        if is_anew:
            # What is known of the old log, and results that are still to come, say nothing about the new one.
            self._fence(place)
            self._offsets.begin(place, low, None)
            for station in self._stations[topic]:
                station.order(_opening(station, partition))
            self.membership.epoch += 1
        else:
            self.gone += low - at
        self.membership.seek(place, low)

    def troubled(self, place: Place, error: str) -> None:
        """A partition cannot be read for now."""
        self._note(f"waiting for topic {place[0]}: {error}")

    def tell_committed(self, offsets: Mapping[Place, int]) -> None:
        """Tell of offsets that the broker has."""
        for topic in dict.fromkeys(name for name, _ in offsets):
            found = tuple((part, at) for (name, part), at in offsets.items() if name == topic)
            self._tell(OffsetsCommitted(topic, found))

    def commit_now(self, offsets: Mapping[Place, Committed], deadline: float) -> None:
        """Commit and see it done; a coordinator that is away is waited for, but not for ever."""
        while offsets:
            try:
                self.membership.commit(offsets, wait=True)
            except BrokerAbsentError:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.05)
            else:
                self._offsets.sent(offsets)
                self.tell_committed(self._offsets.acknowledged({place: at for place, (at, _) in offsets.items()}))
                return

    def _with_retries(self, places: Iterable[Place]) -> list[Place]:
        found: list[Place] = []
        for source, partition in places:
            beside = self._retries[source].topics if source in self._retries else ()
            found += dict.fromkeys([(source, partition), *((topic, partition) for topic in beside)])
        return found

    def _known(self, places: list[Place]) -> dict[Place, Committed]:
        """What was committed; without it nothing can begin, so it is asked for again and again."""
        deadline = time.monotonic() + _PATIENCE
        while places:
            try:
                return self.membership.known(places, _ANSWER)
            except BrokerAbsentError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        return {}

    def _begin(self, place: Place, known: Committed | None) -> int:
        """Where to read from."""
        if known is not None:
            return known[0]
        # A partition that came later is read from its first record on, or those written before we saw it were lost.
        is_late = self._start.get(place[0]) == "latest" and place[0] not in self._settled_topics
        return self._bounds(place)[1 if is_late else 0]

    def _bounds(self, place: Place) -> tuple[int, int]:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return self.membership.bounds(place)
            except BrokerAbsentError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _open(
        self, source: str, partitions: list[int], starts: Mapping[Place, int], known: Mapping[Place, Committed]
    ) -> None:
        unclean = []
        for partition in partitions:
            places = self._with_retries([(source, partition)])
            for place in places:
                found = known.get(place)
                self._offsets.begin(place, starts[place], found)
                finished = None if found is None else decode_finished(*found)
                # One that tells of more than there is speaks of another log; what is written next would be passed over.
                if finished is not None and finished.end <= self._bounds(place)[1]:
                    self.membership.finished[place] = finished
                for station in self._stations[place[0]]:
                    station.order(_opening(station, partition))
            if not all(known.get(place, (0, CLEAN))[1] == CLEAN for place in places):
                unclean.append(partition)
        held = self._recovery.begin(source, partitions, starts, unclean=unclean)
        is_delayed = source in self._retries and source in self._retries[source].topics
        self.membership.paused.update((source, partition) for partition in (partitions if is_delayed else held))
        self._new += [(source, partition) for partition in partitions]

    def settle_in(self) -> None:
        """Before the first record of new partitions runs: say that we are at work on them."""
        if not self._new:
            return
        places, self._new = [place for place in self._new if self._offsets.has(place)], []
        self.commit_now(self._offsets.marks(self._with_retries(places)), time.monotonic() + _PATIENCE)
        waiting = self._recovery.places
        for place in places:
            if place not in waiting:
                self.own_retries(*place)

    def own_retries(self, source: str, partition: int) -> None:
        """Let the retry topics of a partition be read."""
        retries = self._retries.get(source)
        if retries is not None:
            starts = {(topic, partition): self._offsets.position((topic, partition)) for topic in retries.topics}
            finished = {place: found for place in starts if (found := self.membership.finished.get(place)) is not None}
            retries.own(starts, self.membership.epoch, finished)

    def _is_drained(self, places: Iterable[Place]) -> bool:
        # A station that was told to finish has dropped what was not begun; when it is over, nothing is under way.
        return all(
            station.is_over or station.desk.is_drained(part)
            for topic, part in places
            for station in self._stations[topic]
        )

    def _commit_last(self, places: list[Place], deadline: float) -> None:
        due = self._offsets.due(self.membership.finished, last_of=places)
        self.commit_now(due, max(deadline, time.monotonic() + 1.0))

    def _let_go(self, places: list[Place]) -> None:
        for source, partition in places:
            self._recovery.end(source, partition)
            if source in self._retries:
                self._retries[source].disown(partition, self.membership.epoch + 1)
        for place in self._with_retries(places):
            self._fence(place)
            self._offsets.end(place)
            self.membership.finished.pop(place, None)

    def _fence(self, place: Place) -> None:
        topic, partition = place
        for station in self._stations[topic]:
            station.desk.fence(partition, self.membership.epoch)
            station.order(_forgetting(station, partition))

    def _tell_revoked(self, places: list[Place], *, is_lost: bool) -> None:
        for topic in dict.fromkeys(topic for topic, _ in places):
            partitions = tuple(part for name, part in places if name == topic)
            self._tell(PartitionsRevoked(topic, partitions, is_lost))


def _opening(station: Station, partition: int) -> Callable[[], None]:
    return lambda: station.desk.open(partition)


def _releasing(station: Station, partition: int) -> Callable[[], None]:
    return lambda: station.desk.release(partition)


def _forgetting(station: Station, partition: int) -> Callable[[], None]:
    return lambda: station.desk.forget(partition)
