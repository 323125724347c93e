"""Partition: everything known about one owned partition. The loop's thread owns it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from laneway._clock import SystemClock
from laneway._core.finished_map import (
    CLEAN,
    UNDER_WAY,
    encode_finished,
    readable_to,
    since_of,
    under_way,
    with_topic_id,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from laneway._clock import Clock
    from laneway._core.finished_map import FinishedMap
    from laneway._kafka import OffsetAndMetadata, Place
    from laneway._runtime.handler_worker import HandlerWorker

__all__ = ["Partition", "PartitionView", "Partitions", "Pause", "marker_at"]

_SYSTEM = SystemClock()
_AHEAD = 1_000  # records that one read may bring after it was found that a partition may be read on


class Pause(Enum):
    """Why a partition is not read for now. The value says it in words; empty where nothing is wrong with that."""

    RECOVERY = "what its former owner has left is being looked up"
    METADATA = "commits can tell of no more records that are finished past the lowest unfinished one"
    BUFFER = "as many records are in work or wait for a lane as may be"
    SHARE = "it has more than its share of the records that may be in work"
    USER = "a pause or a stop was asked for"
    LIMIT = "the run ends before it"
    RECREATED = "its topic seems to have been deleted and recreated"
    DELAY = ""


class PartitionView(NamedTuple):
    """A partition as it was at one moment."""

    low: int
    """The lowest offset that is not finished by every handler: what may be committed."""
    end: int
    """Up to where every handler was given records."""
    unfinished: Sequence[int]
    delivered: int
    """The offset after the last record that was given to the handlers."""
    paused: frozenset[Pause]


class Partition:
    """One partition, from its assignment until it is revoked or its log begins again.

    Args:
        place: topic and partition.
        workers: those of the handlers that read it.
        start: the offset it is read from.
        known: what was committed of it before.
        word: the marker of commits that have nothing else to tell.
        topic_id: the id of its topic; every commit names it.
        epoch: of this ownership; records carry it.
        limit: the offset before which reading ends; None for no end.
    """

    __slots__ = (
        "_sent",
        "_stop",
        "_word",
        "acknowledged",
        "delivered",
        "doubtful",
        "epoch",
        "inherited",
        "limit",
        "paused",
        "place",
        "reached",
        "start",
        "topic_id",
        "workers",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - what it begins with, each by its keyword
        self,
        place: Place,
        workers: Sequence[HandlerWorker],
        start: int,
        *,
        known: OffsetAndMetadata | None = None,
        word: str = "",
        topic_id: str = "",
        epoch: int = 0,
        limit: int | None = None,
    ) -> None:
        self.place = place
        self.workers = workers
        self.start = start
        self.epoch = epoch
        self.topic_id = topic_id
        self.limit = limit
        self.delivered = start
        """The offset after the last record that was given to the handlers."""
        self.reached = 0
        """Up to where it was read without a record to show for it: gaps, and what was finished before."""
        self.inherited: FinishedMap | None = None
        """What owners before us have finished; those records are passed over."""
        self.doubtful = 0
        """Up to where a former owner may have copied records, if it did not end cleanly."""
        self.acknowledged = known
        self.paused: set[Pause] = set()
        """Why it is not read for now; it is read while this is empty."""
        self._sent = known
        self._stop = start
        self._word = word

    def restarted(self, start: int, *, word: str, topic_id: str, epoch: int) -> Partition:
        """The partition of another log with the same name, which is as much held back as this one."""
        fresh = Partition(
            self.place, self.workers, start, word=word, topic_id=topic_id, epoch=epoch, limit=self.limit
        )  # fmt: skip
        fresh.paused = self.paused - {Pause.METADATA, Pause.LIMIT, Pause.RECREATED}
        return fresh

    @property
    def position(self) -> int:
        """The offset that is read next, as far as it is known."""
        return max(self.delivered, self.reached)

    @property
    def spanned(self) -> int:
        """How many offsets were passed, with or without a record."""
        return self.position - self.start

    @property
    def committed(self) -> int:
        """The offset that the broker has, or where the partition was begun."""
        return self.start if self.acknowledged is None else self.acknowledged[0]

    @property
    def since(self) -> int:
        """From when on copies of its records count, milliseconds since the epoch."""
        return since_of(self._word) or 0

    @property
    def is_at_limit(self) -> bool:
        """Whether everything before its limit was read."""
        return self.limit is not None and self.position >= self.limit

    def progress(self) -> tuple[int, int, list[int]]:
        """What may be committed, up to where it was read, and the unfinished offsets between. Any thread may ask."""
        reached, delivered = self.reached, self.delivered
        found = [worker.progress(self.place, self.start) for worker in self.workers]
        end = min([reach for reach, _ in found])
        unfinished = found[0][1]
        if len(found) > 1:
            unfinished = sorted({offset for _, rest in found for offset in rest if offset < end})
        if end >= delivered:
            # All that was put in has been taken out: what lies between it and the mark holds no record for us.
            end = max(end, reached)
        return (unfinished[0] if unfinished else end), end, unfinished

    def progress_of(self, worker: HandlerWorker) -> tuple[int, list[int]]:
        """Up to where one of its handlers was given records, and the unfinished offsets before. Any thread may ask."""
        reached, delivered = self.reached, self.delivered
        end, unfinished = worker.progress(self.place, self.start)
        return (max(end, reached) if end >= delivered else end), unfinished

    def view(self) -> PartitionView:
        """The current status. Any thread may ask."""
        # What was delivered comes last: a record that comes meanwhile lies before it, and so counts as under way.
        return PartitionView(*self.progress(), self.delivered, frozenset(self.paused.copy()))

    def may_read_on(self) -> bool:
        """Whether commits can tell of all that is finished, in whatever order, when more of it is read.

        Up to the end of what owners before us had finished everything is read, however much that is: as long as it is
        not read, nothing of it can be finished.
        """
        if self.position >= self._stop:
            stop = readable_to(*self._with_inherited()) - _AHEAD
            self._stop = stop if self.inherited is None else max(stop, self.inherited.end)
        return self.position < self._stop

    def next_commit(self, *, is_last: bool = False) -> OffsetAndMetadata | None:
        """What is to be committed because it has changed since it was sent; None when nothing is.

        Args:
            is_last: for the last time: where nothing is under way, the commit says so.
        """
        found = self.progress()
        offset, end, unfinished = self._with_inherited(found)
        if self.inherited is not None and self.inherited.end <= found[1]:
            self.inherited = None  # this owner's ledgers have read past it
        text = encode_finished(offset, end, unfinished)
        # The time of the marker stands behind the map, too.
        text = text and text + self._word[len(self._word.partition("~")[0]) :]
        # Copies of a killed owner may lie further on than we have come: the next owner is to look for them, too.
        is_clean = is_last and not unfinished and end >= self.doubtful
        text = text or (CLEAN if is_clean else self._word)
        said = (offset, with_topic_id(text, self.topic_id))
        # The last commit must have arrived, too: it is not sent again after this.
        is_known = said == self._sent and (not is_last or said == self.acknowledged)
        return None if is_known else said

    def first_commit(self) -> OffsetAndMetadata | None:
        """What is to be committed before its first record runs: that something may be under way from now on.

        Also where nothing was committed yet: an owner that is killed before its first commit may have left copies. And
        after a reset: the time separates copies made from now on from earlier ones.
        """
        offset, text = (self.start, CLEAN) if self.acknowledged is None else self.acknowledged
        return (offset, with_topic_id(self._word, self.topic_id)) if since_of(text) is None else None

    def sent(self, said: OffsetAndMetadata) -> None:
        """This commit is on its way to the broker."""
        self._sent = said

    def arrived(self) -> None:
        """The broker has what was sent last, unless a later commit has failed meanwhile."""
        self.acknowledged = self._sent or self.acknowledged

    def failed(self) -> None:
        """What was sent did not get there, and is to be sent again."""
        self._sent = None

    def _with_inherited(self, found: tuple[int, int, list[int]] | None = None) -> tuple[int, int, list[int]]:
        """As `progress`, with what owners before us had finished."""
        found, before = found or self.progress(), self.inherited
        if before is None or before.end <= found[1]:
            return found
        unfinished = [*found[2], *before.missing(found[1])]
        return (unfinished[0] if unfinished else before.end), before.end, unfinished


class Partitions(dict["Place", Partition]):
    """The owned partitions, of sources and of their retry topics. Any thread may read it."""

    def __init__(self) -> None:
        super().__init__()
        self._gone = 0

    @property
    def spanned(self) -> int:
        """How many offsets were passed, of partitions that are gone too."""
        return self._gone + sum(partition.spanned for partition in tuple(self.values()))

    def begin(self, partition: Partition) -> None:
        """Add a partition, or replace it when its log has begun again."""
        self.end(partition.place)
        self[partition.place] = partition

    def end(self, place: Place) -> None:
        """Remove a partition."""
        partition = self.pop(place, None)
        self._gone += 0 if partition is None else partition.spanned

    def of(self, topics: Collection[str]) -> list[Partition]:
        """Those of some topics. Any thread may ask."""
        return [partition for partition in tuple(self.values()) if partition.place[0] in topics]

    def due(self, last_of: Iterable[Place] | None = None) -> dict[Place, OffsetAndMetadata]:
        """What is to be committed: of all, or of some for the last time."""
        places = tuple(self) if last_of is None else last_of
        found = {place: self[place].next_commit(is_last=last_of is not None) for place in places if place in self}
        return {place: said for place, said in found.items() if said is not None}

    def sent(self, offsets: Mapping[Place, OffsetAndMetadata]) -> None:
        """These commits are on their way to the broker."""
        for place, said in offsets.items():
            if place in self:
                self[place].sent(said)

    def arrived(self, offsets: Mapping[Place, OffsetAndMetadata]) -> dict[Place, int]:
        """The broker has these; gives the offsets of partitions that are still owned."""
        owned = {place: offset for place, (offset, _) in offsets.items() if place in self}
        for place in owned:
            self[place].arrived()
        return owned

    def failed(self, offsets: Iterable[Place]) -> None:
        """These commits did not get there, and are to be sent again."""
        for place in offsets:
            if place in self:
                self[place].failed()


def marker_at(found: OffsetAndMetadata | None, word: str = UNDER_WAY, *, clock: Clock = _SYSTEM) -> str:
    """The marker that the commits of an owner carry which begins now.

    Args:
        found: the commit that it begins at.
        word: what stands before the time.
        clock: the time.
    """
    return under_way("" if found is None else found[1], int(clock.wall() * 1000), word)
