"""Events about records and about the run."""

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


class EventBase(msgspec.Struct, frozen=True):
    """What every event has."""

    most: ClassVar[int] = 20
    """How many of this kind a tally keeps; counts are exact."""


class RecordEvent(EventBase, frozen=True):
    """The fields of all record events; subscribe to its subclasses."""

    fate: ClassVar[str] = ""
    """The outcome in one word."""

    handler: str
    """The handler's name."""
    topic: str
    """The topic that the record was read from; may be a retry topic."""
    partition: int
    offset: int
    attempt: int
    """Calls of the handler so far."""

    def __str__(self) -> str:
        """One line: outcome, position and reason."""
        why = getattr(self, "error", "")
        return f"{self.fate} {self.topic}[{self.partition}]@{self.offset}{f': {why}' if why else ''}"


class RecordHandled(RecordEvent, frozen=True, tag=True):
    """The handler succeeded and its messages are acknowledged. Emitted only to subscribers."""

    most: ClassVar[int] = 3
    fate: ClassVar[str] = "handled"


class RecordSkipped(RecordEvent, frozen=True, tag=True):
    """The handler raised `Skip`, or an interceptor dropped the record. Emitted only to subscribers."""

    fate: ClassVar[str] = "skipped"

    error: str
    """The reason that the handler gave."""


class RecordRetried(RecordEvent, frozen=True, tag=True):
    """The call failed and will be repeated in place after a pause."""

    fate: ClassVar[str] = "retried"

    error: str
    pause: timedelta


class RecordDeferred(RecordEvent, frozen=True, tag=True):
    """A copy of the record was written to a retry topic and waits there for its step."""

    fate: ClassVar[str] = "deferred"

    error: str
    """Why it failed; empty if it only queues behind an earlier record of its key."""
    step: int
    """The first is 1."""


class RecordParked(RecordEvent, frozen=True, tag=True):
    """A copy of the record was written to the error topic."""

    fate: ClassVar[str] = "parked"

    error: str
    error_topic: str


class RecordDropped(RecordEvent, frozen=True, tag=True):
    """The last attempt failed, and an error interceptor dropped the copy for the error topic."""

    fate: ClassVar[str] = "dropped"

    error: str


class CopyFailed(EventBase, frozen=True, tag=True):
    """A copy or message could not be written. It is resent until it is written; the record waits."""

    handler: str
    topic: str
    """The target topic."""
    error: str
    tries: int
    """Attempts so far."""

    def __str__(self) -> str:
        return f"could not write to {self.topic}: {self.error}"


class InterceptorFailed(EventBase, frozen=True, tag=True):
    """An error interceptor failed, so the copy was written without its changes."""

    handler: str
    interceptor: str
    topic: str
    partition: int
    offset: int
    error: str

    def __str__(self) -> str:
        place = f"{self.topic}[{self.partition}]@{self.offset}"
        return f"error interceptor {self.interceptor!r} failed at {place}: {self.error}"


class BreakerOpened(EventBase, frozen=True, tag=True):
    """Consecutive failures opened the breaker of a handler."""

    handler: str
    failures: int
    """Consecutive failures."""
    error: str
    """The error of the last one."""
    pause: timedelta
    """How long until a call probes it."""

    def __str__(self) -> str:
        return f"breaker of {self.handler} open for {self.pause.total_seconds():g} s: {self.error}"


class BreakerClosed(EventBase, frozen=True, tag=True):
    """A probe succeeded, and the breaker of a handler closed."""

    handler: str
    open_for: timedelta
    """How long it was open."""

    def __str__(self) -> str:
        return f"breaker of {self.handler} closed after {self.open_for.total_seconds():g} s"


class StateChanged(EventBase, frozen=True, tag=True):
    """The engine changed its state."""

    state: str
    """``initialising``, ``starting``, ``consuming``, ``pausing``, ``paused``, ``stopping``, ``stopped``, ``closing`` or
    ``closed``."""
    detail: str = ""
    """What it waits for; empty when nothing is unusual."""

    def __str__(self) -> str:
        return f"{self.state} ({self.detail})" if self.detail else self.state


class PartitionsAssigned(EventBase, frozen=True, tag=True):
    """The consumer group assigned partitions to this process. Only the direct engine joins the group."""

    topic: str
    partitions: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.topic}: assigned partitions {_listed(self.partitions)}"


class PartitionsRevoked(EventBase, frozen=True, tag=True):
    """The consumer group revoked partitions of this process, after it committed their finished records."""

    topic: str
    partitions: tuple[int, ...]
    is_lost: bool
    """They were lost after a session timeout, so the records finished last may be handled again."""

    def __str__(self) -> str:
        return f"{self.topic}: {'lost' if self.is_lost else 'revoked'} partitions {_listed(self.partitions)}"


class OffsetsCommitted(EventBase, frozen=True, tag=True):
    """Offsets of the group were committed."""

    topic: str
    offsets: tuple[tuple[int, int], ...]
    """Committed offset of each partition."""

    def __str__(self) -> str:
        return f"{self.topic}: committed " + ", ".join(f"{part}@{offset}" for part, offset in self.offsets)


def _listed(partitions: tuple[int, ...]) -> str:
    return ", ".join(map(str, partitions)) or "none"
