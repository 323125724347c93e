"""How far delayed topics may be read now: DueOffsets by timestamps, DueEnds by when ends were seen."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from laneway._kafka import BrokerUnavailableError
from laneway._runtime.topics import create_beside
from laneway.errors import AdminError
from laneway.observe import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway._kafka import Admin, Place
    from laneway._runtime.topics import Feed

__all__ = ["ABSENT", "LOOK", "DueEnds", "DueOffsets", "until_answered"]

_log = logger("runtime")

T = TypeVar("T")

LOOK = 0.01
"""Seconds between requests for the ends of the logs while idle; half of it adds to the latency."""
ABSENT = 1.0
"""Seconds to wait after the brokers did not answer."""

_REFRESH = 5.0  # seconds between checks for new partitions
_TEND = 1.0  # seconds between checks of the retry topics during a batch, whose copies may wait for one
_SAY = 30.0  # seconds between two lines about a topic that is missing and may not be created
_ASK = 0.1  # seconds between requests for due offsets
_SAMPLES = 200  # looks that are remembered over the length of the delay: a record waits half a percent of it longer
_SHORTEST = 0.25  # seconds between two of them


class DueOffsets:
    """Asks for the ends and due offsets of a source and its retry topics, for the planner.

    The source is the first feed. With *may_create* missing retry topics are created, and get as many partitions as
    their source.
    """

    def __init__(self, feeds: tuple[Feed, ...], admin: Admin, *, may_create: bool = True, timeout: float = 5.0) -> None:
        self._feeds = feeds
        self._timeout = timeout
        self._admin = admin
        self._may_create = may_create
        self._warned_at = 0.0
        self._numbers: dict[str, list[int]] = {}
        self._refreshed = 0.0
        self._due = {feed.topic: DueEnds(feed.delay) for feed in feeds if feed.delay}
        self._asked: dict[str, tuple[float, dict[Place, int]]] = {}
        self._lock = threading.Lock()
        self._is_checking = threading.Event()
        self._thread: threading.Thread | None = None
        self._guard: Callable[[], None] = lambda: None
        self.delayed = {feed.topic for feed in feeds if feed.delay or feed.step}
        """The topics with a delay."""
        self.logs: dict[Place, int] = {}
        """The ends of all logs at the last request."""
        self.recreated: dict[str, dict[Place, int]] = {}
        """Recreated retry topics, and the old ends of their logs."""

    def numbers(self, feed: Feed) -> list[int]:
        """The partitions of a feed."""
        self._refresh()
        return self._numbers[feed.topic]

    def partitions(self, feed: Feed) -> int:
        """The partition count at the last request."""
        return len(self._numbers.get(feed.topic, ()))

    def forget(self) -> None:
        """Ask for topics and partitions again: a topic may have been deleted."""
        self._refreshed = 0.0

    def restart(self, topic: str) -> None:
        """A source was recreated: discard when its ends were first seen."""
        for feed in self._feeds:
            if feed.topic == topic and feed.delay:
                self._due[topic] = DueEnds(feed.delay)
                self._asked.pop(topic, None)

    def look(self) -> None:
        self._refresh()
        places = [(topic, partition) for topic, numbers in self._numbers.items() for partition in numbers]
        logs = self._admin.ends_of(places, self._timeout) if places else {}
        for topic in {place[0] for place, end in logs.items() if end < self.logs.get(place, 0)}:
            self._mark_recreated(topic)
        self.logs = logs

    def start_checks(self, guard: Callable[[], None]) -> None:
        """Check the topics about once a second on a thread, while a batch runs.

        A copy waits for its retry topic, the batch for the copy, and the next check for the batch.
        """
        self._guard = guard
        self._is_checking.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._check_regularly, name="laneway-topic-checks", daemon=True)
            self._thread.start()

    def stop_checks(self) -> None:
        """Stop the checks: the batch is over."""
        self._is_checking.clear()

    def ends(self, begin: dict[Place, int]) -> dict[Place, int]:
        """The offset up to which each partition may be read: before the first record that is not due."""
        self.look()
        ends = dict(self.logs)
        for feed in self._feeds:
            if feed.delay:
                ends |= self._due_ends(feed, begin)
        return ends

    def _due_ends(self, feed: Feed, begin: dict[Place, int]) -> dict[Place, int]:
        steady, due = time.monotonic(), self._due[feed.topic]
        logs = {partition: end for (topic, partition), end in self.logs.items() if topic == feed.topic}
        due.saw(logs, steady)
        waiting = [
            (feed.topic, partition) for partition, end in logs.items() if end > begin.get((feed.topic, partition), 0)
        ]
        if not waiting:
            return {}
        asked, first = self._asked.get(feed.topic, (0.0, {}))
        if steady - asked >= _ASK or set(waiting) - set(first):
            limit = int((time.time() - feed.delay) * 1000)
            answer = self._admin.first_since(dict.fromkeys(waiting, limit), self._timeout)
            # When all are old enough, those up to the end as it was before the question: later ones are not.
            first = {place: self.logs[place] if at is None else at for place, at in answer.items()}
            self._asked[feed.topic] = (steady, first)
        waited = due.waited(steady)
        return {place: min(self.logs[place], max(first[place], waited.get(place[1], 0))) for place in waiting}

    def _refresh(self) -> None:
        """Find new partitions, and give retry topics as many as their source has, so that each copy has a target."""
        with self._lock:
            if time.monotonic() - self._refreshed < _REFRESH and all(self._numbers.values()):
                return
            numbers = {feed.topic: self._admin.partitions(feed.topic) for feed in self._feeds}
            wanted = len(numbers[self._feeds[0].topic])
            for feed in self._feeds[1:]:
                found = len(numbers[feed.topic])
                if found < wanted:
                    if not found and self._numbers.get(feed.topic):
                        self._mark_recreated(feed.topic)
                    self._make(feed.topic, found, wanted)
                    numbers[feed.topic] = self._admin.partitions(feed.topic)
            self._numbers = numbers
            self._refreshed = time.monotonic()

    def _check_regularly(self) -> None:
        while self._is_checking.wait():
            time.sleep(_TEND)
            if self._is_checking.is_set():
                with suppress(AdminError):  # no answer: retried soon
                    self._guard()
                    if len(self._feeds) > 1:
                        self.forget()
                        self._refresh()

    def _mark_recreated(self, topic: str) -> None:
        """Handle a retry topic that was deleted: its offsets start again."""
        for feed in self._feeds[1:]:
            if feed.topic == topic:
                self.recreated.setdefault(topic, {place: end for place, end in self.logs.items() if place[0] == topic})
                self.logs = {place: end for place, end in self.logs.items() if place[0] != topic}
                self._due[topic] = DueEnds(feed.delay)
                self._asked.pop(topic, None)

    def _make(self, topic: str, found: int, wanted: int) -> None:
        if not self._may_create:
            lacks = f"has {found} partitions and needs {wanted}" if found else "is missing"
            text = f"the retry topic {topic} {lacks}, and create_topics is false; nothing is read until you change it"
            if time.monotonic() - self._warned_at > _SAY:
                self._warned_at = time.monotonic()
                _log.warning(text)
            raise BrokerUnavailableError(text)
        try:
            if found:
                self._admin.grow(topic, wanted)
            elif create_beside(self._admin, topic, self._feeds[0].topic, wanted):
                _log.warning("created topic %s again: it was deleted", topic)
        except AdminError as error:
            raise BrokerUnavailableError(str(error)) from error  # retried: copies wait for it


def until_answered(ask: Callable[[], T]) -> T:
    """Repeat a request until the brokers answer; soon at first, because a coordinator is often ready a moment later."""
    pause = LOOK
    while True:
        try:
            return ask()
        except BrokerUnavailableError:
            time.sleep(pause)
            pause = min(pause * 2, ABSENT)


class DueEnds:
    """Remembers when each end of the logs was first seen.

    Kafka's index of timestamps says which records are old enough, also after a restart. But one record whose timestamp
    lies in the future, or a clock that was set back, would delay everything behind it. What has been in the log for
    the whole delay by this process's own steady clock is due whatever its timestamp says.

    Args:
        delay: seconds that a record must wait.
        gap: seconds between two looks that are remembered.
    """

    def __init__(self, delay: float, gap: float | None = None) -> None:
        self._delay = delay
        self._gap = max(_SHORTEST, delay / _SAMPLES) if gap is None else gap
        self._seen: deque[tuple[float, dict[int, int]]] = deque()

    def saw(self, ends: dict[int, int], now: float) -> None:
        """The logs end here at this time of the steady clock."""
        if not self._seen or (ends != self._seen[-1][1] and now - self._seen[-1][0] >= self._gap):
            self._seen.append((now, dict(ends)))

    def waited(self, now: float) -> dict[int, int]:
        """The ends of what has waited long enough, as far as it was seen."""
        while len(self._seen) > 1 and self._seen[1][0] <= now - self._delay:
            self._seen.popleft()
        return self._seen[0][1] if self._seen and self._seen[0][0] <= now - self._delay else {}
