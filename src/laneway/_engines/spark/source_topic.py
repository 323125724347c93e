"""SourceTopic: whether the topic that a query reads is still the one that its offsets are of."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from laneway._core.finished_map import topic_id_of
from laneway._kafka import BrokerUnavailableError
from laneway._runtime.recreated_topics import as_loss, describe, differs, is_of_another_log
from laneway.errors import DataLossError
from laneway.observe import logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from laneway._engines.spark.query_spec import QuerySpec
    from laneway._kafka import Admin, OffsetAndMetadata, Place

__all__ = ["SourceTopic", "check_starts"]

_log = logger("spark")

_LOOK = 1.0  # seconds between requests while idle


class SourceTopic:
    """Detects that a source topic was deleted and recreated: its name is the same, but its id differs.

    With ``on_data_loss: continue`` the new topic is read from its start, otherwise the query ends. The topic of an
    error run is not checked.
    """

    def __init__(self, stream: QuerySpec, admin: Admin) -> None:
        self._stream = stream
        self._admin = admin
        self._is_watched = stream.errors is None
        self._id = ""
        self._asked = float("-inf")
        self._told: set[str] = set()

    @property
    def name(self) -> str:
        return self._stream.topic

    def id(self, *, at_most: float = 0.0) -> str:
        """The topic's id, cached for some seconds; empty when the topic is missing or brokers are too old.

        Raises:
            BrokerUnavailableError: no broker answered.
        """
        if self._is_watched and time.monotonic() - self._asked > at_most:
            self._id = self._admin.topic_ids([self.name]).get(self.name, "")
            self._asked = time.monotonic()
        return self._id

    def valid(self, known: Mapping[Place, OffsetAndMetadata], topic_id: str) -> dict[Place, OffsetAndMetadata]:
        """The commits that belong to the topic with this id.

        Raises:
            BrokerUnavailableError: no broker answered.
            DataLossError: some do not, and ``on_data_loss`` is ``fail``.
        """
        if not (self._is_watched and known):
            return dict(known)
        ends = self._admin.high_watermarks(list(known))
        lost = {place for place, found in known.items() if is_of_another_log(found, ends[place], topic_id)}
        if lost:
            is_recreated = any(differs(topic_id_of(known[place][1]), topic_id) for place in lost)
            found = {place[1]: (known[place][0], ends[place]) for place in lost}
            self._decide(self.name, found, is_recreated=is_recreated)
        return {place: found for place, found in known.items() if place not in lost}

    def is_other(self, topic_id: str, offsets: Mapping[Place, int], *, at_most: float = 0.0) -> bool:
        """Whether these offsets belong to a deleted topic.

        Raises:
            BrokerUnavailableError: no broker answered.
            DataLossError: they do, and ``on_data_loss`` is ``fail``.
        """
        if not differs(topic_id, self.id(at_most=at_most)):
            return False
        self._decide(self.name, self._stood(offsets), is_recreated=True)
        return True

    def is_past_end(self, place: Place, offset: int) -> bool:
        """Whether an offset lies after the end of a log although the topic's id is the same.

        Raises:
            BrokerUnavailableError: no broker answered.
            DataLossError: it does, and ``on_data_loss`` is ``fail``.
        """
        end = self._admin.high_watermarks([place])[place]
        if offset > end:
            self._decide(place[0], {place[1]: (offset, end)}, is_recreated=False)
        return offset > end

    def guard(self, topic_id: str, offsets: Mapping[Place, int]) -> str:
        """Why the query must end in the middle of its batch: the topic was recreated; else an empty text.

        The tasks would read the new topic at the old offsets, and Spark would repeat each one that fails.

        Raises:
            BrokerUnavailableError: no broker answered.
        """
        if self._stream.skip_lost or not (self._is_watched and topic_id):
            return ""
        if not differs(topic_id, self._admin.topic_ids([self.name]).get(self.name, "")):
            return ""
        return str(as_loss(describe(self.name, self._stood(offsets), is_recreated=True), self._stream.start))

    def _stood(self, offsets: Mapping[Place, int]) -> dict[int, tuple[int, int]]:
        """Each partition's offset and the present end of its log."""
        there = [(self.name, partition) for partition in self._admin.partitions(self.name)]
        if not there:
            raise BrokerUnavailableError(f"there is no topic {self.name}")
        ends = self._admin.high_watermarks(there)
        return {place[1]: (offset, ends.get(place, 0)) for place, offset in offsets.items() if place[0] == self.name}

    def _decide(self, topic: str, found: Mapping[int, tuple[int, int]], *, is_recreated: bool) -> None:
        """End the query because of data loss, or log that it continues."""
        text = describe(topic, found, is_recreated=is_recreated)
        if not self._stream.skip_lost:
            raise as_loss(text, self._stream.start)
        if text not in self._told:
            self._told.add(text)
            _log.warning("%s; it is read from its start", text)


def check_starts(stream: QuerySpec, admin: Admin, begin: Mapping[Place, int], waiting: Iterable[Place]) -> None:
    """Detect deleted records before any handler runs; otherwise each attempt of a task would run.

    Raises:
        DataLossError: records are lost, and ``on_data_loss`` is ``fail``.
    """
    if stream.skip_lost:
        return
    for feed in stream.feeds:
        partitions = [partition for topic, partition in waiting if topic == feed.topic]
        lows = admin.starts(feed.topic, partitions) if partitions else {}
        for partition, low in lows.items():
            known = begin.get((feed.topic, partition), low)
            if known < low:
                raise DataLossError(
                    f"{feed.topic}[{partition}]: offsets {known} to {low - 1} are gone (the log now begins at {low}). "
                    "They were deleted before they were read. To continue without them, set on_data_loss: continue"
                )
