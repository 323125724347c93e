"""Outlook: whether the brokers of a crew answer, what they have, and how far their logs go."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from laneway.errors import AdminError

if TYPE_CHECKING:
    from laneway._engines.direct.crew import Crew
    from laneway._kafka import Place

__all__ = ["Outlook"]

_TIMEOUT = 2.0  # seconds for an answer; with the pause between looks an outage is known within five
_COUNT = 10.0  # seconds between counts of the brokers, for which all topics are told
_GRACE = 2  # looks in vain before a topic counts as missing: one that is being made anew is gone for a moment


class _View(NamedTuple):
    """What was seen at one look."""

    code: str = ""
    """What is wrong; empty when nothing is."""
    words: str = ""


class Outlook:
    """Asks the brokers now and then, on the watch's own thread for that; others only read what was seen last.

    To ask for the ends of our partitions costs one small request to each of their leaders, and needs all of them to
    answer. The list of all topics is asked for only when that fails, or when brokers are to be counted.

    Args:
        crew: whose brokers.
        minimum: how many brokers there should be.
    """

    def __init__(self, crew: Crew, minimum: int) -> None:
        self._crew = crew
        self._minimum = minimum
        self._counted = -_COUNT
        self._misses = 0
        self.trouble = _View()
        self.since = time.monotonic()
        """Since when the trouble is what it is."""
        self.brokers: int | None = None
        """How many there were, when last counted."""
        self.ends: dict[Place, int] = {}
        """The ends of the logs of partitions that were ours."""
        self.seen = 0.0
        """When they were asked for."""

    @property
    def is_short(self) -> bool:
        """Whether there are fewer brokers than there should be."""
        return self.brokers is not None and self.brokers < self._minimum

    def look(self) -> None:
        """Ask; takes a few seconds when nobody answers."""
        trouble = self._asked()
        if trouble.code != self.trouble.code:
            self.since = time.monotonic()
        self.trouble = trouble

    def _asked(self) -> _View:
        member, admin = self._crew.member, self._crew.admin
        places = list(member.partitions)
        try:
            if places:
                ends = admin.ends_of(places, _TIMEOUT)
                self.ends, self.seen = ends, time.monotonic()
            self._misses = 0
            self._count(is_needed=not places)
        except AdminError as error:
            return self._diagnosis(error)
        return _View()

    def _count(self, *, is_needed: bool) -> None:
        """Count the brokers, if anybody wants to know, or nothing else was asked."""
        now = time.monotonic()
        if (self._minimum > 1 or is_needed) and now - self._counted >= _COUNT:
            self.brokers = self._crew.admin.brokers(_TIMEOUT)
            self._counted = now

    def _diagnosis(self, error: AdminError) -> _View:
        """Whether nobody answers, or a topic is missing, or a partition has no leader."""
        where = ",".join(self._crew.cluster.brokers)
        self._counted = -_COUNT
        try:
            topics = self._crew.admin.topics(_TIMEOUT)
        except AdminError as absent:
            return _View("brokers-unreachable", f"no answer from Kafka at {where}: {absent}")
        missing = [topic for topic in self._crew.sources if not topics.get(topic)]
        self._misses += 1
        if self._misses < _GRACE:
            return self.trouble
        if missing:
            return _View("topic-missing", f"there is no topic {', '.join(missing)} at {where}")
        return _View("partitions-unavailable", f"partitions at {where} cannot be asked: {error}")
