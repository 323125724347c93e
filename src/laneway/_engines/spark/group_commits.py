"""GroupCommits: what a query commits to its consumer group, and since when copies may be those of a killed run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from laneway._core.commit_markers import since_of, under_way
from laneway._core.finished_map import CLEAN, with_topic_id
from laneway._kafka import BrokerUnavailableError
from laneway._runtime.feeds import LOOK, patiently

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from laneway._kafka import GroupOffsets, OffsetAndMetadata, Place

__all__ = ["GroupCommits"]

_RENEW = 3600.0  # seconds after which offsets are committed again: Kafka forgets those of an idle partition in a week
_LAST_COMMIT = 10.0  # seconds for the commit before a stop; without a checkpoint what it misses is read again


class GroupCommits:
    """Commits the offsets of one query. Spark's source process calls it, one call at a time.

    Args:
        group: the consumer group.
        source: the topic whose id stands in its commits.
    """

    def __init__(self, group: GroupOffsets, source: str) -> None:
        self._group = group
        self._source = source
        self._since: dict[Place, int] | None = None
        self._began = int(time.time() * 1000)
        self._renewed = time.monotonic()
        self._committed: dict[Place, OffsetAndMetadata] = {}
        self.is_of_group = False
        """Whether the query begins at the group's offsets, and not where a checkpoint says."""

    def is_new(self, begin: Mapping[Place, int]) -> bool:
        """Whether any of these offsets is still to be committed."""
        return any(self._committed.get(place, (None, ""))[0] != offset for place, offset in begin.items())

    def since(self, place: Place) -> int:
        """From when on copies of what is read of a partition count, in milliseconds since the epoch."""
        return self._began if self._since is None else self._since.get(place, self._began)

    def learn(self, begin: Mapping[Place, int]) -> bool:
        """Find out whether a killed run may have worked on what is read next; False when that is known already.

        A position that differs from the group's comes from a checkpoint, so it is laneway's own, and its batch may have
        been under way. An offset of the group without laneway's marker was set by a reset.
        """
        if self._since is not None:
            return False
        known = patiently(lambda: self._group.known(begin))
        self._since = {}
        for place, offset in begin.items():
            at, text = known.get(place, (None, ""))
            is_of_group = at == offset or (at is None and self.is_of_group)
            word = text if is_of_group or since_of(text) is not None else under_way("", 0)
            self._since[place] = since_of(under_way(word, self._began)) or 0
        return True

    def restart(self, places: Iterable[Place]) -> None:
        """The source was recreated: copies of the old topic's records are not those of the new one."""
        now = int(time.time() * 1000)
        self._since = (self._since or {}) | dict.fromkeys((place for place in places if place[0] == self._source), now)

    def commit_first(self, offsets: Mapping[Place, int], topic_id: str) -> None:
        """Commit before anything is copied: without the marker the copies of a killed run are not recognised."""
        said = self._said(offsets, topic_id)
        patiently(lambda: self._group.commit_all(said, wait=True))
        self._committed |= said

    def commit(self, offsets: Mapping[Place, int], topic_id: str = "") -> None:
        """Commit what is new, and wait for it: a kill right after must not repeat a batch that is done."""
        if time.monotonic() - self._renewed > _RENEW:
            self._committed, self._renewed = {}, time.monotonic()
        said = self._said(offsets, topic_id)
        new = {place: found for place, found in said.items() if self._committed.get(place) != found}
        try:
            self._group.commit_all(new, wait=True)
        except BrokerUnavailableError:
            return  # the next call tries again
        self._committed |= new

    def commit_for_good(self, offsets: Mapping[Place, int], topic_id: str) -> None:
        """Commit that nothing is under way, and see it done; a coordinator that is away is not waited for for ever."""
        deadline = time.monotonic() + _LAST_COMMIT
        said = {place: (offset, self._text(place, CLEAN, topic_id)) for place, offset in offsets.items()}
        while True:
            try:
                return self._group.commit_all(said, wait=True)
            except BrokerUnavailableError:
                if time.monotonic() > deadline:
                    return None
                time.sleep(LOOK)

    def _said(self, offsets: Mapping[Place, int], topic_id: str) -> dict[Place, OffsetAndMetadata]:
        """What is committed while something may be under way."""
        words = {place: under_way("", self.since(place)) for place in offsets}
        return {place: (at, self._text(place, words[place], topic_id)) for place, at in offsets.items()}

    def _text(self, place: Place, text: str, topic_id: str) -> str:
        return with_topic_id(text, topic_id) if place[0] == self._source else text
