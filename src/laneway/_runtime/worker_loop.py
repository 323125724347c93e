"""WorkerLoop: reads partitions, feeds handlers, commits. One thread owns it, or a test drives it step by step."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from laneway._clock import SystemClock
from laneway._runtime.flow import MOST
from laneway._runtime.partition import Pause

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from laneway._clock import WaitingClock
    from laneway._declare.record import Record
    from laneway._kafka import OffsetAndMetadata, PartitionOwner, Place
    from laneway._runtime.assignment import Assignment, DueView
    from laneway._runtime.flow import Flow
    from laneway._runtime.handler_worker import HandlerWorker
    from laneway._runtime.partition import Partition, PartitionView
    from laneway._runtime.retry_source import RetrySource
    from laneway._runtime.topics import ReadPlan

__all__ = ["RecordSource", "Recovery", "Request", "WorkerLoop", "WorkerStatus"]

_SYSTEM = SystemClock()
_TEND = 0.05  # seconds between looks at what is full and what is to be committed
_POLL = 0.1  # seconds to wait for records
_POLL_BESIDE = 0.05  # seconds to wait for them where other topics are read beside: part of how late a retry may be
_SHORT = 0.002  # seconds to wait for room
_FULL = 0.02  # seconds to wait for records while there is no room for others
_COMING = 0.01  # seconds to wait for records while others are on their way


class RecordSource(Protocol):
    """Reads the sources: as a `GroupConsumer`, in given ranges, or without a broker. One thread calls it."""

    epoch: int
    """Counts how often partitions came or went; records carry it."""
    passed: int
    """How many records were passed over, because an earlier owner had finished them."""

    @property
    def is_member(self) -> bool:
        """Whether the client considers itself a member of the group."""
        ...

    def subscribe(self, topics: Collection[str], owner: PartitionOwner) -> None:
        """Join the group; *owner* gets assigned and revoked partitions."""
        ...

    def read(self, most: int, timeout: float) -> list[Record[Any]]:
        """Up to *most* records, as soon as there are some; calls the owner about partitions meanwhile."""
        ...

    def known(self, places: Iterable[Place], timeout: float) -> dict[Place, OffsetAndMetadata]:
        """What the group has committed."""
        ...

    def apply_pauses(self) -> None:
        """Read no partition that has a reason to be paused, and all others."""
        ...

    def seek(self, place: Place, offset: int) -> None:
        """Continue at another offset."""
        ...

    def close(self) -> None:
        """Give all partitions back and leave the group."""
        ...


class Recovery(Protocol):
    """Looks up what former owners of partitions have left."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being looked up."""
        ...

    def begin(
        self, source: str, partitions: list[int], starts: Mapping[Place, tuple[int, int]], *, unclean: list[int]
    ) -> list[int]:
        """Start to look things up; returns the partitions that are not to be read meanwhile."""
        ...

    def end(self, source: str, partition: int) -> None:
        """Ignore findings about a revoked partition."""
        ...

    def done(self) -> list[Place]:
        """Partitions that may be read now."""
        ...


class Request(Enum):
    """What a loop is asked for."""

    PAUSE = "read nothing for now, and stay in the group"
    RESUME = "read again"
    STOP = "read nothing more"
    LEAVE = "commit, and end; what is being finished is not waited for"


class WorkerStatus(NamedTuple):
    """A loop as it was at one moment."""

    partitions: Mapping[Place, PartitionView]
    """The owned ones, of retry topics too."""
    has_joined: bool
    """Whether the group has given it partitions, or said that there are none for it."""
    is_recovering: bool
    """Whether copies of former owners are being looked up."""
    is_holding: bool
    """Whether reading is paused on request, and everything read is with the handlers."""
    is_committed: bool
    """Whether everything finished is committed, at the end."""
    polled: float
    gaps: int
    """Offsets that were passed and held no record."""


class WorkerLoop:
    """Reads what it owns and what is due beside, gives it to the handlers, and commits what they finish.

    Args:
        plan: what is read.
        source: reads the sources.
        rebalance: gives the partitions.
        flow: says how much may be read.
        recovery: looks up what former owners have left.
        workers: topic, of retries too, to those of the handlers that read it.
        retry_source: reads retry topics, and sources whose records wait until they are due.
        monitor: knows what of those is due.
        clock: the time.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        plan: ReadPlan,
        *,
        source: RecordSource,
        rebalance: Assignment,
        flow: Flow,
        recovery: Recovery,
        workers: Mapping[str, Sequence[HandlerWorker]],
        retry_source: RetrySource,
        monitor: DueView,
        clock: WaitingClock = _SYSTEM,
    ) -> None:
        self._plan = plan
        self._source = source
        self._rebalance = rebalance
        self._flow = flow
        self.partitions = rebalance.partitions
        """The owned ones, of retry topics too. Any thread may read it."""
        self._recovery = recovery
        self._workers = workers
        self._retry_source = retry_source
        self._monitor = monitor
        self._clock = clock
        self._is_paused = self._is_stopping = False
        self._read = self._shared = 0
        self._tended = self._polled = self._clock.monotonic()
        self._committer = rebalance.committer(self._tended)
        self.is_leaving = False

    def status(self) -> WorkerStatus:
        """The current status. Any thread may ask."""
        return WorkerStatus(
            {partition.place: partition.view() for partition in tuple(self.partitions.values())},
            self._rebalance.has_joined.is_set(),
            not self._recovery.is_idle,
            self._flow.is_holding,
            self._committer.is_done,
            self._polled,
            self.gaps,
        )

    @property
    def gaps(self) -> int:
        """Offsets that were passed and held no record. Any thread may ask."""
        passed = self._source.passed + self._retry_source.passed
        return max(0, self.partitions.spanned - self._read - passed)

    def is_past(self, ends: Mapping[Place, int]) -> bool:
        """Whether every owned partition is finished up to these ends. Any thread may ask."""
        status, ends = self.status(), {**ends, **self._rebalance.logs.ends}
        found = status.partitions
        is_known = status.has_joined and not status.is_recovering
        return is_known and all(found[place].low >= end for place, end in ends.items() if place in found)

    def request(self, request: Request) -> None:
        """Ask for something; it is done in the next step. Any thread may call it."""
        match request:
            case Request.PAUSE | Request.RESUME:
                self._is_paused = request is Request.PAUSE
            case Request.STOP:
                self._is_stopping = True
            case Request.LEAVE:
                self._rebalance.is_leaving = True  # what could be finished is finished
                self._is_stopping = self.is_leaving = True

    def begin(self) -> None:
        """Join the group; `step` reads."""
        self._rebalance.begin()

    def run(self, until: Callable[[], bool]) -> None:
        """Join the group and work until *until* is true."""
        self.begin()
        while not until():
            self._wait(self.step())

    def drain(self) -> None:
        """Commit what is finished for the last time, and see it acknowledged, for as long as that may take."""
        while not self._committer.commit_last(self._clock.monotonic()):
            self._wait(self.step())

    def commit(self) -> bool:
        """Commit what is finished now; False when the group did not take it."""
        return self._committer.commit_now(self._clock.monotonic())

    def close(self) -> None:
        """Give all partitions back and leave the group."""
        self._rebalance.is_leaving = True
        try:
            self._source.close()
        finally:
            self._retry_source.end()

    def _wait(self, seconds: float) -> None:
        if seconds:
            self._clock.sleep(seconds)

    def step(self) -> float:
        """One round: read, give to the handlers, take over or give up partitions, pause or resume, commit.

        Returns:
            The seconds to wait before the next one, besides the wait for records in here.
        """
        now = self._polled = self._clock.monotonic()
        if now - self._tended >= _TEND:
            self._tended = now
            self.tend(now)
        self._flow.hold(on=self._is_paused or self._is_stopping)
        wait = _POLL if self._flow.is_holding else self._poll_retries()
        room = 0 if self._flow.is_holding else self._flow.room(now)  # what retries have left of it
        if self._flow.has_changed:
            self._flow.has_changed = False
            self._source.apply_pauses()
        if room <= 0 and self._flow.is_waiting(now):
            return _SHORT
        records = self._source.read(max(1, min(room, MOST)), wait if room > 0 else min(wait, _FULL))
        self._rebalance.has_read()
        if self._shared != self._source.epoch:
            self._share_lanes()
        if records:
            self._deliver(records)
        return 0.0

    def _share_lanes(self) -> None:
        """Partitions came or went: give the handlers lanes for the owned ones."""
        self._shared = self._source.epoch
        for source in self._plan.topics:
            count = len(self.partitions.of((source,)))
            for worker in self._workers[source]:
                worker.share(count)

    def _poll_retries(self) -> float:
        """Give the handlers what is due of retry topics; returns how long to wait for other records."""
        wait = _POLL_BESIDE if self._retry_source.topics else _POLL
        due = self._monitor.view.due  # first: a topic that was recreated before is known then
        while self._monitor.recreated:
            self._rebalance.logs.suspect(*self._monitor.recreated.popleft())
        for topic in self._retry_source.topics:
            if not self._retry_source.open(topic, due):
                continue
            room = self._flow.room_of(topic)
            if room <= 0:
                wait = min(wait, _FULL)
                continue
            # Half of it: what is due must not keep the handler from what comes.
            records, lost = self._retry_source.read(topic, min((room + 1) // 2, MOST))
            self._rebalance.logs.lose(topic, lost)
            wait = min(wait, 0.0 if records else _COMING)
            if records:
                self._put(topic, records)
        return wait

    def tend(self, now: float) -> None:
        """Pause and resume partitions, and commit when it is time; `step` calls it often."""
        for topic, partition in self._recovery.done():
            for beside in self._plan.with_retries(topic):
                if (beside, partition) in self.partitions:
                    self.partitions[beside, partition].paused.discard(Pause.RECOVERY)
        self._rebalance.logs.settle_suspects()
        if not self._flow.is_holding:
            self._flow.look()
        self._source.apply_pauses()
        self._committer.tend(now)

    def _deliver(self, records: list[Record[Any]]) -> None:
        if len(self._plan.topics) == 1:
            self._put(self._plan.topics[0], records)
            return
        by_topic: dict[str, list[Record[Any]]] = {}
        for record in records:
            by_topic.setdefault(record.topic, []).append(record)
        for topic, found in by_topic.items():
            self._put(topic, found)

    def _put(self, topic: str, records: list[Record[Any]]) -> None:
        for partition, record in {record.partition: record for record in records}.items():
            owned = self.partitions.get((topic, partition))
            if owned is None or record.epoch < owned.epoch:
                continue  # it was revoked while the others were read
            if owned.limit is None or record.offset < owned.limit:
                owned.delivered = record.offset + 1
            else:
                records = self._within(records, owned, owned.limit)
            self._flow.delivered(owned)
        self._committer.count += len(records)
        self._read += len(records)
        for number, worker in enumerate(self._workers[topic] if records else ()):
            # Each handler has records of its own: attempts and decoded values are written into them.
            worker.put(records if number == 0 else [msgspec.structs.replace(record) for record in records])

    @staticmethod
    def _within(records: list[Record[Any]], owned: Partition, limit: int) -> list[Record[Any]]:
        """Without those of a partition that lie past its limit; it is read no further."""
        partition = owned.place[1]
        records = [record for record in records if record.partition != partition or record.offset < limit]
        owned.delivered = max([owned.delivered, *[each.offset + 1 for each in records if each.partition == partition]])
        owned.reached = limit  # last: other threads must not see it before the offsets that precede it
        return records
