"""Planner: decides which offsets each batch takes. It lives in a process beside the driver, as long as the query."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from laneway._engines.spark.control_link import ControlLine, send_log_lines
from laneway._engines.spark.group_commits import GroupCommits
from laneway._engines.spark.plan import BatchSize, TaskSpec, pack, spread
from laneway._engines.spark.source_topic import SourceTopic, check_starts
from laneway._engines.spark.worker import routes_of
from laneway._kafka import Admin, BrokerUnavailableError, GroupOffsets, OffsetRange, Place
from laneway._runtime.feeds import ABSENT, LOOK, Feeds, patiently
from laneway._runtime.recreated import differs, size_at_start
from laneway.errors import DataLossError

if TYPE_CHECKING:
    from laneway._declare.handler import HandlerSpec
    from laneway._engines.spark.query_spec import QuerySpec
    from laneway._runtime.topics import Feed

__all__ = ["Planner"]

Offsets = dict[str, dict[str, int | str]]
"""As Spark keeps them: topic to partition to offset; under ``id`` the id of the source."""
Places = dict[Place, int]

_WAIT = 0.1  # seconds a call waits for records before it says that there are none; Spark then asks again at once
_ID = "id"
_LOOK_AT_ID = 1.0  # seconds between looks at the source's id while there is nothing to do


class Planner:
    """Plans the batches of one topic and its retry topics, and commits the group's offsets after Spark's commit log.

    Spark calls it from one thread. When the brokers do not answer it plans nothing, and the query waits.
    """

    def __init__(self, stream: QuerySpec) -> None:
        self._stream = stream
        self._line = ControlLine(stream.control)
        if self._line.link is not None:
            send_log_lines(self._line.link)
            self._line.link.wait()
        self._routes = routes_of(stream)
        self._admin = Admin(stream.client)
        self._group = GroupOffsets(stream.client, stream.app)
        self._feeds = Feeds(stream.feeds, self._admin, may_create=stream.may_create)
        self._size = BatchSize(stream.batch_target, stream.max_batch_records, stream.first_batch)
        self._source = SourceTopic(stream, self._admin)
        self._commits = GroupCommits(self._group, self._source.name)
        self._running: tuple[Offsets, int, float] | None = None
        self._target: Places | None = None
        self._recovered: Places | None = None
        """Ends of the logs at the start: a run that was killed cannot have worked on anything past them."""
        self._anew: set[str] = set()
        """Retry topics that were made anew and are to be read from their starts."""

    def initial(self) -> Offsets:
        """Where a query without a checkpoint begins: the group's offsets, else the start policy."""
        self._commits.is_of_group = True
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
        begin, topic_id, is_restarted = self._committed_up_to(start)
        done = self._done(begin)
        if self._line.orders.is_stopping:
            self._commits.commit_for_good(done, topic_id)
            self._line.answer(is_drained=True)
            time.sleep(LOOK)
            return start
        if is_restarted:
            return self._as_offsets(begin, topic_id)
        deadline = time.monotonic() + _WAIT
        while True:
            if pause := self._line.orders.pause:
                self._line.answer(paused=pause)
                time.sleep(LOOK)
                if self._target is None or self._line.orders.is_stopping:
                    return start
                continue  # the answer that nothing waits would end a run that handles what there is
            try:
                end, topic_id = self._next(begin, topic_id)
            except BrokerUnavailableError:
                self._feeds.forget()
                time.sleep(ABSENT)
                return start
            if end != begin:
                return self._as_offsets(end, topic_id)
            if self._target is not None:
                self._commits.commit_for_good(done, topic_id)
            if self._target is not None or time.monotonic() >= deadline or self._line.orders.is_stopping:
                return start
            time.sleep(LOOK)

    def _next(self, begin: Places, topic_id: str) -> tuple[Places, str]:
        """Where the next batch would end, and of which topic."""
        end = self._end_of_next(begin)
        # The ends may be those of a topic that was recreated a moment ago.
        if end != begin and (restarted := self._restarted(begin, topic_id)) is not None:
            end, topic_id = restarted
        return end, topic_id or self._source.id(at_most=_LOOK_AT_ID)

    def _committed_up_to(self, start: Offsets) -> tuple[Places, str, bool]:
        """Commit where the next batch begins; gives that, the id of the source, and whether it was recreated."""
        begin, topic_id = _as_places(start), self._id_of(start)
        self._completed(start)
        self._notice_renewed(begin)
        restarted = self._restarted_before_commit(begin, topic_id)
        if restarted is not None:
            begin, topic_id = restarted
        done = self._done(begin)
        if self._commits.learn(begin):
            self._commits.commit_first(done, topic_id)
        elif restarted is not None:
            self._commits.restart(begin)
        self._commits.commit(done, topic_id)
        return begin, topic_id, restarted is not None

    def _done(self, begin: Places) -> Places:
        """What may be committed: not a retry topic that was recreated, or what is in it would be passed over."""
        return {place: offset for place, offset in begin.items() if place[0] not in self._anew}

    def shares(self, start: Offsets, end: Offsets) -> list[TaskSpec]:
        """The tasks of a batch."""
        self._commits.learn(_as_places(start))
        begin, until = _as_places(start), _as_places(end)
        topic_id = self._id_of(end)
        if differs(self._id_of(start), topic_id):  # from the old topic to the start of the new one: nothing is between
            begin |= {place: offset for place, offset in until.items() if place[0] == self._source.name}
        elif patiently(lambda: self._source.is_other(topic_id, begin, at_most=_LOOK_AT_ID)):
            return []  # planned by a run that was killed, of a topic that was deleted since
        behind = patiently(lambda: self._behind(begin, until))
        spans = patiently(lambda: self._spans(begin, until))
        self._running = (end, sum(part.length for part in spans), time.monotonic())
        self._feeds.tend(lambda: self._line.answer(loss=self._source.guard(topic_id, begin)))
        return [
            share
            for feed in self._stream.feeds
            for name in feed.routes
            for share in self._shares_of(feed, self._routes[name], spans, behind)
        ]

    def _shares_of(self, feed: Feed, route: HandlerSpec, spans: list[OffsetRange], behind: Places) -> list[TaskSpec]:
        ranges = [part for part in spans if part.topic == feed.topic]
        pool = max(self._feeds.partitions(feed), len(ranges))
        lanes = max(1, route.lanes) * (1 if route.strict else pool)
        shares = pack(
            route.name, ranges, lanes=lanes, tasks=self._line.orders.tasks or self._stream.tasks, is_strict=route.strict
        )
        own = [other for other in self._stream.feeds if route.name in other.routes]
        ends = self._feeds.logs
        topics = {other.topic for other in own}
        since = tuple(
            (*place, offset, self._commits.since(place)) for place, offset in behind.items() if place[0] in topics
        )
        return [
            replace(
                share,
                step=feed.step,
                since=since,
                pending=tuple(
                    OffsetRange(other.topic, part.partition, behind[place], ends[place])
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
        topic_id = self._source.id()
        for feed in self._stream.feeds:
            partitions = self._feeds.numbers(feed)
            known = self._group.known([(feed.topic, partition) for partition in partitions])
            valid = known if feed.step else self._source.valid(known, topic_id)
            begin = self._admin.starts(feed.topic, partitions)
            if not feed.step and self._stream.start == "latest" and len(valid) == len(known):
                size = size_at_start(known.values(), len(partitions))
                if first := [partition for partition in partitions if partition < size]:
                    begin |= self._admin.ends(feed.topic, first)
            found |= {(feed.topic, partition): offset for partition, offset in begin.items()}
            found |= {place: offset for place, (offset, _) in valid.items()}
        return self._as_offsets(found, topic_id)

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
            check_starts(self._stream, self._admin, begin, waiting)
        taken = spread(waiting, self._size.limit)
        # A log that was made anew and is still empty: its old offset must go before as many records come again. And a
        # partition that is new: what comes to wait in it must be known from its first record on.
        renewed = {place: first for place, first in firsts.items() if first != begin.get(place)}
        return begin | renewed | {place: firsts[place] + count for place, count in taken.items()}

    def _spans(self, begin: Places, until: Places) -> list[OffsetRange]:
        """The parts of a batch."""
        parts = [
            OffsetRange(*place, self._first(place, begin, until), stop)
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
            self._size.measured(self._running[1], time.monotonic() - self._running[2] - self._line.orders.waited)
        self._running = None
        self._feeds.rest()

    def _restarted_before_commit(self, begin: Places, topic_id: str) -> tuple[Places, str] | None:
        """As `_restarted`, at once if there is something to commit, else about once a second."""
        is_new = self._commits.is_new(begin)
        try:
            return self._restarted(begin, topic_id, at_most=0.0 if is_new else _LOOK_AT_ID)
        except BrokerUnavailableError:
            return None  # a commit names its topic: if that was recreated, the next run knows

    def _restarted(self, begin: Places, topic_id: str, at_most: float = 0.0) -> tuple[Places, str] | None:
        """Where everything begins when the source was deleted and recreated, and its id; None when it is the same."""
        source = self._source.name
        if not self._source.is_other(topic_id, begin, at_most=at_most):
            return None
        self._feeds.forget()
        self._feeds.restart(source)
        partitions = self._admin.partitions(source)
        if not partitions:
            raise BrokerUnavailableError(f"the partitions of topic {source} are not known yet")
        others = {place: offset for place, offset in begin.items() if place[0] != source}
        if self._recovered is not None:  # no run has worked on anything of the new one
            self._recovered = {place: end for place, end in self._recovered.items() if place[0] != source}
        if self._target is not None:
            ends = self._feeds.ends(others)
            self._target = {place: end for place, end in self._target.items() if place[0] != source}
            self._target |= {place: end for place, end in ends.items() if place[0] == source}
        return others | {(source, partition): 0 for partition in partitions}, self._source.id(at_most=_LOOK_AT_ID)

    def _id_of(self, offsets: Offsets) -> str:
        return str(offsets.get(self._source.name, {}).get(_ID, ""))

    def _as_offsets(self, places: Places, topic_id: str) -> Offsets:
        offsets: Offsets = {}
        for (topic, partition), offset in sorted(places.items()):
            offsets.setdefault(topic, {})[str(partition)] = offset
        if topic_id and self._source.name in offsets:
            offsets[self._source.name][_ID] = topic_id
        return offsets

    def _first(self, place: Place, begin: Places, ends: Places) -> int:
        """The first offset to read: where the last batch ended, or the start of a partition that is new."""
        known, (topic, partition) = begin.get(place), place
        if known is None:
            # A partition or a retry topic that came after the checkpoint was made; the group may know it.
            return self._group.committed(topic, [partition]).get(partition, self._start(place))
        is_past = known > ends.get(place, known) and known > self._feeds.logs.get(place, known)
        return self._start(place) if is_past and self._source.is_past_end(place, known) else known

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


def _as_places(offsets: Offsets) -> Places:
    return {
        (topic, int(partition)): int(offset)
        for topic, found in offsets.items()
        for partition, offset in found.items()
        if partition != _ID
    }
