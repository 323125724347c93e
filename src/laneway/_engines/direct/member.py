"""Member: reads the topics of one cluster with the app's consumer group, feeds the stations, and commits."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from laneway._engines.direct.committer import Committer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laneway._declare.record import Record
    from laneway._engines.direct.assignment import Assignment
    from laneway._engines.direct.offsets import Offsets
    from laneway._engines.direct.recovery import Recovery
    from laneway._engines.direct.retries import Retries
    from laneway._engines.direct.station import Station
    from laneway._kafka import GroupConsumer, Place

__all__ = ["Member"]

_FETCH = 1_000  # records a read: to convert more at once would keep lanes waiting for the interpreter
_TEND = 0.05  # seconds between looks at what is full and what is to be committed
_POLL = 0.1  # seconds to wait for records
_SHORT = 0.002  # seconds to wait for room
_HOLD = 0.5  # seconds without room before partitions are paused: to pause throws away what is fetched


class Member:
    """One member of a consumer group. Its own thread reads, commits, and is told what the group decides.

    Args:
        membership: the member, as Kafka sees it.
        assignment: deals with partitions that come and go.
        offsets: what may be committed.
        recovery: looks up what former owners have left.
        stations: topic, of retries too, to the stations that read it.
        sources: the topics to subscribe to.
        delayed: those of them that are read like retry topics, each record when it is old enough.
        retries: source to what reads its retry topics.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        membership: GroupConsumer,
        *,
        assignment: Assignment,
        offsets: Offsets,
        recovery: Recovery,
        stations: Mapping[str, list[Station]],
        sources: list[str],
        delayed: set[str],
        retries: Mapping[str, Retries],
        limits: Mapping[Place, int] | None = None,
    ) -> None:
        self._membership = membership
        self._assignment = assignment
        self._offsets = offsets
        self._recovery = recovery
        self._stations = stations
        self._sources = sources
        self._live = [topic for topic in sources if topic not in delayed]
        self._limits = limits
        self._retries = retries
        self._lease = assignment.lease
        self._held = assignment.held
        """Topics that are paused because their stations are full."""
        self._is_paused = self._is_stopping = self._is_over = False
        self._full_since: float | None = None
        self._read = self._shared = 0
        self._tended = time.monotonic()
        self._committer = Committer(membership, assignment, offsets, self._tended)
        self._thread = threading.Thread(target=self._work, name="laneway-member", daemon=True)
        self.polled = time.monotonic()
        """When it last read, or tried to."""
        self.error: BaseException | None = None
        """What ended it, if it was not told to leave."""

    @property
    def owned(self) -> list[Place]:
        """The partitions of the sources that are ours."""
        return [place for place in self._offsets.places if place[0] in self._sources]

    @property
    def delivered(self) -> Mapping[Place, int]:
        """The offset after the last record of each partition that was given to the handlers. Any thread may ask."""
        return self._offsets.delivered.copy()

    def hindrance(self, place: Place) -> str:
        """Why nothing more is read of a partition of ours, if that is our doing; empty else. Any thread may ask."""
        if place in self._recovery.places:
            return "what its former owner has left is being looked up"
        if self.is_full(place):
            return "commits can tell of no more records that are finished past the lowest unfinished one"
        if place[0] in self._held:
            return "as many records are in work or wait for a lane as may be"
        return ""

    def is_full(self, place: Place) -> bool:
        """Whether a partition is not read on because commits can tell of no more. Any thread may ask."""
        return place in self._offsets.full

    @property
    def places(self) -> set[Place]:
        """The partitions that are ours, of retry topics too."""
        return set(self._offsets.places)

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
        return max(0, self._offsets.spanned - self._read - passed)

    @property
    def is_holding(self) -> bool:
        """Whether nothing is read any more, and what was read is in the intakes. Any thread may ask."""
        return self._held.issuperset(self._live)

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
        found, ends = self.progress(), {**ends, **self._assignment.logs.ends}
        return all(found[place][0] >= end for place, end in ends.items() if place in found)

    def progress(self) -> dict[Place, tuple[int, int, list[int]]]:
        """What of each partition may be committed, was read, and is unfinished. Any thread may ask."""
        found = {}
        for place in self._offsets.places:
            try:
                found[place] = self._offsets.progress(place)
            except KeyError:
                continue  # it is being given back
        return found

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
        room = self._room(now)
        if room <= 0 and self._full_since is not None and now - self._full_since < _HOLD:
            time.sleep(_SHORT)
            return
        records = self._membership.read(max(1, min(room, _FETCH)), _POLL if room > 0 else _SHORT * 10)
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

    def _room(self, now: float) -> int:
        """How many records may be read; none while everything that could be read is full."""
        if self._is_paused or self._is_stopping:
            self._hold(self._live)
            return 0
        # What is held gives nothing, whatever room it has by now: the others neither wait for it nor go on without it.
        free = [topic for topic in self._live if topic not in self._held]
        rooms = {topic: min([station.room for station in self._stations[topic]]) for topic in free}
        full = [topic for topic, room in rooms.items() if room <= 0]
        if len(full) < len(rooms):
            self._full_since = None
            if full:
                self._hold(full)  # others may go on
        elif full:
            self._full_since = self._full_since or now
            if now - self._full_since >= _HOLD:
                self._hold(full)
        return min([room for topic, room in rooms.items() if topic not in full], default=0)

    def _hold(self, topics: list[str]) -> None:
        new = [topic for topic in topics if topic not in self._held]
        if new:
            self._held.update(new)
            self._membership.pause([place for place in self.owned if place[0] in new])

    def _tend(self, now: float) -> None:
        for place in self._recovery.done():
            self._assignment.own_retries(*place)
            if place[0] in self._live and place[0] not in self._held:
                self._membership.resume([place])
        for source, retries in self._retries.items():
            if retries.renewed:
                self._assignment.logs.begin_retries(source)
        if not (self._is_paused or self._is_stopping):
            self._let_go_on()
            self._keep_in_bounds()
        self._committer.tend(now)

    def _let_go_on(self) -> None:
        """Read topics again whose stations have worked off half of what they may hold."""
        free = [topic for topic in self._held if all(station.is_half_free for station in self._stations[topic])]
        if free:
            self._held.difference_update(free)
            waiting = self._recovery.places | self._ended | self._offsets.full
            self._membership.resume([place for place in self.owned if place[0] in free and place not in waiting])

    def _keep_in_bounds(self) -> None:
        """Hold a partition back that has taken more than its share, or whose commits can tell of no more."""
        for topic in self._live:
            if topic in self._held:
                continue
            places = [place for place in self.owned if place[0] == topic]
            most = min(station.route.buffer.records for station in self._stations[topic])
            share = max(_FETCH, 2 * most // max(1, len(places)))
            waiting = self._recovery.places | self._ended
            used = most - min(station.room for station in self._stations[topic])
            for place in places:
                count = max(station.desk.ledger.count(place[1]) for station in self._stations[topic])
                is_much = count > share and used > most // 2
                if is_much or not self._may_read_on(place):
                    self._membership.pause([place])
                elif count <= share // 2 and place in self._membership.paused and place not in waiting:
                    self._membership.resume([place])

    def _may_read_on(self, place: Place) -> bool:
        return self._offsets.may_read_on(place, self._membership.finished.get(place))

    @property
    def _ended(self) -> set[Place]:
        """Partitions that have reached their limits in this ownership."""
        limits = self._limits
        if limits is None:
            return set()
        return {place for place in self.owned if self._offsets.position(place) >= limits.get(place, 0)}

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
        if self._limits is not None:
            records = self._within(topic, records, self._limits)
            if not records:
                return
        last = dict(zip([record.partition for record in records], [record.offset for record in records], strict=True))
        delivered, stops = self._offsets.delivered, self._offsets.stops
        for partition, offset in last.items():
            delivered[topic, partition] = offset + 1
            if offset + 1 >= stops.get((topic, partition), 0) and not self._may_read_on((topic, partition)):
                self._membership.pause([(topic, partition)])
        self._committer.count += len(records)
        self._read += len(records)
        for number, station in enumerate(self._stations[topic]):
            # Each handler has records of its own: attempts and decoded values are written into them.
            own = records if number == 0 else [msgspec.structs.replace(record) for record in records]
            station.intake.put(own)

    def _within(self, topic: str, records: list[Record[Any]], limits: Mapping[Place, int]) -> list[Record[Any]]:
        """Those before the limits; a partition that has reached its own is read no further."""
        past = {record.partition for record in records if record.offset >= limits.get((topic, record.partition), 0)}
        for partition in past:
            self._offsets.reached[topic, partition] = limits.get((topic, partition), 0)
        self._membership.pause([(topic, partition) for partition in past])
        return [record for record in records if record.offset < limits.get((topic, record.partition), 0)]
