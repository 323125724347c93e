"""Logs: what is done about a log that is not the one that was read: cut at its start, or of a recreated topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway._clock import SystemClock
from laneway._core.finished_map import topic_id_of
from laneway._kafka import BrokerUnavailableError
from laneway._runtime.partition import Pause, marker_at
from laneway._runtime.recreated import as_loss, describe, differs, is_of_another_log
from laneway.errors import AdminError, DataLossError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from laneway._clock import Clock
    from laneway._kafka import Admin, OffsetAndMetadata, Place, TopicIds
    from laneway._runtime.fed_handler import FedHandler
    from laneway._runtime.monitor import BrokerMonitor
    from laneway._runtime.partition import Partitions
    from laneway._runtime.read_plan import ReadPlan
    from laneway._runtime.worker_loop import RecordSource
    from laneway.observe import Notes

__all__ = ["Logs"]

_SYSTEM = SystemClock()
_ANSWER = 5.0  # seconds to wait for brokers at a time, while the group waits for us
_SHORT = 1.0  # seconds to wait for an answer otherwise; it is asked for again


class Logs:
    """Recognises logs that are not those that were read, and begins them from their start or ends the run.

    A topic that is deleted and recreated keeps its name, but not its id. So ids are asked for before each commit, and
    stand in its metadata. The loop's thread calls it.

    Args:
        plan: what is read.
        source: reads as a member of the group.
        workers: topic, of retries too, to those of the handlers that read it.
        partitions: those that are ours.
        monitor: hears of sources that were recreated.
        admin: asks the cluster.
        notes: hears of what is unusual.
        clock: the time.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        plan: ReadPlan,
        *,
        source: RecordSource,
        workers: Mapping[str, Sequence[FedHandler]],
        partitions: Partitions,
        monitor: BrokerMonitor,
        admin: Admin,
        notes: Notes,
        clock: Clock = _SYSTEM,
    ) -> None:
        self._plan = plan
        self._source = source
        self._workers = workers
        self._partitions = partitions
        self._monitor = monitor
        self._admin = admin
        self._watched = plan.watched
        self._notes = notes
        self._clock = clock
        self._ids: dict[str, str] = {}
        """Topic to its id, when last looked at."""
        self._asked: TopicIds | None = None
        self._left: dict[Place, int] = {}
        """The committed offsets of partitions that are not ours any more."""
        self._suspects: dict[str, int] = {}
        """Retry topics that seem to have been recreated, and how many records waited in them."""
        self._deleted: set[str] = set()
        """Retry topics that were deleted, while what was read of them is being finished."""
        self.restarted: set[str] = set()
        """Topics that were recreated: all of their partitions begin at their starts."""
        self.ends: dict[Place, int] = {}
        """Where the logs of recreated topics ended when that was noticed: a run with an end goes up to here."""

    def learn(self) -> None:
        """Remember which topics there are at the start, before any partition is ours.

        Raises:
            BrokerUnavailableError: nobody answered.
        """
        self._ids |= self._asked_ids(self._watched, _ANSWER)

    def id_of(self, topic: str) -> str:
        """The id of a topic of which partitions have just become ours; empty when it is not known."""
        return self._ids.get(topic, "")

    def begin(self, places: list[Place], known: Mapping[Place, OffsetAndMetadata]) -> set[Place]:
        """Compare partitions that have just become ours with what is committed of them.

        Returns:
            Those that begin at the start of a new log.

        Raises:
            BrokerUnavailableError: nobody answered; nothing was done.
            DataLossError: what was committed is of a topic that was deleted, and that is not to be passed over.
        """
        watched = {topic for topic, _ in places if topic in self._watched}
        ids = self._asked_ids(watched, _ANSWER)
        places = [place for place in places if place[0] in ids]
        ends = self._admin.high_watermarks(places, _ANSWER) if places else {}
        fresh: set[Place] = set()
        for topic, topic_id in ids.items():
            was = self._ids.get(topic, "")
            found: dict[int, tuple[int, int]] = {}
            texts = [was]
            for place in places:
                if place[0] != topic:
                    continue
                offset, text = known.get(place, (None, ""))
                texts.append(topic_id_of(text))
                if offset is not None:
                    is_other = is_of_another_log((offset, text), ends[place], topic_id)
                else:
                    # Kafka deletes the group's offsets with the topic; we know by ourselves what we have read.
                    is_other = differs(was, topic_id)
                if is_other:
                    found[place[1]] = self._left.get(place, 0) if offset is None else offset, ends[place]
                    fresh.add(place)
            if found:
                self._decide(topic, found, is_recreated=any(differs(said, topic_id) for said in texts))
                self.restarted.add(topic)
            self.ends |= {(topic, partition): end for partition, (_, end) in found.items()}
            self._ids[topic] = topic_id or was
        return fresh

    def ask(self) -> None:
        """Ask for the ids of the topics that are read; `is_sure` has the answer."""
        self._asked = self._admin.ask_topic_ids(self._watched, _SHORT) if self._watched else None

    @property
    def is_answered(self) -> bool:
        """Whether the answer is there, or none is waited for."""
        return self._asked is None or self._asked.is_done

    def is_sure(self) -> bool:
        """Take the answer, and act on topics that were recreated. False when it is not known yet what became of one.

        Raises:
            DataLossError: a topic was recreated, and that is not to be passed over.
        """
        asked, self._asked = self._asked, None
        try:
            ids = {} if asked is None else asked.result()
        except AdminError:
            return True  # a commit says of which topic it is; if that was recreated, the next one who reads it knows
        try:
            self._compare(ids)
        except BrokerUnavailableError:
            return False
        return True

    def look(self, places: Iterable[Place]) -> None:
        """Ask for the topics of partitions that are given back; nothing more is read of them here.

        Raises:
            DataLossError: a topic was recreated, and that is not to be passed over.
        """
        try:
            self._compare(self._asked_ids({topic for topic, _ in places} & self._watched, _SHORT), places)
        except AdminError:
            return  # as above

    def leave(self, place: Place) -> None:
        """A partition is ours no longer."""
        if place in self._partitions:
            self._left[place] = self._partitions[place].committed

    def out_of_range(self, place: Place, offset: int) -> None:
        """An offset was to be read that is not in the log: records were deleted, or the topic was recreated."""
        owned = self._partitions.get(place)
        if owned is None:
            return
        topic, partition = place
        at = owned.position
        if 0 <= offset != at:
            # Said of before the partition was begun again, or past offsets without a record: it is said once more.
            self._source.seek(place, at)
            return
        try:
            if topic in self._compare(self._asked_ids({topic} & self._watched, _SHORT)):
                return
            low, high = self._admin.bounds(*place, _SHORT)
        except BrokerUnavailableError:
            self._source.seek(place, at)  # whoever answers then says once more that it is gone
            return
        # The start of a log only grows: one that begins below is another one, even if it has grown past us by now.
        if low <= at:
            self._decide(topic, {partition: (at, high)}, is_recreated=False)
            self._fence(place)
            self._begin_log(place, low)
        else:
            told = f"{topic}[{partition}]: offset {at} is gone (the log begins at {low} now)"
            if not self._plan.skip_lost:
                raise DataLossError(
                    f"{told}. Records were deleted before they were read. To go on without them set "
                    "on_data_loss: continue"
                )
            self._notes.note(f"{told}: it is read from there on")
            self.lose(topic, low - at - (0 if owned.inherited is None else owned.inherited.count(at, low)))
            owned.reached = low
        self._source.seek(place, low)

    def _compare(self, ids: Mapping[str, str], leaving: Iterable[Place] = ()) -> set[str]:
        """Act on topics whose ids are not those under which they are read; gives them."""
        found: set[str] = set()
        leaving = set(leaving)
        for topic, topic_id in ids.items():
            owned = [part for part in self._partitions.of((topic,)) if not leaving or part.place in leaving]
            places = [part.place for part in owned if differs(part.topic_id, topic_id)]
            if not places:
                continue
            there = [(topic, partition) for partition in self._admin.partitions(topic, _SHORT)]
            if not there:
                raise BrokerUnavailableError(f"the partitions of topic {topic} are not known yet")
            ends = self._admin.high_watermarks(there, _SHORT)
            at = {place[1]: (self._partitions[place].committed, ends.get(place, 0)) for place in places}
            self._decide(topic, at, is_recreated=True)
            self._ids[topic] = topic_id
            self.restarted.add(topic)
            for place in places:
                if place not in ends:  # the new topic has fewer partitions: the group will take it
                    self._fence(place)
                    self._partitions.end(place)
            places = [place for place in places if place in ends]
            self._restart(topic, places)
            self.ends |= {place: ends[place] for place in places}
            for place in places if not leaving else ():
                self._source.seek(place, 0)
            found.add(topic)
        return found

    def _asked_ids(self, topics: Collection[str], timeout: float) -> dict[str, str]:
        return self._admin.topic_ids(topics, timeout) if topics else {}

    def _decide(self, topic: str, found: Mapping[int, tuple[int, int]], *, is_recreated: bool) -> None:
        """End the run because of what was found, or say that it goes on."""
        text = describe(topic, found, is_recreated=is_recreated)
        if not self._plan.skip_lost:
            for owned in self._partitions.of((topic,)):
                if is_recreated or owned.place[1] in found:
                    self._partitions.end(owned.place)  # the last commit would speak of another log
            raise as_loss(text, self._plan.start.get(topic))
        self._notes.note(f"{text}; it is read from its start")

    def _restart(self, topic: str, places: list[Place]) -> None:
        """Begin partitions of a recreated topic at their starts."""
        for place in places:
            self._fence(place)
            self._begin_log(place, 0)
        self._monitor.restart(topic)

    def suspect(self, topic: str, seen: Mapping[Place, int]) -> None:
        """A retry topic seems to have been recreated: read nothing of it before that is known.

        Args:
            topic: which.
            seen: how far its logs went before.
        """
        owned = self._partitions.of((topic,))
        waited = sum(max(0, seen[part.place] - part.position) for part in owned if part.place in seen)
        if waited or any(part.position for part in owned):  # else nothing of it was read, and nothing waited there
            for partition in owned:
                partition.paused.add(Pause.RECREATED)
            self._suspects[topic] = self._suspects.get(topic, 0) + waited

    def settle_suspects(self) -> None:
        """Let retry topics be read again: from their starts, if they were really recreated.

        Raises:
            DataLossError: what waited in them is lost, and that is not to be passed over.
        """
        for topic, waited in list(self._suspects.items()):
            suspects = [owned for owned in self._partitions.of((topic,)) if Pause.RECREATED in owned.paused]
            places = [owned.place for owned in suspects]
            if not places:
                self._deleted.discard(topic)
                del self._suspects[topic]
                continue
            try:
                is_deleted = topic in self._deleted or self._is_deleted(places)
            except BrokerUnavailableError:
                return  # it is looked at again soon
            if not is_deleted:
                del self._suspects[topic]
                for owned in suspects:
                    owned.paused.discard(Pause.RECREATED)
                continue
            self._deleted.add(topic)
            is_busy = any(worker.has(place) for worker in self._workers[topic] for place in places)
            if self._plan.skip_lost and is_busy:
                continue  # what was read of the old one is finished first: it is nowhere else
            for place in places:
                self._begin_log(place, 0)
            told = f"at least {waited} records that waited in it are lost" if waited else "what waited in it is lost"
            text = f"the retry topic {topic} was deleted while it was in use: {told}"
            if not self._plan.skip_lost:
                raise DataLossError(f"{text}. To go on without them set on_data_loss: continue")
            self.lose(topic, waited)
            self._notes.note(text)
            self._deleted.discard(topic)
            del self._suspects[topic]

    def lose(self, topic: str, count: int) -> None:
        """So many records were deleted before they could be read."""
        self._workers[topic][0].lose(count)

    def _is_deleted(self, places: list[Place]) -> bool:
        """Whether a topic was really deleted: what was committed of it is gone then, too.

        A broker that has only just come back may say that a topic is not there, or shorter than it is.
        """
        known = self._source.known(places, _SHORT)
        return any(place not in known for place in places)

    def _begin_log(self, place: Place, start: int) -> None:
        """What is known of the old log, and results that are still to come, say nothing about the new one."""
        for worker in self._workers[place[0]]:
            worker.restart(place, self._source.epoch)
        self._source.epoch += 1
        fresh = self._partitions[place].restarted(
            start,
            word=marker_at(None, clock=self._clock),
            topic_id=self.id_of(place[0]),
            epoch=self._source.epoch,
        )
        self._partitions.begin(fresh)

    def _fence(self, place: Place) -> None:
        for worker in self._workers[place[0]]:
            worker.fence(place, self._source.epoch)
