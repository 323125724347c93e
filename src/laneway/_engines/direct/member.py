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
    from laneway._engines.direct.retries import Retries
    from laneway._engines.direct.station import Station
    from laneway._kafka import GroupConsumer, Place
    from laneway._runtime.flow import Flow
    from laneway._runtime.partition import PartitionView

__all__ = ["Member"]

_TEND = 0.05  # seconds between looks at what is full and what is to be committed
_POLL = 0.1  # seconds to wait for records
_SHORT = 0.002  # seconds to wait for room


class Member:
    """One member of a consumer group. Its own thread reads, commits, and is told what the group decides.

    Args:
        membership: the member, as Kafka sees it.
        assignment: deals with partitions that come and go.
        flow: says how much may be read.
        recovery: looks up what former owners have left.
        stations: topic, of retries too, to the stations that read it.
        sources: the topics to subscribe to.
        retries: source to what reads its retry topics.
    """

    def __init__(
        self,
        membership: GroupConsumer,
        *,
        assignment: Assignment,
        flow: Flow,
        recovery: Recovery,
        stations: Mapping[str, list[Station]],
        sources: list[str],
        retries: Mapping[str, Retries],
    ) -> None:
        self._membership = membership
        self._assignment = assignment
        self._flow = flow
        self.partitions = assignment.partitions
        """Those that are ours, of retry topics too. Any thread may read it."""
        self._recovery = recovery
        self._stations = stations
        self._sources = sources
        self._retries = retries
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
        passed = self._membership.passed + sum(found.passed for found in self._retries.values())
        return max(0, self.partitions.spanned - self._read - passed)

    @property
    def is_holding(self) -> bool:
        """Whether nothing is read any more, and what was read is in the intakes. Any thread may ask."""
        return self._flow.is_holding

    def start(self) -> None:
        """Join the group."""
        for found in self._retries.values():
            found.start()
        self._thread.start()

    def pause(self, *, on: bool) -> None:
        """Read nothing for now, or go on. It stays in the group. Any thread may call it."""
        self._is_paused = on
        for found in self._retries.values():
            found.is_paused = on

    def stop(self) -> None:
        """Read nothing more. Any thread may call it."""
        self._is_stopping = True
        for found in self._retries.values():
            found.end()

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
        for error in (self.error, *(found.error for found in self._retries.values())):
            if error is not None:
                raise error

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
            for found in self._retries.values():
                found.end()

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
        if room <= 0 and self._flow.is_waiting(now):
            time.sleep(_SHORT)
            return
        records = self._membership.read(max(1, min(room, MOST)), _POLL if room > 0 else _SHORT * 10)
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
            for topic in dict.fromkeys([source, *(self._retries[source].topics if source in self._retries else ())]):
                for station in self._stations[topic]:
                    station.share(count)

    def _tend(self, now: float) -> None:
        for place in self._recovery.done():
            if place in self.partitions:
                self.partitions[place].paused.discard(Pause.RECOVERY)
                self._assignment.own_retries(*place)
        for source, retries in self._retries.items():
            if retries.renewed:
                self._assignment.logs.begin_retries(source)
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
