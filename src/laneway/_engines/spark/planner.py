"""Planner: decides what each batch reads. It lives in a process beside the driver, as long as the query."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from laneway._core.finished_map import since_of
from laneway._engines.spark.control_link import ControlLine, send_log_lines
from laneway._engines.spark.group_commits import GroupCommits
from laneway._engines.spark.plan import Part, Position, TaskSpec, merged, pack
from laneway._engines.spark.source_topic import SourceTopic, check_starts
from laneway._engines.spark.worker import routes_of
from laneway._kafka import Admin, BrokerUnavailableError, GroupOffsets, Place
from laneway._runtime.due_offsets import ABSENT, LOOK, DueOffsets, until_answered
from laneway._runtime.recreated_topics import size_at_start
from laneway.errors import DataLossError
from laneway.observe import logger

if TYPE_CHECKING:
    from laneway._declare.handler import HandlerSpec
    from laneway._engines.spark.query_spec import QuerySpec

__all__ = ["Planner"]

_log = logger("spark")

Places = dict[Place, int]
Batch = dict[str, int]
"""The batch number, which is all that Spark logs. The group and the planner know where a batch begins and ends."""

_WAIT = 0.1  # seconds a call waits for records; then Spark calls again at once
_LOOK_AT_ID = 1.0  # seconds between checks of the source's id while idle
_NUMBER = "batch"


class Planner:
    """Plans the batches of one topic and its retry topics, from the offsets that the group has not finished.

    Spark calls it from one thread. While the brokers do not answer it plans nothing, and the query waits.
    """

    def __init__(self, stream: QuerySpec) -> None:
        self._stream = stream
        self._line = ControlLine(stream.control)
        if self._line.link is not None:
            send_log_lines(self._line.link)
            self._line.begin()
            self._line.link.wait()
        self._routes = routes_of(stream)
        self._admin = Admin(stream.client)
        self._group = GroupOffsets(stream.client, stream.app)
        self._feeds = DueOffsets(stream.feeds, self._admin, may_create=stream.may_create)
        self._source = SourceTopic(stream, self._admin)
        self._commits = GroupCommits(self._group, self._source.name)
        self._positions: dict[str, dict[Place, Position]] = {name: {} for name in stream.routes}
        self._topic_id = ""
        self._batch = 0
        self._ends: Places = {}
        self._target: Places | None = None
        self._recovered: Places | None = None
        """Ends of the logs at the start: a killed run cannot have handled records after them."""
        self._is_unclean = False
        """Whether a killed run may have handled records of the first batch."""
        self._recreated: set[str] = set()
        """Recreated retry topics, which are read from their starts."""

    def initial(self) -> Batch:
        """Start at the group's offsets, or where the start policy says."""
        until_answered(self._begin)
        return {_NUMBER: 0}

    def freeze(self) -> None:
        """Plan nothing beyond the present ends of the logs."""
        self._target = until_answered(lambda: self._feeds.ends({}))
        if self._stream.errors is not None:
            ends = self._stream.errors.ends
            self._target = {place: min(end, ends.get(place[1], 0)) for place, end in self._target.items()}

    def latest(self, start: Batch) -> Batch:
        """The next batch; *start* itself when there is none. Spark asks only when no batch runs."""
        self._take_positions()
        if self._line.orders.is_stopping:
            self._commits.commit_final(self._done(), self._topic_id)
            self._line.answer(is_drained=True)
            time.sleep(LOOK)
            return start
        deadline = time.monotonic() + _WAIT
        while True:
            if pause := self._line.orders.pause:
                self._line.answer(paused=pause)
                time.sleep(LOOK)
                if self._target is None or self._line.orders.is_stopping:
                    return start
                continue  # the answer "no records" would end a run with `once`
            try:
                self._ends = self._next()
            except BrokerUnavailableError:
                self._feeds.forget()
                time.sleep(ABSENT)
                return start
            if self._ends:
                self._batch += 1
                return {_NUMBER: self._batch}
            if self._target is not None:
                self._commits.commit_final(self._done(), self._topic_id)
            if self._target is not None or time.monotonic() >= deadline or self._line.orders.is_stopping:
                return start
            time.sleep(LOOK)

    def tasks(self) -> list[TaskSpec]:
        begin = self._places()
        if self._recovered is None or len(self._stream.feeds) > 1:
            until_answered(self._feeds.look)
            self._recovered = self._recovered or dict(self._feeds.logs)
        topic_id, recovered = self._topic_id, self._recovered
        self._feeds.start_checks(lambda: self._line.answer(loss=self._source.guard(topic_id, begin)))
        parts = [self._part(place, at) for place, at in begin.items()]
        pool = max(self._feeds.partitions(self._stream.feeds[0]), len({part.partition for part in parts}))
        most = self._line.orders.tasks or self._stream.tasks
        return [
            TaskSpec(
                tuple(found),
                {
                    name: self._lanes(route, pool, len({part.partition for part in found}), share)
                    for name, route in self._routes.items()
                },
                any(part.length and begin[part.place] < recovered.get(part.place, 0) for part in found),
                self._batch,
                topic_id,
            )
            for found, share in pack(parts, tasks=most)
        ]

    def _part(self, place: Place, begin: int) -> Part:
        positions = {name: self._positions[name][place] for name in self._readers(place[0])}
        log_end = self._feeds.logs.get(place, begin)
        return Part(*place, positions, self._ends.get(place, begin), log_end, self._commits.since(place))

    @staticmethod
    def _lanes(route: HandlerSpec, pool: int, count: int, share: float) -> int:
        """Lanes of a task: its fraction of the pool of all partitions; strict lanes stay with their partition."""
        lanes = max(1, route.lanes)
        return lanes * count if route.strict else max(1, round(lanes * pool * share))

    def _take_positions(self) -> None:
        """Take the positions of the last batch, check for recreated topics, and commit the consequences."""
        self._feeds.stop_checks()
        self._is_unclean &= not self._ends
        if self._ends:
            progress = self._line.progress(self._batch)
            if progress is None:
                until_answered(self._reset_to_group)
            else:
                for name, topic, partition, position in progress.positions:
                    self._positions[name][topic, partition] = position
            self._commits.committed({place: self._merged(place) for place in self._ends}, self._topic_id)
        self._ends = {}
        self._log_recreated()
        is_new = self._commits.is_new(self._done())
        with suppress(BrokerUnavailableError):  # a commit names its topic: if that was recreated, the next run knows
            self._restart_if_other(at_most=0.0 if is_new else _LOOK_AT_ID)
        self._commits.commit(self._done(), self._topic_id)

    def _reset_to_group(self) -> None:
        """Reset the positions to the committed ones, which are never ahead of the finished ones."""
        known = self._group.known(self._ends)
        for place in self._ends:
            if place in known:
                position = Position.of(*known[place])
                for name in self._readers(place[0]):
                    self._positions[name][place] = position

    def _begin(self) -> None:
        self._topic_id = self._source.id()
        for feed in self._stream.feeds:
            partitions = self._feeds.numbers(feed)
            known = self._group.known([(feed.topic, partition) for partition in partitions])
            valid = known if feed.step else self._source.valid(known, self._topic_id)
            begin = self._admin.starts(feed.topic, partitions)
            if not feed.step and self._stream.start == "latest" and len(valid) == len(known):
                size = size_at_start(known.values(), len(partitions))
                if first := [partition for partition in partitions if partition < size]:
                    begin |= self._admin.ends(feed.topic, first)
            for partition, offset in begin.items():
                place = (feed.topic, partition)
                self._put(place, Position.of(*valid[place]) if place in valid else Position(offset))
            self._commits.learn(valid)
            self._is_unclean |= any(since_of(text) is not None for _, text in valid.values())
        self._commits.commit_first(self._done(), self._topic_id)

    def _next(self) -> Places:
        """Where the next batch ends in each partition that has records."""
        ends = self._target if self._target is not None else self._feeds.ends(self._places())
        if self._recovered is None:
            self._recovered = dict(self._feeds.logs)
        self._log_recreated()
        if any([self._start_recreated(), *(self._set_position(place, ends) for place in ends)]):
            return self._next()  # the due offsets were requested for other positions
        begin = self._places()
        waiting = {place: end for place, end in ends.items() if end > begin[place]}
        if self._is_unclean and (
            first := {place: end for place, end in waiting.items() if place[0] == self._source.name}
        ):
            # Records that are repeated must not run beside copies of later ones of their keys, which are due by now.
            waiting = first
        if waiting:
            check_starts(self._stream, self._admin, begin, waiting)
            # The ends may be those of a topic that was recreated a moment ago.
            if self._restart_if_other():
                return {}
        return waiting

    def _set_position(self, place: Place, ends: Places) -> bool:
        """Set the position of a new partition, or of a log that is shorter than its position.

        Returns:
            Whether the position changed.
        """
        known, (topic, partition) = self._positions[self._readers(place[0])[0]].get(place), place
        if known is None:
            found = self._group.known([place])
            self._commits.learn(found)
            self._put(place, Position.of(*found[place]) if place in found else Position(self._start(place)))
            return True
        begin = self._merged(place).begin
        is_past = begin > ends.get(place, begin) and begin > self._feeds.logs.get(place, begin)
        is_past = is_past and self._source.is_past_end((topic, partition), begin)
        if is_past:
            self._put(place, Position(self._start(place)))
        return is_past

    def _restart_if_other(self, at_most: float = 0.0) -> bool:
        """Start over when the source was deleted and recreated; whether it was."""
        source, begin = self._source.name, self._places()
        if not self._source.is_other(self._topic_id, begin, at_most=at_most):
            self._topic_id = self._topic_id or self._source.id(at_most=_LOOK_AT_ID)
            return False
        self._feeds.forget()
        self._feeds.restart(source)
        partitions = self._admin.partitions(source)
        if not partitions:
            raise BrokerUnavailableError(f"the partitions of topic {source} are not known yet")
        for name in self._readers(source):
            kept = {place: at for place, at in self._positions[name].items() if place[0] != source}
            self._positions[name] = kept | {(source, partition): Position(0) for partition in partitions}
        if self._recovered is not None:  # no run has handled records of the new topic
            self._recovered = {place: end for place, end in self._recovered.items() if place[0] != source}
        if self._target is not None:
            ends = self._feeds.ends({place: at for place, at in begin.items() if place[0] != source})
            self._target = {place: end for place, end in self._target.items() if place[0] != source}
            self._target |= {place: end for place, end in ends.items() if place[0] == source}
        self._topic_id = self._source.id(at_most=_LOOK_AT_ID)
        self._commits.restart((source, partition) for partition in partitions)
        self._commits.commit(self._done(), self._topic_id)
        return True

    def _log_recreated(self) -> None:
        """Log retry topics that were deleted, and how many records were lost with them."""
        while self._feeds.recreated:
            topic, seen = self._feeds.recreated.popitem()
            begin = self._places()
            waited = sum(max(0, end - begin.get(place, 0)) for place, end in seen.items())
            is_used = waited or any(offset for place, offset in begin.items() if place[0] == topic)
            loss = f"at least {waited} deferred records are lost" if waited else "its deferred records are lost"
            text = f"the retry topic {topic} was deleted while it was in use: {loss}"
            if is_used and not self._stream.skip_lost:
                raise DataLossError(f"{text}. To continue without them, set on_data_loss: continue")
            if is_used:
                _log.warning(text)
            self._recreated.add(topic)

    def _start_recreated(self) -> bool:
        """Start recreated retry topics at their beginnings; whether there were any."""
        recreated = tuple(self._recreated)
        for topic in recreated:
            places = [place for place in self._places() if place[0] == topic]
            starts = self._admin.starts(topic, [partition for _, partition in places])
            for place in places:
                self._put(place, Position(starts[place[1]]))
            self._recreated.discard(topic)
        return bool(recreated)

    def _readers(self, topic: str) -> tuple[str, ...]:
        return next(feed.routes for feed in self._stream.feeds if feed.topic == topic)

    def _put(self, place: Place, position: Position) -> None:
        for name in self._readers(place[0]):
            self._positions[name][place] = position

    def _merged(self, place: Place) -> Position:
        return merged(self._positions[name][place] for name in self._readers(place[0]))

    def _places(self) -> Places:
        """The first unfinished offset of each partition."""
        return {
            place: self._merged(place).begin
            for feed in self._stream.feeds
            for place in self._positions[feed.routes[0]]
            if place[0] == feed.topic
        }

    def _done(self) -> dict[Place, Position]:
        """The positions that may be committed: not those of a recreated retry topic, whose records would be skipped."""
        return {place: self._merged(place) for place in self._places() if place[0] not in self._recreated}

    def _start(self, place: Place) -> int:
        return self._admin.starts(place[0], [place[1]])[place[1]]
