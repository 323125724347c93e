"""GroupCommits: what a query commits to its consumer group, and since when copies may be those of a killed run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from laneway._core.finished_map import CLEAN, UNDER_WAY, since_of, under_way, with_topic_id
from laneway._engines.spark.plan import merged
from laneway._kafka import BrokerUnavailableError
from laneway._runtime.due_offsets import LOOK, until_answered

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from laneway._engines.spark.plan import Position, TaskReport
    from laneway._kafka import GroupOffsets, OffsetAndMetadata, Place

__all__ = ["GroupCommits", "commit_of", "commits_of"]

_RENEW = 3600.0  # seconds after which offsets are committed again, before Kafka expires them
_LAST_COMMIT = 10.0  # seconds for the commit before a stop; without it records are read again


def commit_of(position: Position, since: int, topic_id: str = "") -> OffsetAndMetadata:
    """The commit of a position while records may be in flight: its offset and the finished map."""
    return position.begin, with_topic_id(f"{position.text or UNDER_WAY}~{since}", topic_id)


def commits_of(reports: Iterable[TaskReport]) -> dict[Place, OffsetAndMetadata]:
    """The positions of a batch, over all handlers of each topic."""
    found: dict[Place, list[Position]] = {}
    markers: dict[Place, tuple[int, str]] = {}
    for report in reports:
        for _, topic, partition, position in report.positions:
            found.setdefault((topic, partition), []).append(position)
        for topic, partition, since in report.since:
            markers[topic, partition] = (since, report.topic_id if topic == report.source else "")
    return {place: commit_of(merged(positions), *markers[place]) for place, positions in found.items()}


class GroupCommits:
    """Makes the planner's commits: first and last positions, and idle partitions. The driver commits batches.

    Spark's source process calls it, one call at a time, when no batch runs.
    """

    def __init__(self, group: GroupOffsets, source: str) -> None:
        self._group = group
        self._source = source
        self._since: dict[Place, int] = {}
        self._began = int(time.time() * 1000)
        self._renewed = time.monotonic()
        self._committed: dict[Place, OffsetAndMetadata] = {}

    def is_new(self, positions: Mapping[Place, Position]) -> bool:
        """Whether one of these has no commit yet."""
        return any(self._committed.get(place, (None, ""))[0] != found.begin for place, found in positions.items())

    def since(self, place: Place) -> int:
        """The time since which copies of a partition's records count, in milliseconds since the epoch."""
        return self._since.get(place, self._began)

    def learn(self, found: Mapping[Place, OffsetAndMetadata]) -> None:
        """Read the group's commits: a killed run may have handled some of the records read next.

        An offset without laneway's marker was set by a reset, so earlier copies do not count.
        """
        for place, (_, text) in found.items():
            self._since[place] = since_of(under_way(text, self._began)) or 0

    def restart(self, places: Iterable[Place]) -> None:
        """The source was recreated: copies of the old topic's records do not count."""
        self._since |= dict.fromkeys(places, int(time.time() * 1000))

    def committed(self, places: Mapping[Place, Position], topic_id: str) -> None:
        self._committed |= self._metadata(places, topic_id)

    def commit_first(self, positions: Mapping[Place, Position], topic_id: str) -> None:
        """Commit the marker before the first copy: without it the copies of a killed run would not be recognised."""
        said = self._metadata(positions, topic_id)
        until_answered(lambda: self._group.commit_all(said, wait=True))
        self._committed |= said

    def commit(self, positions: Mapping[Place, Position], topic_id: str = "") -> None:
        """Commit positions that are new, or whose last commit is old."""
        if time.monotonic() - self._renewed > _RENEW:
            self._committed, self._renewed = {}, time.monotonic()
        said = self._metadata(positions, topic_id)
        new = {place: found for place, found in said.items() if self._committed.get(place) != found}
        try:
            self._group.commit_all(new, wait=True)
        except BrokerUnavailableError:
            return  # the next call tries again
        self._committed |= new

    def commit_final(self, positions: Mapping[Place, Position], topic_id: str) -> None:
        """Commit that nothing is in flight, and wait for the broker's answer for a limited time."""
        deadline, now = time.monotonic() + _LAST_COMMIT, int(time.time() * 1000)
        said = {
            place: (found.begin, self._named(place, f"{text}~{now}" if (text := found.text) else CLEAN, topic_id))
            for place, found in positions.items()
        }
        while True:
            try:
                return self._group.commit_all(said, wait=True)
            except BrokerUnavailableError:
                if time.monotonic() > deadline:
                    return None
                time.sleep(LOOK)

    def _metadata(self, positions: Mapping[Place, Position], topic_id: str) -> dict[Place, OffsetAndMetadata]:
        """The metadata of a commit while records may be in flight."""
        return {
            place: commit_of(found, self.since(place), topic_id if place[0] == self._source else "")
            for place, found in positions.items()
        }

    def _named(self, place: Place, text: str, topic_id: str) -> str:
        return with_topic_id(text, topic_id) if place[0] == self._source else text
