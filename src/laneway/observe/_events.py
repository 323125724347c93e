"""What becomes of records, and of the run, as small values that travel."""

from __future__ import annotations

from datetime import timedelta  # noqa: TC003 - msgspec reads the annotations
from typing import ClassVar

import msgspec

__all__ = [
    "BreakerClosed",
    "BreakerOpened",
    "CopyFailed",
    "InterceptorFailed",
    "OffsetsCommitted",
    "PartitionsAssigned",
    "PartitionsRevoked",
    "RecordDeferred",
    "RecordDropped",
    "RecordEvent",
    "RecordHandled",
    "RecordParked",
    "RecordRetried",
    "RecordSkipped",
    "StateChanged",
]


class RecordEvent(msgspec.Struct, frozen=True):
    """What all events of a record tell; subscribe to those below it."""

    most: ClassVar[int] = 20
    """How many of its kind a tally keeps; counts stay exact."""
    fate: ClassVar[str] = ""
    """What became of the record, in a word."""

    handler: str
    """The handler's name."""
    topic: str
    """Where the record was read: a retry topic when it was there."""
    partition: int
    offset: int
    attempt: int
    """Calls of the handler so far."""

    def __str__(self) -> str:
        """One line: fate, place, and why."""
        why = getattr(self, "error", "")
        return f"{self.fate} {self.topic}[{self.partition}]@{self.offset}{f': {why}' if why else ''}"


class RecordHandled(RecordEvent, frozen=True, tag=True):
    """The handler succeeded, and every message that it returned is acknowledged. Made only when subscribed to."""

    most: ClassVar[int] = 3
    fate: ClassVar[str] = "handled"


class RecordSkipped(RecordEvent, frozen=True, tag=True):
    """The handler raised `Skip` or an interceptor dropped the record. Made only when subscribed to."""

    fate: ClassVar[str] = "skipped"

    error: str
    """The reason that was given."""


class RecordRetried(RecordEvent, frozen=True, tag=True):
    """The call failed and is repeated after a pause, in place."""

    fate: ClassVar[str] = "retried"

    error: str
    pause: timedelta


class RecordDeferred(RecordEvent, frozen=True, tag=True):
    """A copy of the record is safe on a retry topic, where it waits for a step of the ladder."""

    fate: ClassVar[str] = "deferred"

    error: str
    """Why it failed; empty when it did not and only queues behind an earlier record of its key."""
    step: int
    """The first is 1."""


class RecordParked(RecordEvent, frozen=True, tag=True):
    """A copy of the record is safe on the error topic."""

    fate: ClassVar[str] = "parked"

    error: str
    error_topic: str


class RecordDropped(RecordEvent, frozen=True, tag=True):
    """The record failed for good, and an error interceptor let no copy of it go to the error topic."""

    fate: ClassVar[str] = "dropped"

    error: str


class CopyFailed(msgspec.Struct, frozen=True, tag=True):
    """A copy or message could not be written. It is repeated until it is, and its record waits."""

    most: ClassVar[int] = 20

    handler: str
    topic: str
    """Where it was to be written."""
    error: str
    tries: int
    """How often it was tried so far."""

    def __str__(self) -> str:
        """One line: what and why."""
        return f"could not write to {self.topic}: {self.error}"


class InterceptorFailed(msgspec.Struct, frozen=True, tag=True):
    """An error interceptor failed, and the copy went to the error topic as it was before it."""

    most: ClassVar[int] = 20

    handler: str
    interceptor: str
    topic: str
    partition: int
    offset: int
    error: str

    def __str__(self) -> str:
        """One line: what and why."""
        place = f"{self.topic}[{self.partition}]@{self.offset}"
        return f"error interceptor {self.interceptor!r} failed at {place}: {self.error}"


class BreakerOpened(msgspec.Struct, frozen=True, tag=True):
    """So many calls of a handler failed one after the other that it is not called for a while."""

    most: ClassVar[int] = 20

    handler: str
    failures: int
    """How many failed."""
    error: str
    """What the last of them failed with."""
    pause: timedelta
    """How long until it is called again, to see whether it succeeds."""

    def __str__(self) -> str:
        """One line: what and why."""
        return f"breaker of {self.handler} open for {self.pause.total_seconds():g} s: {self.error}"


class BreakerClosed(msgspec.Struct, frozen=True, tag=True):
    """A handler that was not called for a while succeeds again."""

    most: ClassVar[int] = 20

    handler: str
    open_for: timedelta
    """How long it was not called."""

    def __str__(self) -> str:
        """One line: what and after how long."""
        return f"breaker of {self.handler} closed after {self.open_for.total_seconds():g} s"


class StateChanged(msgspec.Struct, frozen=True, tag=True):
    """The engine is in another state."""

    most: ClassVar[int] = 20

    state: str
    """``initialising``, ``starting``, ``consuming``, ``paused``, ``stopping`` or ``stopped``; on the direct engine also
    ``pausing``, ``closing`` and ``closed``."""
    detail: str = ""
    """What it waits for, in words; empty when nothing is unusual."""

    def __str__(self) -> str:
        """One line: state and detail."""
        return f"{self.state} ({self.detail})" if self.detail else self.state


class PartitionsAssigned(msgspec.Struct, frozen=True, tag=True):
    """The consumer group gave partitions to this process. Only the direct engine joins the group."""

    most: ClassVar[int] = 20

    topic: str
    partitions: tuple[int, ...]

    def __str__(self) -> str:
        """One line: which."""
        return f"{self.topic}: partitions {_listed(self.partitions)} are ours"


class PartitionsRevoked(msgspec.Struct, frozen=True, tag=True):
    """The consumer group took partitions away from this process, which has committed what it finished of them."""

    most: ClassVar[int] = 20

    topic: str
    partitions: tuple[int, ...]
    is_lost: bool
    """They had gone already, because nothing was heard of this process: what it finished last may be run again."""

    def __str__(self) -> str:
        """One line: which."""
        how = "were lost" if self.is_lost else "were given back"
        return f"{self.topic}: partitions {_listed(self.partitions)} {how}"


class OffsetsCommitted(msgspec.Struct, frozen=True, tag=True):
    """The group's offsets moved on, and the broker has them."""

    most: ClassVar[int] = 20

    topic: str
    offsets: tuple[tuple[int, int], ...]
    """Partitions and the offsets from which on they would be read again."""

    def __str__(self) -> str:
        """One line: what."""
        return f"{self.topic}: committed " + ", ".join(f"{part}@{offset}" for part, offset in self.offsets)


def _listed(partitions: tuple[int, ...]) -> str:
    return ", ".join(map(str, partitions)) or "none"
