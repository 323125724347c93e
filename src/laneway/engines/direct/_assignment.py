"""Assignment: the partitions that the group gives and takes. Called inside reads, on the member's thread."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from laneway.engines.direct._offsets import marker_at
from laneway.errors import DataLossError
from laneway.events import OffsetsCommitted, PartitionsAssigned, PartitionsRevoked
from laneway.kafka import BrokerAbsentError, NotOwnerError
from laneway.lanes import CLEAN, NEW, UNDER_WAY, began_with, decode_finished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from laneway.engines.direct._commits import Commits
    from laneway.engines.direct._offsets import Offsets
    from laneway.engines.direct._recovery import Recovery
    from laneway.engines.direct._retries import Retries
    from laneway.engines.direct._station import Station
    from laneway.events import Event
    from laneway.kafka import Admin, Committed, Membership, Place

__all__ = ["Assignment"]

T = TypeVar("T")

_ANSWER = 5.0  # seconds to wait for the coordinator at a time
_SHORT = 1.0  # seconds to wait for an answer outside of a callback, where the group counts them; it is asked for again
_LOOK = 0.002  # seconds between looks at what is being finished


class Assignment:
    """Sees to it that a partition has one owner: begins where the last one ended, ends where the next one begins.

    Args:
        stations: topic, of retries too, to the stations that read it.
        retries: source to what reads its retry topics.
        offsets: what may be committed.
        recovery: looks for copies that a killed process has left.
        admin: asks the cluster; to ask the consumer for topics from inside a callback of its own ends the process.
        start: topic to where a group begins that has committed nothing: ``earliest`` or ``latest``.
        skip_lost: go on when records were deleted before they were read.
        budget: seconds that giving partitions back may take.
        patience: seconds that brokers may take to answer when partitions come.
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
        admin: Admin,
        start: Mapping[str, str],
        skip_lost: bool,
        budget: float,
        patience: float,
        tell: Callable[[Event], None],
        note: Callable[[str], None],
    ) -> None:
        self._stations = stations
        self._retries = retries
        self._offsets = offsets
        self._recovery = recovery
        self._admin = admin
        self._start = start
        self._skip_lost = skip_lost
        self._budget = budget
        self._patience = patience
        self._deadline = 0.0
        """When brokers must have answered what has to be known of partitions that came."""
        self._tell = tell
        self._note = note
        self.membership: Membership
        self.commits: Commits
        self._had: set[str] = set()
        """Topics of which we had partitions."""
        self._settled_topics: set[str] = set()
        """Topics that the group has begun to read before: their new partitions are read from the first record on."""
        self._sizes: dict[str, int] = {}
        """Topic to how many partitions it had when the group began to read it, as long as the group is new."""
        self._deleted: set[str] = set()
        """Retry topics that were deleted, while what was read of them is being finished."""
        self._missing: set[str] = set()
        """Topics that are waited for, and said to be."""
        self._new: list[Place] = []
        self.held: set[str] = set()
        """Topics whose partitions are not to be read for now, those that come neither."""
        self.is_leaving = False
        """Whether nothing is to be waited for any more when partitions are given back. Any thread may set it."""
        self.is_expelled = False
        """Whether partitions were taken from us while we were leaving: what was not committed of them is repeated."""
        self.has_joined = threading.Event()
        """Set when partitions were assigned for the first time."""
        self.gone = 0
        """Records that were deleted before they could be read."""

    def assigned(self, places: list[Place]) -> Mapping[Place, int]:
        """These partitions are ours from now on; gives where each is read from."""
        self._deadline = time.monotonic() + self._patience
        everything = self._with_retries(places)
        known = self._known(everything)
        self._settled_topics.update(self._missing & self._had)  # one that was deleted under us is read from its start
        self._settle_topics(places)
        starts = {place: self._begin(place, known.get(place)) for place in everything}
        for source in dict.fromkeys(topic for topic, _ in places):
            self._open(source, [part for topic, part in places if topic == source], starts, known)
        self.membership.paused.update(place for place in places if place[0] in self.held)
        for topic in dict.fromkeys(topic for topic, _ in places):
            self._tell(PartitionsAssigned(topic, tuple(part for name, part in places if name == topic)))
        if not self._missing.isdisjoint(topic for topic, _ in places):
            self._missing.difference_update(topic for topic, _ in places)
            self._note("")
        self._had.update(topic for topic, _ in places)
        self.has_joined.set()
        return starts

    def revoked(self, places: list[Place]) -> None:
        """Finish what was begun of these partitions, commit it, and let go of them."""
        everything = self._with_retries(places)
        deadline = time.monotonic() + self._budget
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
        self.is_expelled |= self.is_leaving
        self._let_go(places)
        self._tell_revoked(places, is_lost=True)

    def hear_commits(self) -> None:
        """Act on what became of commits."""
        for offsets, error in self.commits.answers():
            if error is not None:
                self._offsets.failed(offsets)
            else:
                self.tell_committed(self._offsets.acknowledged({place: at for place, (at, _) in offsets.items()}))

    def out_of_range(self, place: Place) -> None:
        """The offset to be read is not in the log: records were deleted, or the topic was made anew."""
        if not self._offsets.has(place):
            return
        at = self._offsets.position(place)
        try:
            low, high = self._admin.bounds(*place, _SHORT)
        except BrokerAbsentError:
            self.membership.seek(place, at)  # whoever answers then says once more that it is gone
            return
        topic, partition = place
        # The start of a log only grows: one that begins below is another one, even if it has grown past us by now.
        is_anew = low <= at
        end = f"the log ends at {high}" if high < at else f"the log is another one and ends at {high}"
        told = end if is_anew else f"the log begins at {low}"
        if not self._skip_lost:
            if is_anew:
                self._offsets.end(place)  # the last commit would speak of another log
            raise DataLossError(
                f"{topic}[{partition}]: offset {at} is gone ({told} now). Records were deleted before they were read, "
                "or the topic was made anew. To go on without them set on_data_loss: continue"
            )
        self._note(f"{topic}[{partition}] is read from offset {low} on, because {told}")
        if is_anew:
            self._fence(place)
            self._read_anew(place, low)
        else:
            self.gone += low - at
            self._offsets.reached[place] = low
        self.membership.seek(place, low)

    def begin_anew(self, source: str) -> None:
        """Let the retry topics of a source that were deleted and made anew be read from their starts.

        Raises:
            DataLossError: what waited in them is lost, and that is not to be passed over.
        """
        retries = self._retries[source]
        for topic, waited in retries.renewed.copy().items():
            places = [place for place in self._offsets.places if place[0] == topic]
            try:
                is_deleted = topic in self._deleted or self._is_deleted(places)
            except BrokerAbsentError:
                return  # it is looked at again soon
            if not is_deleted:
                retries.go_on(topic)
                continue
            self._deleted.add(topic)
            is_busy = any(
                station.intake.records or any(station.desk.ledger.count(partition) for _, partition in places)
                for station in self._stations[topic]
            )
            if self._skip_lost and is_busy:
                continue  # what was read of the old one is finished first: it is nowhere else
            for place in places:
                self._read_anew(place, 0)
            told = f"at least {waited} records that waited in it are lost" if waited else "what waited in it is lost"
            text = f"the retry topic {topic} was deleted while it was in use: {told}"
            if not self._skip_lost:
                raise DataLossError(f"{text}. To go on without them set on_data_loss: continue")
            self.gone += waited
            self._note(text)
            self._deleted.discard(topic)
            retries.own(dict.fromkeys(places, 0), self.membership.epoch, {})

    def _is_deleted(self, places: list[Place]) -> bool:
        """Whether a topic was really deleted: what was committed of it is gone then, too.

        A broker that has only just come back may say that a topic is not there, or shorter than it is.
        """
        known = self.membership.known(places, _SHORT)
        return any(place not in known for place in places)

    def _read_anew(self, place: Place, start: int) -> None:
        """What is known of the old log, and results that are still to come, say nothing about the new one."""
        topic, partition = place
        for station in self._stations[topic]:
            station.desk.fence(partition, self.membership.epoch)
            station.order(_opening(station, partition))
        self._offsets.begin(place, start, None, marker_at(None))
        self.membership.finished.pop(place, None)
        self.membership.epoch += 1

    def troubled(self, place: Place, error: str) -> None:
        """A partition cannot be read for now."""
        self._missing.add(place[0])
        self._note(f"waiting for topic {place[0]}: {error}")

    def tell_committed(self, offsets: Mapping[Place, int]) -> None:
        """Tell of offsets that the broker has."""
        for topic in dict.fromkeys(name for name, _ in offsets):
            found = tuple((part, at) for (name, part), at in offsets.items() if name == topic)
            self._tell(OffsetsCommitted(topic, found))

    def commit_now(self, offsets: Mapping[Place, Committed], deadline: float) -> bool:
        """Commit and see it done; a coordinator that is away is waited for, but not for ever: then it is False.

        Nobody waits for the answer to a commit that is under way: this one follows it on the same connection.
        """
        while offsets:
            try:
                self.commits.commit(offsets)
            except NotOwnerError:
                return False
            except BrokerAbsentError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.05)
            else:
                self._offsets.sent(offsets)
                self.tell_committed(self._offsets.acknowledged({place: at for place, (at, _) in offsets.items()}))
                break
        return True

    def _with_retries(self, places: Iterable[Place]) -> list[Place]:
        found: list[Place] = []
        for source, partition in places:
            beside = self._retries[source].topics if source in self._retries else ()
            found += dict.fromkeys([(source, partition), *((topic, partition) for topic in beside)])
        return found

    def _known(self, places: list[Place]) -> dict[Place, Committed]:
        """What was committed."""
        return self._answered(lambda: self.membership.known(places, _ANSWER)) if places else {}

    def _settle_topics(self, places: list[Place]) -> None:
        """Take note of topics that the group has read of before: a partition that it does not know is new then."""
        for topic in {topic for topic, _ in places if self._start.get(topic) == "latest"} - self._settled_topics:
            # The new ones may be all that we have: what others have counts too.
            everywhere = self._answered(partial(self._admin.partitions, topic))
            found = self._known([(topic, partition) for partition in everywhere])
            sizes = [size for _, text in found.values() if (size := began_with(text))]
            if found and not sizes:
                self._settled_topics.add(topic)
            else:
                # Nobody has read of it yet, or those that began together with us have said so.
                self._sizes.setdefault(topic, max(sizes, default=len(everywhere)))

    def _begin(self, place: Place, known: Committed | None) -> int:
        """Where to read from."""
        if known is not None:
            return known[0]
        # A partition that came later is read from its first record on, or those written before we saw it were lost.
        return self._bounds(place)[1 if self._is_first(place) else 0]

    def _is_first(self, place: Place) -> bool:
        """Whether a partition was there when the group began, and is to be read from its end on."""
        topic, partition = place
        return topic not in self._settled_topics and partition < self._sizes.get(topic, 0)

    def _bounds(self, place: Place) -> tuple[int, int]:
        return self._answered(lambda: self._admin.bounds(*place))

    def _open(
        self, source: str, partitions: list[int], starts: Mapping[Place, int], known: Mapping[Place, Committed]
    ) -> None:
        unclean = []
        for partition in partitions:
            places = self._with_retries([(source, partition)])
            for place in places:
                found = known.get(place)
                word = f"{NEW}{self._sizes[place[0]]}" if found is None and self._is_first(place) else UNDER_WAY
                self._offsets.begin(place, starts[place], found, marker_at(found, word))
                finished = None if found is None else decode_finished(*found)
                # One that tells of more than there is speaks of another log; what is written next would be passed over.
                if finished is not None and finished.end <= self._bounds(place)[1]:
                    self.membership.finished[place] = finished
                for station in self._stations[place[0]]:
                    station.order(_opening(station, partition))
            if not all(known.get(place, (0, CLEAN))[1] == CLEAN for place in places):
                unclean.append(partition)
        held = self._recovery.begin(source, partitions, self._offsets.with_times(starts), unclean=unclean)
        is_delayed = source in self._retries and source in self._retries[source].topics
        self.membership.paused.update((source, partition) for partition in (partitions if is_delayed else held))
        self._new += [(source, partition) for partition in partitions]

    def settle_in(self) -> None:
        """Before the first record of new partitions runs: say that we are at work on them."""
        if not self._new:
            return
        places, self._new = [place for place in self._new if self._offsets.has(place)], []
        marks = self._offsets.marks(self._with_retries(places))
        self.commit_now(marks, max(self._deadline, time.monotonic() + _ANSWER))
        waiting = self._recovery.places
        for place in [place for place in places if place not in waiting]:
            self.own_retries(*place)

    def own_retries(self, source: str, partition: int) -> None:
        """Let the retry topics of a partition be read."""
        retries = self._retries.get(source)
        if retries is not None:
            starts = {(topic, partition): self._offsets.position((topic, partition)) for topic in retries.topics}
            finished = {place: found for place in starts if (found := self.membership.finished.get(place)) is not None}
            retries.own(starts, self.membership.epoch, finished)

    def _answered(self, ask: Callable[[], T]) -> T:
        """What a broker answers; without it nothing can begin, so it is asked for nearly as long as the group waits."""
        while True:
            try:
                return ask()
            except BrokerAbsentError:
                if self.is_leaving or time.monotonic() > self._deadline:
                    raise
                time.sleep(0.05)

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
