"""ParkedRecord: one record of an error topic, with its headers as far as they are valid.

Anyone who can write to the error topic can write these headers, so each is validated on its own. A header that is
missing, repeated, malformed or out of bounds is None, is shown as unknown, and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from laneway._core.headers import as_lines
from laneway._declare.record import Topic
from laneway.errors import DeclarationError

if TYPE_CHECKING:
    from laneway._declare.record import Headers, Record

__all__ = ["ParkedRecord", "Position"]

PREFIX = "laneway-"
ERRORS_HEADER = "laneway-errors"
MOST_ERRORS = 1_000_000
"""Limit for the number of times a record was parked; a larger number counts as this."""

_LAST_OFFSET, _LAST_PARTITION, _MOST_ATTEMPTS = 2**63 - 1, 2**31 - 1, 10**9
_LAST_TIME = 253_402_300_799_999  # milliseconds; the end of the year 9999, datetime's limit
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME, _TYPE, _MESSAGE, _TRACE = 255, 500, 2_000, 16_000  # characters; more than twice what laneway writes
_TRACES = ("kafka_dlt-exception-stacktrace", "__connect.errors.exception.stacktrace")
"""The header of the trace when copies have the header names of another system."""

_Found = dict[str, list[bytes | None]]


class Position(NamedTuple):
    """Where a record is on its error topic; written ``partition:offset``."""

    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parse ``3:1042``.

        Raises:
            ValueError: with a text that shows the form.
        """
        partition, colon, offset = text.strip().partition(":")
        digits = partition + offset
        if not (colon and partition and offset and digits.isascii() and digits.isdigit() and len(digits) <= 29):
            raise ValueError(f"{text!r} is not a position; write partition:offset, for example 0:17")
        return cls(int(partition), int(offset))

    def __str__(self) -> str:
        """The form that `parse` reads."""
        return f"{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class ParkedRecord:
    """One parked record. A value from an invalid header is None.

    Example:
        >>> from laneway import Topic
        >>> copy = Topic("orders.billing.error").record(b"{}", headers=[("laneway-attempts", b"3")], offset=7)
        >>> str(ParkedRecord.of(copy).place), ParkedRecord.of(copy).attempts, ParkedRecord.of(copy).handler
        ('0:7', 3, None)
    """

    topic: str
    """The error topic."""
    place: Position
    timestamp: int
    """The record's own timestamp in milliseconds, which its copy keeps."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    """All headers, as they are on the error topic."""
    origin_topic: str | None
    origin_partition: int | None
    origin_offset: int | None
    app: str | None
    handler: str | None
    attempts: int | None
    errors: int | None
    """How many times the record was parked; 1 without a header."""
    error_type: str | None
    error_message: str | None
    error_trace: str | None
    parked_at: datetime | None
    reduced: Literal["", "trace", "value"] | None
    """What the copy lacks because it would have been too large."""

    @classmethod
    def of(cls, record: Record[Any]) -> ParkedRecord:
        """Read the headers of a record of an error topic."""
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
        """Whether the copy only refers to the record, which was too large to copy."""
        return self.reduced == "value"

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        own = len(self.key or b"") + len(self.value or b"")
        return own + sum(len(name) + len(value or b"") for name, value in self.headers)


def _number(found: _Found, name: str, most: int) -> int | None:
    """A whole number from 0 to *most*."""
    value = _single(found, name)
    # Bounded before parsing: a million digits take minutes.
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
    # A number out of bounds still means "very often", so counting must not restart at 1.
    return (min(int(digits), MOST_ERRORS) if len(digits) <= 7 else MOST_ERRORS) if digits else None


def _reduced(found: _Found) -> Literal["", "trace", "value"] | None:
    values = found.get("laneway-reduced", [])
    if b"value" in values:
        return "value"  # also when the header is repeated: the copy may lack its value
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
    """A short name; one that would have to be changed or cut is None, because it would name something else."""
    value = _single(found, name)
    if not value or len(value) > _NAME:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _text(found: _Found, name: str, most: int) -> str | None:
    """A text for display, cut to *most* characters."""
    value = _single(found, name)
    return None if value is None else value[: 4 * most].decode("utf-8", "replace")[:most]


def _trace(found: _Found) -> str | None:
    own = _text(found, "laneway-error-trace", _TRACE)
    return as_lines(own) if own else next(filter(None, (_text(found, name, _TRACE) for name in _TRACES)), None)


def _single(found: _Found, name: str) -> bytes | None:
    values = found.get(name, ())
    return values[0] if len(values) == 1 else None
