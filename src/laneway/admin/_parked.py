"""Parked: one record of an error topic, with what its headers say about it, as far as that can be believed.

Whoever may write to the error topic may have written the headers. So each is checked on its own: one that is missing,
repeated, not of its kind or beyond its bounds is None, which is shown as unknown, and no decision rests on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from laneway._core.trace import as_lines
from laneway._declare.record import Topic
from laneway.errors import DeclarationError

if TYPE_CHECKING:
    from laneway._declare.record import Headers, Record

__all__ = ["ParkedRecord", "Position"]

PREFIX = "laneway-"
ERRORS_HEADER = "laneway-errors"
MOST_ERRORS = 1_000_000
"""How many times a record may have been parked; a larger number counts as this one."""

_LAST_OFFSET, _LAST_PARTITION, _MOST_ATTEMPTS = 2**63 - 1, 2**31 - 1, 10**9
_LAST_TIME = 253_402_300_799_999  # milliseconds; the end of the year 9999, where datetime ends too
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME, _TYPE, _MESSAGE, _TRACE = 255, 500, 2_000, 16_000  # characters; twice and more what laneway writes
_TRACES = ("kafka_dlt-exception-stacktrace", "__connect.errors.exception.stacktrace")
"""Where the trace is when a handler's copies carry the header names of another system."""

_Found = dict[str, list[bytes | None]]


class Position(NamedTuple):
    """Where a record is on its error topic; written ``partition:offset``."""

    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read ``3:1042``.

        Raises:
            ValueError: with a text that shows the form.
        """
        partition, colon, offset = text.strip().partition(":")
        digits = partition + offset
        if not (colon and partition and offset and digits.isascii() and digits.isdigit() and len(digits) <= 29):
            raise ValueError(f"{text!r} is not a place; write partition:offset, for example 0:17")
        return cls(int(partition), int(offset))

    def __str__(self) -> str:
        """As `parse` reads it."""
        return f"{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class ParkedRecord:
    """One parked record. What its headers tell is None when it cannot be believed.

    Example:
        >>> from laneway import Topic
        >>> copy = Topic("orders.billing.error").record(b"{}", headers=[("laneway-attempts", b"3")], offset=7)
        >>> str(Parked.of(copy).place), Parked.of(copy).attempts, Parked.of(copy).handler
        ('0:7', 3, None)
    """

    topic: str
    """The error topic."""
    place: Position
    timestamp: int
    """The record's own, in milliseconds, which its copy keeps."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    """All of them, as they are on the error topic."""
    origin_topic: str | None
    origin_partition: int | None
    origin_offset: int | None
    app: str | None
    handler: str | None
    attempts: int | None
    errors: int | None
    """How many times the record has been parked; 1 when nothing is said about it."""
    error_type: str | None
    error_message: str | None
    error_trace: str | None
    parked_at: datetime | None
    reduced: Literal["", "trace", "value"] | None
    """What the copy leaves out because it would have been too large."""

    @classmethod
    def of(cls, record: Record[Any]) -> ParkedRecord:
        """Read what a record of an error topic says about itself."""
        found: _Found = {}
        for name, value in record.headers:
            if name.startswith(PREFIX) or name in _TRACES:
                found.setdefault(name, []).append(value)
        parked_at = _number(found, "laneway-parked-at", _LAST_TIME)
        return cls(
            topic=record.topic,
            place=Position(record.partition, record.offset),
            timestamp=record.timestamp,
            key=record.key,
            value=record.raw,
            headers=record.headers,
            origin_topic=_topic(found),
            origin_partition=_number(found, "laneway-origin-partition", _LAST_PARTITION),
            origin_offset=_number(found, "laneway-origin-offset", _LAST_OFFSET),
            app=_name(found, "laneway-app"),
            handler=_name(found, "laneway-handler"),
            attempts=_number(found, "laneway-attempts", _MOST_ATTEMPTS),
            errors=_errors(found),
            error_type=_text(found, "laneway-error-type", _TYPE),
            error_message=_text(found, "laneway-error-message", _MESSAGE),
            error_trace=_trace(found),
            parked_at=None if parked_at is None else _EPOCH + timedelta(milliseconds=parked_at),
            reduced=_reduced(found),
        )

    @property
    def is_reference(self) -> bool:
        """Whether the copy only says where the record is, because the record was too large to be copied."""
        return self.reduced == "value"

    @property
    def size(self) -> int:
        """Bytes it takes, roughly."""
        own = len(self.key or b"") + len(self.value or b"")
        return own + sum(len(name) + len(value or b"") for name, value in self.headers)


def _number(found: _Found, name: str, most: int) -> int | None:
    """A whole number from 0 to *most*."""
    value = _single(found, name)
    # Bounded before it is read: turning a million digits into a number takes minutes.
    if value is None or len(value) > 20 or not value.isdigit():
        return None
    number = int(value)
    return number if number <= most else None


def _errors(found: _Found) -> int | None:
    if ERRORS_HEADER not in found:
        return 1
    value = _single(found, ERRORS_HEADER)
    if value is None or not value.isdigit():
        return None
    digits = value.lstrip(b"0")
    # A number beyond all bounds still means "very often", and whoever counts must not begin anew because of it.
    return (min(int(digits), MOST_ERRORS) if len(digits) <= 7 else MOST_ERRORS) if digits else None


def _reduced(found: _Found) -> Literal["", "trace", "value"] | None:
    values = found.get("laneway-reduced", [])
    if b"value" in values:
        return "value"  # also when it is repeated: what may lack its value is not taken for whole
    if not values:
        return ""
    return "trace" if values == [b"trace"] else None


def _topic(found: _Found) -> str | None:
    name = _name(found, "laneway-origin-topic")
    try:
        return None if name is None else Topic(name).name
    except DeclarationError:
        return None


def _name(found: _Found, name: str) -> str | None:
    """A short text that names something: one that had to be changed or cut would name something else."""
    value = _single(found, name)
    if not value or len(value) > _NAME:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _text(found: _Found, name: str, most: int) -> str | None:
    """A text for people, cut to *most* characters."""
    value = _single(found, name)
    return None if value is None else value[: 4 * most].decode("utf-8", "replace")[:most]


def _trace(found: _Found) -> str | None:
    own = _text(found, "laneway-error-trace", _TRACE)
    return as_lines(own) if own else next(filter(None, (_text(found, name, _TRACE) for name in _TRACES)), None)


def _single(found: _Found, name: str) -> bytes | None:
    values = found.get(name, ())
    return values[0] if len(values) == 1 else None
