"""Health: the state of an engine as a value, and what blocks records."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from laneway._declare.units import in_words

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Health", "Level", "Reason", "Stall", "lasting"]

_KEY = 40  # characters of a key that are shown


class Level(IntEnum):
    """Severity; worse is greater."""

    OK = 0
    """Records are handled, or handling was paused on request."""
    WARNING = 1
    """Needs attention; most of the work continues."""
    CRITICAL = 2
    """Nothing makes progress, or something cannot be made durable."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Reason:
    """One finding about an engine."""

    level: Level
    code: str
    """Stable code, for programs; `docs/health.md` lists all."""
    words: str
    """Text for users."""
    since: datetime
    """Since when, if known."""

    def __str__(self) -> str:
        return f"{self.level}: {self.words} (since {self.since:%H:%M:%S} UTC)"

    def as_dict(self) -> dict[str, Any]:
        return {"level": str(self.level), "code": self.code, "words": self.words, "since": self.since.isoformat()}


@dataclass(frozen=True, slots=True)
class Health:
    """The health of an engine: as bad as its worst reason.

    Example:
        >>> Health.of([]).level
        <Level.OK: 0>
    """

    level: Level = Level.OK
    reasons: tuple[Reason, ...] = ()
    """The worst first."""

    @classmethod
    def of(cls, reasons: Iterable[Reason]) -> Health:
        """The health for these reasons."""
        ordered = tuple(sorted(reasons, key=lambda reason: (-reason.level, reason.since, reason.code)))
        return cls(max((reason.level for reason in ordered), default=Level.OK), ordered)

    @property
    def is_ok(self) -> bool:
        """Whether nothing is wrong; there may still be reasons, such as a requested pause."""
        return self.level is Level.OK

    def has(self, code: str) -> bool:
        """Whether a reason has this code."""
        return any(reason.code == code for reason in self.reasons)

    def __str__(self) -> str:
        return "; ".join([str(self.level), *(reason.words for reason in self.reasons)])

    def as_dict(self) -> dict[str, Any]:
        return {"level": str(self.level), "reasons": [reason.as_dict() for reason in self.reasons]}


@dataclass(frozen=True, slots=True)
class Stall:
    """What blocks a partition: its lowest unfinished offset, for how long, and why."""

    code: str
    """The cause, for programs; `docs/health.md` lists all."""
    topic: str
    partition: int
    offset: int
    age: timedelta
    """How long nothing at or before this offset has made progress."""
    words: str
    """The cause."""
    handler: str = ""
    key: bytes | None = None
    """The record's key, if known; None also for a record without a key."""
    has_key: bool = field(default=False, kw_only=True)
    """Whether the record's key is known."""

    @property
    def place(self) -> str:
        """Position, as in ``orders[3]@1234``."""
        return f"{self.topic}[{self.partition}]@{self.offset}"

    def __str__(self) -> str:
        key = f" (key {key_words(self.key)})" if self.has_key else ""
        return f"{self.place}{key} has not moved for {lasting(self.age.total_seconds())}: {self.words}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "age_seconds": round(self.age.total_seconds(), 1),
            "handler": self.handler,
            "key": key_words(self.key) if self.has_key else None,
            "words": self.words,
            "sentence": str(self),
        }


def key_words(key: bytes | None) -> str:
    """A record's key for a log line: hexadecimal unless it is plain text."""
    if key is None:
        return "none"
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    shown = text if text and text.isprintable() else f"hex:{key.hex()}"
    return shown if len(shown) <= _KEY else f"{shown[:_KEY]}…"


def lasting(seconds: float) -> str:
    """A duration for a reader, without needless precision."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f}".removesuffix(".0") + "s"
    whole = timedelta(seconds=int(seconds))
    return in_words(whole if seconds < 3600 else timedelta(minutes=int(seconds // 60)))


def moment(age: float, now: datetime | None = None) -> datetime:
    """The time this many seconds ago."""
    return (now or datetime.now(UTC)) - timedelta(seconds=max(0.0, age))
