"""Health: how an engine is doing, as a value, and what holds records up, in words."""

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
    """How bad it is; worse is greater."""

    OK = 0
    """Records are handled, or it was asked that they are not."""
    WARNING = 1
    """Somebody should look; most of the work goes on."""
    CRITICAL = 2
    """Nothing goes on, or something cannot be made safe."""

    def __str__(self) -> str:
        """As it is written in logs and alarms."""
        return self.name


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that is worth telling about an engine."""

    level: Level
    code: str
    """What it is, for programs; `docs/health.md` has the list."""
    words: str
    """What it is, for people."""
    since: datetime
    """Since when it is so, as far as it is known."""

    def __str__(self) -> str:
        """One line."""
        return f"{self.level}: {self.words} (since {self.since:%H:%M:%S} UTC)"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"level": str(self.level), "code": self.code, "words": self.words, "since": self.since.isoformat()}


@dataclass(frozen=True, slots=True)
class Health:
    """How an engine is doing: as bad as the worst of its reasons.

    Example:
        >>> Health.of([]).level
        <Level.OK: 0>
    """

    level: Level = Level.OK
    reasons: tuple[Reason, ...] = ()
    """The worst first."""

    @classmethod
    def of(cls, reasons: Iterable[Reason]) -> Health:
        """The health that reasons add up to."""
        ordered = tuple(sorted(reasons, key=lambda reason: (-reason.level, reason.since, reason.code)))
        return cls(max((reason.level for reason in ordered), default=Level.OK), ordered)

    @property
    def is_ok(self) -> bool:
        """Whether nothing is wrong; there may still be reasons, such as a pause that was asked for."""
        return self.level is Level.OK

    def has(self, code: str) -> bool:
        """Whether there is a reason of this code."""
        return any(reason.code == code for reason in self.reasons)

    def __str__(self) -> str:
        """The level, and the reasons behind it."""
        return "; ".join([str(self.level), *(reason.words for reason in self.reasons)])

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"level": str(self.level), "reasons": [reason.as_dict() for reason in self.reasons]}


@dataclass(frozen=True, slots=True)
class Stall:
    """What a partition waits for: the lowest offset that is not finished, for how long, and why."""

    code: str
    """The kind of cause, for programs; `docs/health.md` has the list."""
    topic: str
    partition: int
    offset: int
    age: timedelta
    """For how long nothing before and at this offset has moved."""
    words: str
    """The cause."""
    handler: str = ""
    key: bytes | None = None
    """Of the record, if that is known; None also for a record without one."""
    has_key: bool = field(default=False, kw_only=True)
    """Whether `key` is known to be the record's key."""

    @property
    def place(self) -> str:
        """Where it is, as in ``orders[3]@1234``."""
        return f"{self.topic}[{self.partition}]@{self.offset}"

    def __str__(self) -> str:
        """One sentence."""
        key = f" (key {key_words(self.key)})" if self.has_key else ""
        return f"{self.place}{key} has not moved for {lasting(self.age.total_seconds())}: {self.words}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
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
    """A record's key, fit for a line: what is not plain text is shown in hexadecimal."""
    if key is None:
        return "none"
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    shown = text if text and text.isprintable() else f"hex:{key.hex()}"
    return shown if len(shown) <= _KEY else f"{shown[:_KEY]}…"


def lasting(seconds: float) -> str:
    """A time span as people say it: milliseconds of an hour are of no use."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f}".removesuffix(".0") + "s"
    whole = timedelta(seconds=int(seconds))
    return in_words(whole if seconds < 3600 else timedelta(minutes=int(seconds // 60)))


def moment(age: float, now: datetime | None = None) -> datetime:
    """The time that is so many seconds ago."""
    return (now or datetime.now(UTC)) - timedelta(seconds=max(0.0, age))
