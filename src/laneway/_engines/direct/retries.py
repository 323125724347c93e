"""Retries: reads the retry topics of the partitions that are ours, and delayed sources, each record when it is due."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec

from laneway._kafka import AssignedConsumer, BrokerUnavailableError, OffsetRange
from laneway._runtime.feeds import Feeds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laneway._core.finished_map import FinishedMap
    from laneway._declare.record import Record
    from laneway._engines.direct.station import Station
    from laneway._kafka import Admin, Place
    from laneway._runtime.partition import Partitions
    from laneway._runtime.topics import Feed

__all__ = ["Retries"]

_LOOK = 0.1  # seconds between looks for what is due: part of how late a retry may be
_MOST = 1_000  # records a fetch
_FULL = 0.02  # seconds to wait for room


class Retries:
    """Feeds the stations of one source's retry topics, on a thread of its own.

    A retry topic has as many partitions as its source, and whoever owns a partition of the source reads the same
    partition of its retry topics. So they need no group of their own, and a key's retries are where its records are.

    Args:
        feeds: the source first, then its retry topics.
        stations: topic to the stations that run it.
        admin: tells the ends of logs, and makes retry topics that are missing.
        options: librdkafka options of the readers.
        skip_lost: go on when records were deleted before they were read.
        may_create: whether retry topics may be created.
        partitions: those that are ours.
    """

    def __init__(
        self,
        feeds: tuple[Feed, ...],
        stations: Mapping[str, list[Station]],
        *,
        admin: Admin,
        options: Mapping[str, Any],
        skip_lost: bool,
        may_create: bool,
        partitions: Partitions,
    ) -> None:
        self._feeds = Feeds(feeds, admin, may_create=may_create)
        self.topics = [feed.topic for feed in feeds if feed.delay or feed.step]
        """What it reads: the retry topics, and the source if its records are to be old."""
        self.passed = 0
        """Records that were left out, because an earlier owner has finished them, or that are counted as read here."""
        self._stations = stations
        self._options = options
        self._skip_lost = skip_lost
        self._partitions = partitions
        self._readers: dict[str, AssignedConsumer] = {}
        self._open: dict[str, tuple[int, dict[int, int]]] = {}
        """Topic that is being read to the epoch it is read in, and where its ranges end."""
        self._next: dict[Place, int] = {}
        self._finished: dict[Place, FinishedMap] = {}
        self._epoch = 0
        self.renewed: dict[str, int] = {}
        """Topics that seem to be made anew, to how many records waited in them. Not read until `own` or `go_on`."""
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self.is_paused = False
        self._thread = threading.Thread(target=self._work, name="laneway-retries", daemon=True)
        self.error: BaseException | None = None

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def end(self) -> None:
        """Read nothing more."""
        self._is_over.set()
        self._thread.join(timeout=5)

    def own(self, starts: Mapping[Place, int], epoch: int, finished: Mapping[Place, FinishedMap]) -> None:
        """These partitions of retry topics are ours, and are read from an offset on; what is finished is left out."""
        with self._lock:
            for place in starts:
                self.renewed.pop(place[0], None)
                self._finished.pop(place, None)
            self._next |= starts
            self._finished |= finished
            self._epoch = epoch

    def restart(self, topic: str, places: list[Place], epoch: int) -> None:
        """The source was recreated, and is read here: begin these of its partitions at their starts."""
        self._feeds.restart(topic)
        with self._lock:
            ours = [place for place in places if place in self._next]
        self.own(dict.fromkeys(ours, 0), epoch, {})

    def go_on(self, topic: str) -> None:
        """A topic was not made anew after all."""
        with self._lock:
            self.renewed.pop(topic, None)

    def disown(self, partition: int, epoch: int) -> None:
        """A partition is ours no longer."""
        with self._lock:
            for topic in self.topics:
                self._next.pop((topic, partition), None)
                self._finished.pop((topic, partition), None)
            self._epoch = epoch

    def is_empty(self, ends: Mapping[Place, int]) -> bool:
        """Whether everything of ours before these ends was read."""
        with self._lock:
            return all(self._next[place] >= end for place, end in ends.items() if place in self._next)

    def due(self) -> dict[Place, int]:
        """Up to where the retry topics may be read now.

        Raises:
            BrokerUnavailableError: nobody answered.
        """
        with self._lock:
            begin = dict(self._next)
        ends = self._feeds.ends(begin)
        return {place: end for place, end in ends.items() if place[0] in self.topics}

    def _work(self) -> None:
        try:
            while not self._is_over.is_set():
                wait = _LOOK
                if not self.is_paused:
                    try:
                        self._plan()
                        wait = self._read()
                    except BrokerUnavailableError:
                        self._feeds.forget()  # a topic may have been deleted: the next look makes it anew
                        wait = 1.0
                self._is_over.wait(wait)
        except BaseException as error:  # noqa: BLE001 - raised by the engine, on its own thread
            self.error = error
        finally:
            for reader in self._readers.values():
                reader.end()

    def _plan(self) -> None:
        """Open what is due, of topics that are not being read."""
        with self._lock:
            begin, epoch = dict(self._next), self._epoch
        if not begin:
            return
        due = self._feeds.ends(begin)
        self._notice_renewed(begin)
        for topic in self.topics:
            if topic in self._open or topic in self.renewed:
                continue
            ranges = [
                OffsetRange(topic, partition, at, due[topic, partition])
                for (name, partition), at in begin.items()
                if name == topic and due.get((topic, partition), 0) > at
            ]
            if ranges:
                if topic not in self._readers:
                    self._readers[topic] = AssignedConsumer(self._options, skip_lost=self._skip_lost)
                self._readers[topic].open(ranges)
                self._open[topic] = (epoch, {part.partition: part.end for part in ranges})

    def _notice_renewed(self, begin: Mapping[Place, int]) -> None:
        """Stop to read topics that were made anew, if we had read any of the old ones or something waited there."""
        while self._feeds.renewed:
            topic, seen = self._feeds.renewed.popitem()
            waited = sum(max(0, end - begin[place]) for place, end in seen.items() if place in begin)
            if waited or any(at for (name, _), at in begin.items() if name == topic):
                if self._open.pop(topic, None) is not None:
                    self._readers[topic].close()
                with self._lock:
                    self.renewed[topic] = self.renewed.get(topic, 0) + waited

    def _read(self) -> float:
        """Read some of what is open; gives the seconds to wait before the next look."""
        wait = _LOOK
        for topic, (epoch, ends) in list(self._open.items()):
            reader = self._readers[topic]
            room = min(station.room for station in self._stations[topic])
            owned = [part for place in ends if (part := self._partitions.get((topic, place))) is not None]
            if room <= 0 or not all(partition.may_read_on() for partition in owned):
                wait = min(wait, _FULL)
                continue
            records = reader.fetch(min(room, _MOST), 0.02)
            with self._lock:
                if epoch != self._epoch:
                    # Partitions came or went meanwhile: what was read may be of one that begins anew.
                    reader.close()
                    del self._open[topic]
                    wait = 0.0
                    continue
                self._deliver(topic, records, epoch)
                if reader.is_exhausted:
                    self._close(topic, ends)
                    reader.close()
                    del self._open[topic]
                    self._stations[topic][0].desk.tally.lost += self._lost(topic, reader)
                else:
                    wait = 0.0
        return wait

    def _deliver(self, topic: str, records: list[Record[Any]], epoch: int) -> None:
        """Under the lock, so that a partition which is given away meanwhile gets nothing more."""
        ours = [record for record in records if (topic, record.partition) in self._next]
        for record in ours:
            record.epoch = epoch
        last = {record.partition: record.offset + 1 for record in ours}
        fresh = self._unfinished(topic, ours)
        for partition, after in {record.partition: record.offset + 1 for record in fresh}.items():
            self._partitions[topic, partition].delivered = after
        self.passed += len(ours)
        for partition, after in last.items():
            self._next[topic, partition] = after
        for number, station in enumerate(self._stations[topic] if fresh else ()):
            station.intake.put(fresh if number == 0 else [msgspec.structs.replace(record) for record in fresh])
        if len(fresh) < len(ours):
            for partition, after in last.items():
                self._partitions[topic, partition].reached = after

    def _unfinished(self, topic: str, records: list[Record[Any]]) -> list[Record[Any]]:
        if not self._finished:
            return records
        found = self._finished
        return [
            record
            for record in records
            if (known := found.get((topic, record.partition))) is None or not known.has(record.offset)
        ]

    def _lost(self, topic: str, reader: AssignedConsumer) -> int:
        """How many records were deleted before they were read, without those that an earlier owner has finished."""
        known = [(self._finished.get((topic, partition)), start, end) for partition, start, end in reader.gone]
        return reader.lost - sum(found.count(start, end) for found, start, end in known if found is not None)

    def _close(self, topic: str, ends: Mapping[int, int]) -> None:
        for partition, end in ends.items():
            if (topic, partition) in self._next:
                self._next[topic, partition] = end
                self._partitions[topic, partition].reached = end
