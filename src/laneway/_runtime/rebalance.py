"""Rebalance: takes over assigned partitions and gives up revoked ones. Called inside reads, on the loop's thread."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from laneway._clock import SystemClock
from laneway._core.finished_map import CLEAN, NEW, UNDER_WAY, decode_finished, is_clean
from laneway._kafka import BrokerUnavailableError, FencedError
from laneway._runtime.commits import Committer
from laneway._runtime.partition import Partition, Pause, marker_at
from laneway._runtime.recreated_topics import size_at_start
from laneway.events import OffsetsCommitted, PartitionsAssigned, PartitionsRevoked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from laneway._clock import WaitingClock
    from laneway._kafka import Admin, OffsetAndMetadata, Place
    from laneway._runtime.commits import CommitStrategy
    from laneway._runtime.flow import Flow
    from laneway._runtime.handler_worker import HandlerWorker
    from laneway._runtime.lease import Lease
    from laneway._runtime.partition import Partitions
    from laneway._runtime.recreated_topics import Logs
    from laneway._runtime.topics import ReadPlan
    from laneway._runtime.worker_loop import RecordSource, Recovery
    from laneway.observe import Listener

__all__ = ["Rebalance"]

T = TypeVar("T")

_SYSTEM = SystemClock()
_ANSWER = 5.0  # seconds to wait for the coordinator at a time
_SHORT = 1.0  # seconds to wait for an answer outside of a callback, where the group counts them; it is asked for again
_LOOK = 0.002  # seconds between looks at what is being finished


class Rebalance:
    """Keeps one owner per partition: starts where the last owner's commit is, and commits before the next owner starts.

    Args:
        plan: what is read.
        source: reads as a member of the group.
        commits: how offsets reach the group.
        workers: topic, of retries too, to those of the handlers that read it.
        partitions: the owned ones.
        flow: what holds them back.
        recovery: looks for copies that a killed process has left.
        logs: recognises topics that were recreated.
        admin: asks the cluster; librdkafka aborts when a consumer is asked for topics inside its own callback.
        lease: whether this process surely owns its partitions.
        listener: gets events of partitions and commits, and notes.
        clock: the time.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        plan: ReadPlan,
        *,
        source: RecordSource,
        commits: CommitStrategy,
        workers: Mapping[str, Sequence[HandlerWorker]],
        partitions: Partitions,
        flow: Flow,
        recovery: Recovery,
        logs: Logs,
        admin: Admin,
        lease: Lease,
        listener: Listener,
        clock: WaitingClock = _SYSTEM,
    ) -> None:
        self._plan = plan
        self._source = source
        self.commits = commits
        self._workers = workers
        self.partitions = partitions
        self._flow = flow
        self._recovery = recovery
        self.logs = logs
        self._admin = admin
        self.lease = lease
        self._deadline = 0.0
        """Until when questions about new partitions are repeated."""
        self._listener = listener
        self._clock = clock
        self._had: set[str] = set()
        self._sizes: dict[str, int] = {}
        """Topic to how many of its partitions begin at their ends; 0 when the group has read it before."""
        self._missing: set[str] = set()
        """Topics that cannot be read, as a note said."""
        self._new: list[Place] = []
        self.is_leaving = False
        """Whether to give partitions back without waiting for calls. Any thread may set it."""
        self.is_expelled = False
        """Whether partitions were lost while leaving: what was not committed of them is repeated."""
        self.has_joined = threading.Event()
        """Set when partitions were assigned for the first time."""

    def begin(self) -> None:
        """Join the group."""
        self._source.subscribe(self._plan.topics, self)

    def committer(self, now: float) -> Committer:
        """What commits for the loop."""
        return Committer(self._source, self, self.partitions, now)

    def has_read(self) -> None:
        """The source was asked for records; what was read is not given to handlers yet."""
        self.lease.renew()
        self.settle_in()

    def assigned(self, places: list[Place]) -> Mapping[Place, int]:
        """Take over these partitions; returns where each is read from."""
        self._deadline = self._clock.monotonic() + self._plan.patience
        everything = self._with_retries(places)
        known = self._known(everything)
        fresh = self._answered(lambda: self.logs.begin(places, known))
        known = {place: found for place, found in known.items() if place not in fresh}
        # A topic that was deleted while it was read is read from its start.
        self._sizes |= dict.fromkeys((self._missing & self._had) | self.logs.restarted, 0)
        self._settle_topics(places)
        starts = {place: self._begin(place, known.get(place)) for place in everything}
        for source in dict.fromkeys(topic for topic, _ in places):
            self._open(source, [part for topic, part in places if topic == source], starts, known)
        for topic in dict.fromkeys(topic for topic, _ in places):
            self._listener.event(PartitionsAssigned(topic, tuple(part for name, part in places if name == topic)))
        if not self._missing.isdisjoint(topic for topic, _ in places):
            self._missing.difference_update(topic for topic, _ in places)
            self._listener.note("")
        self._had.update(topic for topic, _ in places)
        self.has_joined.set()
        return starts

    def revoked(self, places: list[Place]) -> None:
        """Finish what was begun of these partitions, commit it, and give them up."""
        deadline = self.release(places)
        while not self.is_drained(places) and self._clock.monotonic() < deadline:
            self.lease.renew()  # the client keeps its membership in the background, and calls that end now count
            self._clock.sleep(_LOOK)
        self.give_back(places, deadline)

    def release(self, places: list[Place]) -> float:
        """Begin nothing more of these partitions; returns until when to wait for what was begun."""
        for place in self._with_retries(places):
            for worker in self._workers[place[0]]:
                worker.release(place)
        return self._clock.monotonic() + self._plan.budget

    def is_drained(self, places: list[Place]) -> bool:
        """Whether nothing of released partitions has to be waited for."""
        everything = self._with_retries(places)
        return self.is_leaving or all(
            worker.is_drained(place) for place in everything for worker in self._workers[place[0]]
        )

    def give_back(self, places: list[Place], deadline: float) -> None:
        """Commit what is finished of released partitions, and give them up."""
        everything = self._with_retries(places)
        self.logs.look(everything)
        self.commit_now(self.partitions.due(everything), max(deadline, self._clock.monotonic() + 1.0))
        self._give_up(places)
        self._emit_revoked(places, is_lost=False)

    def lost(self, places: list[Place]) -> None:
        """Forget partitions that another member owns already."""
        self.is_expelled |= self.is_leaving
        self._give_up(places)
        self._emit_revoked(places, is_lost=True)

    def take_answers(self) -> list[Mapping[Place, OffsetAndMetadata]]:
        """Act on answers to commits; returns the commits that succeeded."""
        for offsets, error in (answers := self.commits.answers()):
            if error is not None:
                self.partitions.failed(offsets)
            else:
                self.emit_committed(self.partitions.arrived(offsets))

        return [offsets for offsets, error in answers if error is None]

    def out_of_range(self, place: Place, offset: int) -> None:
        """An offset was to be read that is not in the log: records were deleted, or the topic was recreated."""
        self.logs.out_of_range(place, offset)

    def troubled(self, place: Place, error: str) -> None:
        """A partition cannot be read for now."""
        self._missing.add(place[0])
        self._listener.note(f"waiting for topic {place[0]}: {error}")

    def emit_committed(self, offsets: Mapping[Place, int]) -> None:
        """Emit events of committed offsets."""
        for topic in dict.fromkeys(name for name, _ in offsets):
            found = tuple((part, at) for (name, part), at in offsets.items() if name == topic)
            self._listener.event(OffsetsCommitted(topic, found))

    def commit_now(self, offsets: Mapping[Place, OffsetAndMetadata], deadline: float) -> bool:
        """Commit and wait for the answer; retries until *deadline* while no coordinator answers, then returns False.

        A commit under way needs no wait: this one follows it on the same connection.
        """
        while offsets:
            try:
                self.commits.commit(offsets)
            except FencedError:
                return False
            except BrokerUnavailableError:
                if self._clock.monotonic() > deadline:
                    return False
                self._clock.sleep(0.05)
            else:
                self.committed(offsets)
                return True
        return True

    def committed(self, offsets: Mapping[Place, OffsetAndMetadata]) -> None:
        """Record commits that succeeded."""
        self.partitions.sent(offsets)
        self.emit_committed(self.partitions.arrived(offsets))

    def _with_retries(self, places: Iterable[Place]) -> list[Place]:
        return [(topic, partition) for source, partition in places for topic in self._plan.with_retries(source)]

    def _known(self, places: list[Place]) -> dict[Place, OffsetAndMetadata]:
        """What was committed."""
        return self._answered(lambda: self._source.known(places, _ANSWER)) if places else {}

    def _settle_topics(self, places: list[Place]) -> None:
        """Learn how many partitions the topics had when the group began to read them."""
        for topic in {topic for topic, _ in places if self._plan.start.get(topic) == "latest"}:
            if self._sizes.get(topic) == 0:
                continue
            # The owned ones may all be new: partitions of other members count too.
            everywhere = self._answered(partial(self._admin.partitions, topic))
            found = self._known([(topic, partition) for partition in everywhere])
            size = size_at_start(found.values(), len(everywhere))
            self._sizes[topic] = min(size, self._sizes.get(topic, size))

    def _begin(self, place: Place, known: OffsetAndMetadata | None) -> int:
        """Where to read from."""
        if known is not None:
            return known[0]
        # A partition that was added later is read from its start: it may have records from before it was discovered.
        return self._bounds(place)[1 if self._is_first(place) else 0]

    def _is_first(self, place: Place) -> bool:
        """Whether a partition was there when the group began, and is to be read from its end on."""
        topic, partition = place
        return partition < self._sizes.get(topic, 0)

    def _bounds(self, place: Place) -> tuple[int, int]:
        return self._answered(lambda: self._admin.bounds(*place))

    def _open(
        self, source: str, partitions: list[int], starts: Mapping[Place, int], known: Mapping[Place, OffsetAndMetadata]
    ) -> None:
        unclean = []
        for partition in partitions:
            places = self._with_retries([(source, partition)])
            for place in places:
                found = known.get(place)
                word = f"{NEW}{self._sizes[place[0]]}" if found is None and self._is_first(place) else UNDER_WAY
                owned = Partition(
                    place,
                    self._workers[place[0]],
                    starts[place],
                    known=found,
                    word=marker_at(found, word, clock=self._clock),
                    topic_id=self.logs.id_of(place[0]),
                    epoch=self._source.epoch,
                    limit=None if self._plan.limits is None or place[0] != source else self._plan.limits.get(place, 0),
                )
                if found is not None and not is_clean(found[1]):
                    self._inherit(owned, found)
                self._flow.begin(owned)
                self.partitions.begin(owned)
                for worker in self._workers[place[0]]:
                    worker.open(place)
            if not all(is_clean(known.get(place, (0, CLEAN))[1]) for place in places):
                unclean.append(partition)
        since = {place: (starts[place], self.partitions[place].since) for place in starts if place in self.partitions}
        for partition in self._recovery.begin(source, partitions, since, unclean=unclean):
            for place in self._with_retries([(source, partition)]):
                self.partitions[place].paused.add(Pause.RECOVERY)
        if source in self._plan.delayed:
            for partition in partitions:
                self.partitions[source, partition].paused.add(Pause.DELAY)
        self._new += [(source, partition) for partition in partitions]

    def _inherit(self, owned: Partition, found: OffsetAndMetadata) -> None:
        """Take over from an owner that did not end cleanly."""
        owned.doubtful = self._bounds(owned.place)[1]
        finished = decode_finished(*found)
        # A map that goes past the end belongs to another log; what is written next would be passed over.
        if finished is not None and finished.end <= owned.doubtful:
            owned.inherited = finished

    def settle_in(self) -> None:
        """Before the first record of new partitions runs: commit the marker that work is under way."""
        if not self._new:
            return
        places, self._new = [place for place in self._new if place in self.partitions], []
        marks = {place: self.partitions[place].first_commit() for place in self._with_retries(places)}
        offsets = {place: mark for place, mark in marks.items() if mark is not None}
        self.commit_now(offsets, max(self._deadline, self._clock.monotonic() + _ANSWER))

    def _answered(self, ask: Callable[[], T]) -> T:
        """A broker's answer; repeats the question until the deadline, because nothing can start without it."""
        while True:
            self.lease.renew()
            try:
                return ask()
            except BrokerUnavailableError:
                if self.is_leaving or self._clock.monotonic() > self._deadline:
                    raise
                self._clock.sleep(0.05)

    def _give_up(self, places: list[Place]) -> None:
        for source, partition in places:
            self._recovery.end(source, partition)
        for place in self._with_retries(places):
            for worker in self._workers[place[0]]:
                worker.fence(place, self._source.epoch)
            self.logs.leave(place)
            self.partitions.end(place)

    def _emit_revoked(self, places: list[Place], *, is_lost: bool) -> None:
        for topic in dict.fromkeys(topic for topic, _ in places):
            partitions = tuple(part for name, part in places if name == topic)
            self._listener.event(PartitionsRevoked(topic, partitions, is_lost))
