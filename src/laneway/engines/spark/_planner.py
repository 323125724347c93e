"""Planner: decides which offsets each batch takes. It lives in a process beside the driver, as long as the query."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from laneway.engines._feeds import ABSENT, LOOK, Feeds, patiently
from laneway.engines.spark._plan import BatchSize, Share, pack, spread
from laneway.engines.spark._worker import routes_of
from laneway.errors import DataLossError
from laneway.kafka import Admin, BrokerAbsentError, GroupOffsets, Place, Range

if TYPE_CHECKING:
    from laneway._route import Route
    from laneway.engines._topics import Feed
    from laneway.engines.spark._stream import Stream

__all__ = ["DRAINED", "PAUSE", "PAUSED", "STOP", "TASKS", "WAITED", "Planner"]

Offsets = dict[str, dict[str, int]]
Places = dict[Place, int]

STOP, DRAINED, PAUSE, PAUSED, WAITED, TASKS = "stop", "drained", "pause", "paused", "waited", "tasks"
"""Files of the control folder: asked to stop; every batch is committed and none will come; asked to plan nothing, with
a number; the number of the pause in which no batch runs; seconds that the last batch waited for back-offs; most tasks
of a handler in a batch, when that changes while the query runs."""

_WAIT = 0.1  # seconds a call waits for records before it says that there are none; Spark then asks again at once
_RENEW = 3600.0  # seconds after which offsets are committed again: Kafka forgets those of an idle partition in a week
_LAST_COMMIT = 10.0  # seconds for the commit before a stop; without a checkpoint what it misses is read again


class Planner:
    """Plans the batches of one topic and its retry topics, and commits the group's offsets after Spark's commit log.

    Spark calls it from one thread. When the brokers do not answer it plans nothing, and the query waits.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._routes = routes_of(stream)
        self._admin = Admin(stream.client)
        self._group = GroupOffsets(stream.client, stream.app)
        self._feeds = Feeds(stream.feeds, self._admin)
        self._size = BatchSize(stream.batch_target, stream.max_batch_records, stream.first_batch)
        self._committed: Places = {}
        self._renewed = time.monotonic()
        self._running: tuple[Offsets, int, float] | None = None
        self._target: Places | None = None
        self._recovered: Places | None = None
        """Ends of the logs at the start: a run that was killed cannot have worked on anything past them."""
        self._anew: set[str] = set()
        """Retry topics that were made anew and are to be read from their starts."""

    def initial(self) -> Offsets:
        """Where a query without a checkpoint begins: the group's offsets, else the start policy."""
        return patiently(self._begin)

    def freeze(self) -> None:
        """From now on plan nothing past the ends the logs have at this moment."""
        self._target = patiently(lambda: self._feeds.ends({}))
        if self._stream.errors is not None:
            ends = self._stream.errors.ends
            self._target = {place: min(end, ends.get(place[1], 0)) for place, end in self._target.items()}

    def latest(self, start: Offsets) -> Offsets:
        """Where the next batch ends; the start itself when there is nothing to do.

        Spark asks only when the batch before is in its commit log, so what it asks with may be committed.
        """
        begin = _as_places(start)
        self._completed(start)
        self._notice_renewed(begin)
        # Not those of a topic that was made anew: they would pass over what is in it.
        done = {place: offset for place, offset in begin.items() if place[0] not in self._anew}
        self._commit(done)
        if self._is_asked_to(STOP):
            self._commit_for_good(done)
            (Path(self._stream.control) / DRAINED).touch()
            time.sleep(LOOK)
            return start
        deadline = time.monotonic() + _WAIT
        while True:
            if self._is_asked_to(PAUSE):
                self._confirm_pause()
                time.sleep(LOOK)
                if self._target is None or self._is_asked_to(STOP):
                    return start
                continue  # the answer that nothing waits would end a run that handles what there is
            try:
                end = self._end_of_next(begin)
            except BrokerAbsentError:
                self._feeds.forget()
                time.sleep(ABSENT)
                return start
            if end != begin:
                return _as_offsets(end)
            if self._target is not None or time.monotonic() >= deadline or self._is_asked_to(STOP):
                return start
            time.sleep(LOOK)

    def shares(self, start: Offsets, end: Offsets) -> list[Share]:
        """The tasks of a batch."""
        begin, until = _as_places(start), _as_places(end)
        behind = patiently(lambda: self._behind(begin, until))
        spans = patiently(lambda: self._spans(begin, until))
        self._running = (end, sum(part.length for part in spans), time.monotonic())
        self._feeds.tend()
        return [
            share
            for feed in self._stream.feeds
            for name in feed.routes
            for share in self._shares_of(feed, self._routes[name], spans, behind)
        ]

    def _shares_of(self, feed: Feed, route: Route, spans: list[Range], behind: Places) -> list[Share]:
        ranges = [part for part in spans if part.topic == feed.topic]
        pool = max(self._feeds.partitions(feed), len(ranges))
        lanes = max(1, route.lanes) * (1 if route.strict else pool)
        shares = pack(route.name, ranges, lanes=lanes, tasks=self._tasks(), is_strict=route.strict)
        own = [other for other in self._stream.feeds if route.name in other.routes]
        ends = self._feeds.logs
        topics = {other.topic for other in own}
        since = tuple((*place, offset) for place, offset in behind.items() if place[0] in topics)
        return [
            replace(
                share,
                step=feed.step,
                since=since,
                pending=tuple(
                    Range(other.topic, part.partition, behind[place], ends[place])
                    for other in own
                    if other.step > feed.step
                    for part in share.ranges
                    if (place := (other.topic, part.partition)) in behind and ends.get(place, 0) > behind[place]
                ),
                is_recovering=any(
                    part.start < (self._recovered or {}).get((part.topic, part.partition), 0) for part in share.ranges
                ),
            )
            for share in shares
        ]

    def _begin(self) -> Offsets:
        found: Places = {}
        for feed in self._stream.feeds:
            partitions = self._feeds.numbers(feed)
            is_late = not feed.step and self._stream.start != "earliest"
            begin = self._admin.ends if is_late else self._admin.starts
            known = begin(feed.topic, partitions) | self._group.committed(feed.topic, partitions)
            found |= {(feed.topic, partition): offset for partition, offset in known.items()}
        return _as_offsets(found)

    def _end_of_next(self, begin: Places) -> Places:
        """Where the next batch would end; *begin* itself when nothing waits."""
        ends = self._target if self._target is not None else self._feeds.ends(begin)
        if self._recovered is None:
            self._recovered = dict(self._feeds.logs)
        self._notice_renewed(begin)
        if anew := self._starts_anew(begin):
            return begin | anew
        firsts = {place: self._first(place, begin, ends) for place in ends}
        waiting = {place: ends[place] - first for place, first in firsts.items()}
        waiting = {place: count for place, count in waiting.items() if count > 0}
        if waiting:
            self._check_starts(begin, waiting)
        taken = spread(waiting, self._size.limit)
        # A log that was made anew and is still empty: its old offset must go before as many records come again. And a
        # partition that is new: what comes to wait in it must be known from its first record on.
        renewed = {place: first for place, first in firsts.items() if first != begin.get(place)}
        return begin | renewed | {place: firsts[place] + count for place, count in taken.items()}

    def _spans(self, begin: Places, until: Places) -> list[Range]:
        """The parts of a batch."""
        parts = [
            Range(*place, self._first(place, begin, until), stop)
            for place, stop in until.items()
            if stop != begin.get(place)
        ]
        return [part for part in parts if part.length > 0]

    def _behind(self, begin: Places, until: Places) -> Places:
        """Up to where everything is finished; looks at the ends of the logs anew when there are retry topics."""
        if self._recovered is None or len(self._stream.feeds) > 1:
            self._feeds.look()
            # A batch of a checkpoint that is run again comes before any look for the next one.
            self._recovered = self._recovered or dict(self._feeds.logs)
        return begin | {place: self._first(place, begin, until) for place in until if place not in begin}

    def _completed(self, start: Offsets) -> None:
        """Learn from the batch that ended at *start*."""
        if self._running is not None and self._running[0] == start:
            self._size.measured(self._running[1], time.monotonic() - self._running[2] - self._waited())
        self._running = None
        self._feeds.rest()

    def _waited(self) -> float:
        """Seconds of the batch in which all it had left was waiting for a back-off: no pace of the handler.

        Taken for one, it would make the next batch smaller, though a smaller one waits as long.
        """
        path = Path(self._stream.control) / WAITED
        try:
            return float(path.read_text())
        except (OSError, ValueError):
            return 0.0

    def _commit(self, offsets: Places) -> None:
        """Commit what is new, and wait for it: a kill right after must not repeat a batch that is done."""
        if time.monotonic() - self._renewed > _RENEW:
            self._committed, self._renewed = {}, time.monotonic()
        new = {place: offset for place, offset in offsets.items() if self._committed.get(place) != offset}
        try:
            self._group.commit_all(new, wait=True)
        except BrokerAbsentError:
            return  # the next call tries again
        self._committed |= new

    def _commit_for_good(self, offsets: Places) -> None:
        """Commit and see it done; a coordinator that is away is waited for, but not for ever."""
        deadline = time.monotonic() + _LAST_COMMIT
        while True:
            try:
                return self._group.commit_all(offsets, wait=True)
            except BrokerAbsentError:
                if time.monotonic() > deadline:
                    return None
                time.sleep(LOOK)

    def _is_asked_to(self, what: str) -> bool:
        return bool(self._stream.control) and (Path(self._stream.control) / what).exists()

    def _confirm_pause(self) -> None:
        """Tell the driver that the batch before is committed and none runs, with the number of the pause it asked for.

        Without the number a pause that follows a `resume` could be confirmed by what is left of the one before.
        """
        folder = Path(self._stream.control)
        with suppress(FileNotFoundError):  # resumed in this moment
            (folder / PAUSED).write_text((folder / PAUSE).read_text())

    def _tasks(self) -> int:
        """Most tasks of a handler in a batch: as many as the executors can run now, where the driver says so."""
        try:
            return int((Path(self._stream.control) / TASKS).read_text())
        except (OSError, ValueError):
            return self._stream.tasks

    def _first(self, place: Place, begin: Places, ends: Places) -> int:
        """The first offset to read: where the last batch ended, or the start of a partition that is new."""
        known, (topic, partition) = begin.get(place), place
        if known is None:
            # A partition or a retry topic that came after the checkpoint was made; the group may know it.
            return self._group.committed(topic, [partition]).get(partition, self._start(place))
        if known > ends.get(place, known) and known > self._feeds.logs.get(place, known):
            if not self._stream.skip_lost:
                raise DataLossError(
                    f"{topic}[{partition}] ends at {self._feeds.logs[place]}, before offset {known} which was "
                    "already read: the topic was deleted and made anew, or its log was cut. To read it from its "
                    "start set on_data_loss: continue"
                )
            return self._start(place)
        return known

    def _notice_renewed(self, begin: Places) -> None:
        """Tell of retry topics that were deleted, with what waited in them."""
        while self._feeds.renewed:
            topic, seen = self._feeds.renewed.popitem()
            waited = sum(max(0, end - begin.get(place, 0)) for place, end in seen.items())
            is_used = waited or any(offset for place, offset in begin.items() if place[0] == topic)
            told = f"at least {waited} records that waited in it are lost" if waited else "what waited in it is lost"
            text = f"the retry topic {topic} was deleted while it was in use: {told}"
            if is_used and not self._stream.skip_lost:
                raise DataLossError(f"{text}. To go on without them set on_data_loss: continue")
            if is_used:
                sys.stderr.write(f"laneway: {text}\n")
                sys.stderr.flush()
            self._anew.add(topic)

    def _starts_anew(self, begin: Places) -> Places:
        """Where the retry topics that were made anew begin, unless *begin* says so already."""
        anew: Places = {}
        for topic in tuple(self._anew):
            places = [place for place in begin if place[0] == topic]
            starts = self._admin.starts(topic, [partition for _, partition in places])
            changed = {place: starts[place[1]] for place in places if starts[place[1]] != begin[place]}
            if not changed:
                self._anew.discard(topic)
            anew |= changed
        return anew

    def _start(self, place: Place) -> int:
        return self._admin.starts(place[0], [place[1]])[place[1]]

    def _check_starts(self, begin: Places, waiting: Places) -> None:
        """Notice deleted records here, before any handler runs; a task would run again for each of its attempts."""
        if self._stream.skip_lost:
            return
        for feed in self._stream.feeds:
            partitions = [partition for topic, partition in waiting if topic == feed.topic]
            lows = self._admin.starts(feed.topic, partitions) if partitions else {}
            for partition, low in lows.items():
                known = begin.get((feed.topic, partition), low)
                if known < low:
                    raise DataLossError(
                        f"{feed.topic}[{partition}]: offsets {known} to {low - 1} are gone (the log begins at "
                        f"{low} now). They were deleted before they were read. To go on without them set "
                        "on_data_loss: continue"
                    )


def _as_offsets(places: Places) -> Offsets:
    offsets: Offsets = {}
    for (topic, partition), offset in sorted(places.items()):
        offsets.setdefault(topic, {})[str(partition)] = offset
    return offsets


def _as_places(offsets: Offsets) -> Places:
    return {(topic, int(partition)): offset for topic, found in offsets.items() for partition, offset in found.items()}
