"""Member: reads the topics of one cluster with the app's consumer group, feeds the stations, and commits."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from laneway._engines.direct.committer import Committer
from laneway._runtime.flow import MOST
from laneway._runtime.partition import Pause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laneway._declare.record import Record
    from laneway._engines.direct.assignment import Assignment
    from laneway._engines.direct.recovery import Recovery
    from laneway._engines.direct.station import Station
    from laneway._kafka import GroupConsumer, Place
    from laneway._runtime.flow import Flow
    from laneway._runtime.monitor import BrokerMonitor
    from laneway._runtime.partition import PartitionView
    from laneway._runtime.retry_source import RetrySource

__all__ = ["Member"]

_TEND = 0.05  # seconds between looks at what is full and what is to be committed
_POLL = 0.1  # seconds to wait for records
_POLL_BESIDE = 0.05  # seconds to wait for them where other topics are read beside: part of how late a retry may be
_SHORT = 0.002  # seconds to wait for room
_FULL = 0.02  # seconds to wait for records while there is no room for others
_COMING = 0.005  # seconds to wait for records while others are on their way


class Member:
    """One member of a consumer group. Its own thread reads, commits, and is told what the group decides.

    Args:
        membership: the member, as Kafka sees it.
        assignment: deals with partitions that come and go.
        flow: says how much may be read.
        recovery: looks up what former owners have left.
        stations: topic, of retries too, to the stations that read it.
        sources: the topics to subscribe to.
        retry_source: reads their retry topics, and those of them whose records wait until they are old.
        monitor: knows what of those is due.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        membership: GroupConsumer,
        *,
        assignment: Assignment,
        flow: Flow,
        recovery: Recovery,
        stations: Mapping[str, list[Station]],
        sources: list[str],
        retry_source: RetrySource,
        monitor: BrokerMonitor,
    ) -> None:
        self._membership = membership
        self._assignment = assignment
        self._flow = flow
        self.partitions = assignment.partitions
        """Those that are ours, of retry topics too. Any thread may read it."""
        self._recovery = recovery
        self._stations = stations
        self._sources = sources
        self._retry_source = retry_source
        self._monitor = monitor
        self._lease = assignment.lease
        self._is_paused = self._is_stopping = self._is_over = False
        self._read = self._shared = 0
        self._tended = time.monotonic()
        self._committer = Committer(membership, assignment, self.partitions, self._tended)
        self._thread = threading.Thread(target=self._work, name="laneway-member", daemon=True)
        self.polled = time.monotonic()
        """When it last read, or tried to."""
        self.error: BaseException | None = None
        """What ended it, if it was not told to leave."""

    @property
    def owned(self) -> list[Place]:
        """The partitions of the sources that are ours."""
        return [partition.place for partition in self.partitions.of(self._sources)]

    def views(self) -> dict[Place, PartitionView]:
        """How each partition that is ours stands. Any thread may ask."""
        return {partition.place: partition.view() for partition in tuple(self.partitions.values())}

    @property
    def is_over(self) -> bool:
        """Whether it has left the group."""
        return not self._thread.is_alive()

    @property
    def has_joined(self) -> bool:
        """Whether the group has given it partitions, or said that there are none for it."""
        return self._assignment.has_joined.is_set()

    @property
    def gaps(self) -> int:
        """Offsets that were passed and held no record."""
        passed = self._membership.passed + self._retry_source.passed
        return max(0, self.partitions.spanned - self._read - passed)

    @property
    def is_holding(self) -> bool:
        """Whether nothing is read any more, and what was read is in the intakes. Any thread may ask."""
        return self._flow.is_holding

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    def pause(self, *, on: bool) -> None:
        """Read nothing for now, or go on. It stays in the group. Any thread may call it."""
        self._is_paused = on

    def stop(self) -> None:
        """Read nothing more. Any thread may call it."""
        self._is_stopping = True

    def leave(self) -> None:
        """Commit, leave the group and end; `is_over` and `is_committed` say how far it is. Any thread may call it."""
        self._assignment.is_leaving = True  # what could be finished is finished
        self._is_stopping = self._is_over = True

    @property
    def is_committed(self) -> bool:
        """Whether everything finished is committed, at the end. Any thread may ask."""
        return self._committer.is_done or self._thread.ident is None  # one that never began has nothing to commit

    def is_past(self, ends: Mapping[Place, int]) -> bool:
        """Whether everything of ours before these ends is finished. Any thread may ask."""
        if not self.has_joined or not self._recovery.is_idle:
            return False
        found, ends = self.views(), {**ends, **self._assignment.logs.ends}
        return all(found[place].low >= end for place, end in ends.items() if place in found)

    def raise_if_failed(self) -> None:
        """Raise what ended it, if anything did."""
        if self.error is not None:
            raise self.error

    def _work(self) -> None:
        try:
            try:
                self._membership.subscribe(self._sources)
                while not self._is_over:
                    self._turn()
                while not self._committer.commit_last(time.monotonic()):
                    self._turn()
            finally:
                self._assignment.is_leaving = True
                self._membership.close()
        except BaseException as error:  # noqa: BLE001 - raised by the engine, on its own thread
            self.error = error
        finally:
            self._retry_source.end()

    def _turn(self) -> None:
        now = self.polled = time.monotonic()
        if now - self._tended >= _TEND:
            self._tended = now
            self._tend(now)
        self._flow.hold(on=self._is_paused or self._is_stopping)
        room = 0 if self._flow.is_holding else self._flow.room(now)
        if self._flow.has_changed:
            self._flow.has_changed = False
            self._membership.apply_pauses()
        wait = _POLL if self._flow.is_holding else self._poll_retries()
        if room <= 0 and self._flow.is_waiting(now):
            time.sleep(_SHORT)
            return
        records = self._membership.read(max(1, min(room, MOST)), wait if room > 0 else min(wait, _FULL))
        self._lease.renew()
        self._assignment.settle_in()
        if self._shared != self._membership.epoch:
            self._share_lanes()
        if records:
            self._deliver(records)

    def _share_lanes(self) -> None:
        """Partitions came or went: handlers have lanes for those that are ours now."""
        self._shared = self._membership.epoch
        for source in self._sources:
            count = sum(topic == source for topic, _ in self.owned)
            for topic in self._assignment.beside(source):
                for station in self._stations[topic]:
                    station.share(count)

    def _poll_retries(self) -> float:
        """Give the handlers what is due of topics that are read beside; how long the group may be waited for then."""
        wait = _POLL_BESIDE if self._retry_source.topics else _POLL
        due = self._monitor.view.due  # first: a topic that was recreated before is known then
        while self._monitor.recreated:
            self._assignment.logs.suspect(*self._monitor.recreated.popleft())
        for topic in self._retry_source.topics:
            if not self._retry_source.open(topic, due):
                continue
            room = self._flow.room_of(topic)
            if room <= 0:
                wait = min(wait, _FULL)
                continue
            records, lost = self._retry_source.read(topic, min(room, MOST))
            self._assignment.logs.lose(topic, lost)
            wait = min(wait, 0.0 if records else _COMING)
            if records:
                self._put(topic, records)
        return wait

    def _tend(self, now: float) -> None:
        for topic, partition in self._recovery.done():
            for beside in self._assignment.beside(topic):
                if (beside, partition) in self.partitions:
                    self.partitions[beside, partition].paused.discard(Pause.RECOVERY)
        self._assignment.logs.settle_suspects()
        if not self._flow.is_holding:
            self._flow.look()
        self._membership.apply_pauses()
        self._committer.tend(now)

    def _deliver(self, records: list[Record[Any]]) -> None:
        if len(self._sources) == 1:
            self._put(self._sources[0], records)
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
                continue  # it went while the others were read
            limit, offset = owned.limit, record.offset
            if limit is not None and offset >= limit:
                owned.reached = limit
                records = [each for each in records if each.partition != partition or each.offset < limit]
                offset = max([each.offset for each in records if each.partition == partition], default=offset)
            if limit is None or offset < limit:
                owned.delivered = offset + 1
            self._flow.delivered(owned)
        self._committer.count += len(records)
        self._read += len(records)
        for number, station in enumerate(self._stations[topic] if records else ()):
            # Each handler has records of its own: attempts and decoded values are written into them.
            own = records if number == 0 else [msgspec.structs.replace(record) for record in records]
            station.intake.put(own)
