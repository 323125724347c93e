"""Topics that were deleted and recreated, and partitions that a group does not know: the rules of both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway._clock import SystemClock
from laneway._core.finished_map import began_with, topic_id_of
from laneway._kafka import BrokerUnavailableError
from laneway._runtime.partition import Pause, marker_at
from laneway.errors import AdminError, DataLossError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from laneway._clock import Clock
    from laneway._kafka import Admin, OffsetAndMetadata, Place, TopicIds
    from laneway._runtime.broker_monitor import BrokerMonitor
    from laneway._runtime.handler_worker import HandlerWorker
    from laneway._runtime.partition import Partitions
    from laneway._runtime.topics import ReadPlan
    from laneway._runtime.worker_loop import RecordSource
    from laneway.observe import Notes

__all__ = ["Logs", "as_loss", "describe", "differs", "is_of_another_log", "size_at_start"]

_SHOWN = 3  # partitions named in the message
_SYSTEM = SystemClock()
_ANSWER = 5.0  # seconds for one request while the rebalance waits
_SHORT = 1.0  # seconds for other requests, which are repeated


def differs(said: str, now: str) -> bool:
    """Whether two topic ids differ; an unknown id differs from none."""
    return bool(said and now and said != now)


def is_of_another_log(committed: OffsetAndMetadata, end: int, topic_id: str) -> bool:
    """Whether a committed offset belongs to another log: a deleted topic's, or it is after the log's end."""
    offset, text = committed
    return differs(topic_id_of(text), topic_id) or offset > end


def size_at_start(committed: Collection[OffsetAndMetadata], partitions: int) -> int:
    """How many partitions a topic had when its group began to read it, with ``start: latest``.

    Lower partitions without a commit start at the end of their logs. Higher ones were added later and start at their
    beginning, so that nothing written before their discovery is skipped.
    """
    sizes = [size for _, text in committed if (size := began_with(text)) is not None]
    if committed and not sizes:
        return 0  # a known group: it has committed every partition that existed at its start
    return max(sizes, default=partitions)


def describe(topic: str, found: Mapping[int, tuple[int, int]], *, is_recreated: bool) -> str:
    """What happened to a topic, in one line."""
    shown = sorted(found, key=lambda partition: (not found[partition][0], partition))[:_SHOWN]
    parts = [
        f"{topic}[{partition}] is at offset {offset}, its log ends at {end}"
        for partition, (offset, end) in ((partition, found[partition]) for partition in shown)
    ]
    if len(found) > len(shown):
        parts.append(f"and {len(found) - len(shown)} more partitions")
    what = "was deleted and recreated" if is_recreated else "was deleted and recreated, or its log was cut"
    return f"topic {topic} {what}: {'; '.join(parts)}"


def as_loss(text: str, start: str | None) -> DataLossError:
    """The error that ends the run by default."""
    also = " and start: earliest" if start == "latest" else ""
    return DataLossError(
        f"{text}. Unread records of the old topic are lost; nothing of the new one was committed. To read the new "
        f"one from its start, set on_data_loss: continue{also}"
    )


class Logs:
    """Detects recreated topics, and restarts their partitions or ends the run.

    A recreated topic has the same name but another id. So ids are requested before each commit, and are part of its
    metadata. Only the loop's thread calls it.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        plan: ReadPlan,
        *,
        source: RecordSource,
        workers: Mapping[str, Sequence[HandlerWorker]],
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
        """The last known id of each topic."""
        self._asked: TopicIds | None = None
        self._left: dict[Place, int] = {}
        """The last commits of revoked partitions."""
        self._suspects: dict[str, int] = {}
        """Retry topics that may have been recreated, and how many records waited in them."""
        self._deleted: set[str] = set()
        """Deleted retry topics whose records in flight are being finished."""
        self.restarted: set[str] = set()
        """Recreated topics, whose partitions all start at the beginning."""
        self.ends: dict[Place, int] = {}
        """The ends of recreated topics when that was noticed: a run with an end stops there."""

    def learn(self) -> None:
        """Ask for the ids of all topics, before any partition is assigned.

        Raises:
            BrokerUnavailableError: no broker answered.
        """
        self._ids |= self._asked_ids(self._watched, _ANSWER)

    def id_of(self, topic: str) -> str:
        """The id of an assigned topic; empty when unknown."""
        return self._ids.get(topic, "")

    def begin(self, places: list[Place], known: Mapping[Place, OffsetAndMetadata]) -> set[Place]:
        """Compare newly assigned partitions with their commits.

        Returns:
            Those that start at the beginning of a new log.

        Raises:
            BrokerUnavailableError: no broker answered; nothing was changed.
            DataLossError: a commit belongs to a deleted topic, and ``on_data_loss`` is ``fail``.
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
                    # Kafka deletes the group's offsets with the topic; this member knows what it has read.
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
        """Request the ids of the topics that are read, for `is_sure`."""
        self._asked = self._admin.ask_topic_ids(self._watched, _SHORT) if self._watched else None

    @property
    def is_answered(self) -> bool:
        """Whether the answer is there, or none is expected."""
        return self._asked is None or self._asked.is_done

    def is_sure(self) -> bool:
        """Process the answer and handle recreated topics; False while one of them is not known for sure.

        Raises:
            DataLossError: a topic was recreated, and ``on_data_loss`` is ``fail``.
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
        """Check the topics of revoked partitions, which are not read any more.

        Raises:
            DataLossError: a topic was recreated, and ``on_data_loss`` is ``fail``.
        """
        try:
            self._compare(self._asked_ids({topic for topic, _ in places} & self._watched, _SHORT), places)
        except AdminError:
            return  # as above

    def leave(self, place: Place) -> None:
        """A partition was revoked."""
        if place in self._partitions:
            self._left[place] = self._partitions[place].committed

    def out_of_range(self, place: Place, offset: int) -> None:
        """Handle an offset that is not in the log: records were deleted, or the topic was recreated."""
        owned = self._partitions.get(place)
        if owned is None:
            return
        topic, partition = place
        at = owned.position
        if 0 <= offset != at:
            # Reported before the restart, or after offsets without a record: it will be reported again.
            self._source.seek(place, at)
            return
        try:
            if topic in self._compare(self._asked_ids({topic} & self._watched, _SHORT)):
                return
            low, high = self._admin.bounds(*place, _SHORT)
        except BrokerUnavailableError:
            self._source.seek(place, at)  # it will be reported again
            return
        # A log's start only grows: a lower one means another log, even if its end is higher by now.
        if low <= at:
            self._decide(topic, {partition: (at, high)}, is_recreated=False)
            self._fence(place)
            self._begin_log(place, low)
        else:
            loss = f"{topic}[{partition}]: offset {at} is gone (the log now begins at {low})"
            if not self._plan.skip_lost:
                raise DataLossError(
                    f"{loss}. Records were deleted before they were read. To continue without them, set "
                    "on_data_loss: continue"
                )
            self._notes.note(f"{loss}: reading continues there")
            self.lose(topic, low - at - (0 if owned.inherited is None else owned.inherited.count(at, low)))
            owned.reached = low
        self._source.seek(place, low)

    def _compare(self, ids: Mapping[str, str], leaving: Iterable[Place] = ()) -> set[str]:
        """Handle topics whose ids have changed, and return them."""
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
                if place not in ends:  # the new topic has fewer partitions: it will be revoked
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
        """End the run because of data loss, or log that it continues."""
        text = describe(topic, found, is_recreated=is_recreated)
        if not self._plan.skip_lost:
            for owned in self._partitions.of((topic,)):
                if is_recreated or owned.place[1] in found:
                    self._partitions.end(owned.place)  # the last commit would be for another log
            raise as_loss(text, self._plan.start.get(topic))
        self._notes.note(f"{text}; it is read from its start")

    def _restart(self, topic: str, places: list[Place]) -> None:
        """Start partitions of a recreated topic at the beginning."""
        for place in places:
            self._fence(place)
            self._begin_log(place, 0)
        self._monitor.restart(topic)

    def suspect(self, topic: str, seen: Mapping[Place, int]) -> None:
        """Stop reading a retry topic until it is known whether it was recreated."""
        owned = self._partitions.of((topic,))
        waited = sum(max(0, seen[part.place] - part.position) for part in owned if part.place in seen)
        if waited or any(
            part.position for part in owned
        ):  # otherwise nothing was read from it, and nothing waited there
            for partition in owned:
                partition.paused.add(Pause.RECREATED)
            self._suspects[topic] = self._suspects.get(topic, 0) + waited

    def settle_suspects(self) -> None:
        """Resume suspected retry topics, from the beginning if they were recreated.

        Raises:
            DataLossError: deferred records are lost, and ``on_data_loss`` is ``fail``.
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
                return  # checked again soon
            if not is_deleted:
                del self._suspects[topic]
                for owned in suspects:
                    owned.paused.discard(Pause.RECREATED)
                continue
            self._deleted.add(topic)
            is_busy = any(worker.has(place) for worker in self._workers[topic] for place in places)
            if self._plan.skip_lost and is_busy:
                continue  # finish the records read from the old topic first: there is no other copy
            for place in places:
                self._begin_log(place, 0)
            loss = f"at least {waited} deferred records are lost" if waited else "its deferred records are lost"
            text = f"the retry topic {topic} was deleted while it was in use: {loss}"
            if not self._plan.skip_lost:
                raise DataLossError(f"{text}. To continue without them, set on_data_loss: continue")
            self.lose(topic, waited)
            self._notes.note(text)
            self._deleted.discard(topic)
            del self._suspects[topic]

    def lose(self, topic: str, count: int) -> None:
        """Count records that were deleted before they were read."""
        self._workers[topic][0].lose(count)

    def _is_deleted(self, places: list[Place]) -> bool:
        """Whether a topic was really deleted: its committed offsets are gone, too.

        A broker that has just restarted may report a topic as missing, or its log as shorter than it is.
        """
        known = self._source.known(places, _SHORT)
        return any(place not in known for place in places)

    def _begin_log(self, place: Place, start: int) -> None:
        """Start a new log: state and late results of the old one do not count."""
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
