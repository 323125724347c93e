"""Small stand-ins for what the pure core is given: a clock, a sender, a source, a route."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from laneway import Topic
from laneway._core.scheduler import KeyQueue
from laneway._declare.handler import HandlerSpec
from laneway._declare.record import Record

if TYPE_CHECKING:
    from laneway.observe import Event

__all__ = [
    "FakeClock",
    "FakeSender",
    "Heard",
    "LateSender",
    "ListSource",
    "Noted",
    "SleepingClock",
    "lane_threads",
    "make_record",
    "make_records",
    "make_route",
    "make_turn",
]


class Noted:
    """Keeps notes, and hears of no event."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, words: str) -> None:
        self.notes.append(words)


class Heard(Noted):
    """Keeps notes and events."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def event(self, event: Event) -> None:
        self.events.append(event)


class FakeClock:
    """Time that moves only on request."""

    def __init__(self, now: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self.now = now
        self._ahead = wall - now

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + self._ahead

    def advance(self, seconds: float) -> None:
        self.now += seconds


class SleepingClock:
    """The time of a module: it moves when the module sleeps, and `moved` then does what other threads would do."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.moved = lambda: None

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.moved()


class FakeSender:
    """Keeps what is sent; `poll` answers each with the next of *answers*, or with success when there are none."""

    def __init__(self, answers=()) -> None:
        self.answers = deque(answers)
        self.sent = []
        self.acked = []
        self.is_silent = False
        self._waiting = deque()

    def send(self, topic, *, key, value, headers, delivered, partition=None, timestamp=None):
        message = {
            "topic": topic,
            "key": key,
            "value": value,
            "headers": list(headers),
            "partition": partition,
            "timestamp": timestamp,
        }
        self.sent.append(message)
        self._waiting.append((message, delivered))

    def poll(self):
        while self._waiting and not self.is_silent:
            message, delivered = self._waiting.popleft()
            error = self.answers.popleft() if self.answers else None
            if error is None:
                self.acked.append(message)
            delivered(error)

    def hurry(self):
        self.poll()


class LateSender(FakeSender):
    """Answers nothing for some seconds after the first message, and counts how often it was asked."""

    def __init__(self, seconds):
        super().__init__()
        self._seconds = seconds
        self._until = None
        self.polls = 0

    def poll(self):
        self.polls += 1
        self._until = self._until or time.monotonic() + self._seconds
        self.is_silent = time.monotonic() < self._until
        super().poll()


class ListSource:
    """Gives records from memory, and counts how many were given."""

    def __init__(self, records, chunk: int = 1000, *, error: Exception | None = None) -> None:
        self._records = deque(records)
        self._chunk = chunk
        self._error = error
        self.given = 0

    @property
    def is_exhausted(self) -> bool:
        return not self._records and self._error is None

    def fetch(self, most, timeout):
        if not self._records and self._error is not None:
            raise self._error
        count = min(most, self._chunk, len(self._records))
        self.given += count
        return [self._records.popleft() for _ in range(count)]


def make_record(offset=0, key=b"k", raw=b"v", partition=0, *, headers=(), timestamp=1_700_000_000_000, topic="orders"):
    """One record as a reader makes it."""
    size = len(key or b"") + len(raw or b"")
    return Record(topic, partition, offset, timestamp, key, raw, headers, size, raw)


def make_records(count, keys=1, partition=0):
    """Records whose keys take turns."""
    return [make_record(offset, b"key-%d" % (offset % keys), partition=partition) for offset in range(count)]


def make_turn(*groups):
    """A turn of one queue for each group of records, all of them taken."""
    turn = []
    for records in groups:
        queue = KeyQueue(records[0].key, records[0], 0)
        queue.items = list(records)
        queue.taken = len(records)
        queue.is_busy = True
        turn.append(queue)
    return turn


def make_route(function=None, topic=None, **fields):
    """A route of the topic `orders`."""
    return HandlerSpec("handle", topic or Topic("orders"), function or (lambda record: None), **fields)


def lane_threads() -> set[threading.Thread]:
    """The lanes that run now. Other tests of the process may have left some, in a call that never returns."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("lane-")}
