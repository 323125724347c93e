"""The headers that tell where a copied record came from and why."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from laneway._declare.header_styles import is_of_style, styled
from laneway._declare.record import Origin
from laneway.errors import text_of

if TYPE_CHECKING:
    from types import CodeType, TracebackType

    from laneway._declare.header_styles import Style
    from laneway._declare.record import Headers, Record

__all__ = [
    "ERROR_HEADERS",
    "Failure",
    "Reduction",
    "as_lines",
    "deferred_headers",
    "errors_of",
    "one_line",
    "origin_of",
    "own_size",
    "parked_at",
    "parked_headers",
    "read_from",
    "recall",
    "returned_headers",
    "trace_of",
]

_PREFIX = "laneway-"
ERROR_HEADERS = (
    "laneway-origin-topic",
    "laneway-origin-partition",
    "laneway-origin-offset",
    "laneway-origin-timestamp",
    "laneway-attempts",
    "laneway-error-type",
    "laneway-error-message",
    "laneway-error-trace",
    "laneway-app",
    "laneway-handler",
    "laneway-parked-at",
    "laneway-errors",
    "laneway-read-from",
)
"""Every header a parked copy carries besides those of the record."""

Reduction = Literal["", "trace"] | int
"""What a copy leaves out: nothing, the trace, or the value; then it is the bytes left for the record's headers."""

_TRACE_LIMIT = 4_000  # characters; a longer trace makes the copy larger than the record without telling more
_MESSAGE_LIMIT = 1_000
_MOST_ERRORS = 1_000_000  # times that a record may have been parked; more is a lie
_LAST_OFFSET, _LAST_PARTITION = 2**63 - 1, 2**31 - 1
_LAST_TIME = 253_402_300_799_999  # the end of the year 9999 in milliseconds; no later time can be shown
_MOST_KEPT = 200  # stacks; a handler fails in few places
_DEEPEST = 40  # frames of a stack that is kept
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a record failed, as text, so that it can travel and be kept without its stack frames."""

    type: str
    message: str
    trace: str

    @classmethod
    def of(cls, error: BaseException, *, with_trace: bool = True) -> Failure:
        """Describe an exception; without its trace where that is not written anyway."""
        kind = type(error)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        text = text_of(error)
        if not with_trace:
            return _brief(name, text[:_MESSAGE_LIMIT])
        return cls(name, text[:_MESSAGE_LIMIT], trace_of(error, f"{name}: {text}" if text else name)[-_TRACE_LIMIT:])

    def shortened(self) -> Failure:
        """The same failure without its trace, for a copy that would be too large."""
        return Failure(self.type, self.message[:200], "")


def parked_headers(
    record: Record[Any],
    failure: Failure,
    *,
    app: str,
    handler: str,
    now: int,
    reduced: Reduction = "",
    style: Style = "laneway",
) -> Headers:
    """Headers of the parked copy: the record's own in their order, then laneway's.

    They replace any that the record already carries, so a record parked again does not grow.

    Args:
        record: what failed.
        failure: why.
        app: the app's name.
        handler: the handler's name.
        now: milliseconds since the epoch.
        reduced: what the copy leaves out because it would be too large; the headers ``laneway-reduced`` and
            ``laneway-left-out`` tell.
        style: whose headers stand beside laneway's; the trace is in theirs then.
    """
    every = _own(record, style)
    own = _fitting(every, reduced) if isinstance(reduced, int) else every
    failure = failure if reduced == "" else failure.shortened()
    theirs = styled(style, _place(record), failure, app=app, handler=handler)
    values = (
        *_place(record),
        record.attempt,
        failure.type,
        failure.message,
        "" if theirs else one_line(failure.trace),
        app,
        handler,
        now,
        min(errors_of(record) + 1, _MOST_ERRORS),
        f"{record.topic}:{record.partition}:{record.offset}",
    )
    return [
        *own,
        *((name, _as_bytes(value)) for name, value in zip(ERROR_HEADERS, values, strict=True)),
        *([("laneway-reduced", b"trace")] if reduced == "trace" else ()),
        *(_left_out(record, every, own) if isinstance(reduced, int) else ()),
        *theirs,
    ]


def own_size(record: Record[Any], style: Style = "laneway") -> int:
    """Bytes of the record's own headers, those that a copy keeps."""
    return sum(map(_size, _own(record, style)))


def _fitting(headers: list[tuple[str, bytes | None]], room: int) -> list[tuple[str, bytes | None]]:
    """Those of some headers that fit, in their order; the largest go first."""
    left = sum(map(_size, headers))
    gone: set[int] = set()
    for number in sorted(range(len(headers)), key=lambda number: -_size(headers[number])):
        if left <= room:
            break
        gone.add(number)
        left -= _size(headers[number])
    return [header for number, header in enumerate(headers) if number not in gone]


def _size(header: tuple[str, bytes | None]) -> int:
    return len(header[0].encode()) + len(header[1] or b"")


def _left_out(record: Record[Any], every: list[Any], own: list[Any]) -> tuple[tuple[str, bytes], ...]:
    """Headers that say what a reference leaves out."""
    text = f"the value of {len(record.raw or b''):,} bytes"
    if len(own) < len(every):
        text += f", {len(every) - len(own)} of {len(every)} headers"
    return (("laneway-reduced", b"value"), ("laneway-left-out", text.encode()))


def deferred_headers(
    record: Record[Any], failure: Failure | None, *, app: str, handler: str, step: int, due: int
) -> Headers:
    """Headers of the copy on a retry topic: the record's own in their order, then laneway's.

    Args:
        record: what waits.
        failure: why; None when it failed nothing and only queues behind another record of its key.
        app: the app's name.
        handler: the handler's name.
        step: of which step the topic is.
        due: when it is to run, milliseconds since the epoch.
    """
    # Written out: with a handler that takes a microsecond this is most of what a failure costs.
    topic, partition, offset = record.origin or (record.topic, record.partition, record.offset)
    headers: list[tuple[str, bytes | None]] = [
        *_own(record),
        *_alike(topic, partition, record.attempt if failure else record.attempt - 1, app, handler, step),
        ("laneway-origin-offset", b"%d" % offset),
        ("laneway-origin-timestamp", b"%d" % record.timestamp),
        ("laneway-due", b"%d" % due),
    ]
    if failure is not None:
        headers += _cause(failure.type, failure.message)
    if errors := errors_of(record):
        headers.append(("laneway-errors", b"%d" % errors))
    return headers


def recall(record: Record[Any], source: str, most_calls: int) -> bool:
    """Give a record that was read from a retry or error topic its origin, timestamp and number of calls again.

    Whatever can write to the topic may have written the headers, so each is checked. What cannot be true is left out.

    Args:
        record: to be changed.
        source: the topic that it must have come from.
        most_calls: how often it may have been called before.

    Returns:
        Whether everything was as laneway writes it.
    """
    own = _control(record)
    record.origin = _origin(own, source)
    said = own.get("laneway-origin-timestamp")
    timestamp = -1 if said == b"-1" else _as_number(said, _LAST_TIME)  # -1: of before Kafka kept the time
    calls = _as_number(own.get("laneway-attempts"), most_calls)
    record.before = most_calls if calls is None else calls
    record.attempt = record.before + 1
    if record.origin is not None and timestamp is not None:
        record.timestamp = timestamp
    return None not in (record.origin, timestamp, calls)


def origin_of(record: Record[Any], source: str) -> Origin | None:
    """Where a copy says that its record came from, if that can be true."""
    return _origin(_control(record), source)


def read_from(record: Record[Any]) -> tuple[str, int, int] | None:
    """Topic, partition and offset at which a parked record was read, as its copy says."""
    topic, _, rest = (record.header("laneway-read-from") or b"")[:300].partition(b":")
    partition, _, offset = rest.partition(b":")
    if not (partition.isdigit() and offset.isdigit() and len(rest) < 32):
        return None
    return (topic.decode("ascii", "replace"), int(partition), int(offset))


def errors_of(record: Record[Any]) -> int:
    """How many times a record has been parked, as far as its headers can be believed."""
    return (_number(record, "laneway-errors", _MOST_ERRORS) or 0) if record.headers else 0


def parked_at(record: Record[Any]) -> int | None:
    """When a copy was made, milliseconds since the epoch, as it says; None when it says nothing of the kind."""
    return _number(record, "laneway-parked-at", _LAST_OFFSET)


def returned_headers(record: Record[Any], style: Style = "laneway") -> Headers:
    """Headers of a parked record on its way back to its topic: its own in their order, and how often it was parked.

    Without that number a record could fail and be sent back forever, unnoticed.
    """
    return [*_own(record, style), ("laneway-errors", _as_bytes(errors_of(record) or 1))]


def _own(record: Record[Any], style: Style = "laneway") -> list[tuple[str, bytes | None]]:
    if not record.headers:
        return []
    return [
        (name, value) for name, value in record.headers if not name.startswith(_PREFIX) and not is_of_style(name, style)
    ]


def _place(record: Record[Any]) -> tuple[str, int, int, int]:
    """Where the record was before any copy was made."""
    return (*(record.origin or (record.topic, record.partition, record.offset)), record.timestamp)


def _control(record: Record[Any]) -> dict[str, bytes | None]:
    """Our headers by name, among others; one that stands there twice says nothing."""
    found: dict[str, bytes | None] = dict(record.headers)
    if len(found) == len(record.headers):  # that is of nearly every copy, and each of a retry topic is looked at
        return found
    found = {}
    for name, value in record.headers:
        if name.startswith(_PREFIX):
            found[name] = None if name in found else value
    return found


def _origin(own: dict[str, bytes | None], source: str) -> Origin | None:
    partition = _as_number(own.get("laneway-origin-partition"), _LAST_PARTITION)
    offset = _as_number(own.get("laneway-origin-offset"), _LAST_OFFSET)
    if own.get("laneway-origin-topic") != source.encode() or partition is None or offset is None:
        return None
    return Origin(source, partition, offset)


def _number(record: Record[Any], name: str, most: int) -> int | None:
    """A header as a whole number from 0 to *most*; None when it is missing, repeated or anything else."""
    values = [value for found, value in record.headers if found == name]
    return _as_number(values[0], most) if len(values) == 1 else None


def _as_number(value: bytes | None, most: int) -> int | None:
    # Bounded before it is read: turning a million digits into a number takes minutes.
    if value is None or len(value) > 20 or not value.isdigit():
        return None
    number = int(value)
    return number if number <= most else None


@lru_cache(4096)
def _alike(
    topic: str, partition: int, attempts: int, app: str, handler: str, step: int
) -> tuple[tuple[str, bytes], ...]:
    """Headers that many copies have; they are made once."""
    return (
        ("laneway-origin-topic", _as_bytes(topic)),
        ("laneway-origin-partition", _as_bytes(partition)),
        ("laneway-attempts", _as_bytes(attempts)),
        ("laneway-app", _as_bytes(app)),
        ("laneway-handler", _as_bytes(handler)),
        ("laneway-step", _as_bytes(step)),
    )


@lru_cache(256)
def _brief(name: str, message: str) -> Failure:
    """A failure without its trace; made once, because records mostly fail for the same reason."""
    return Failure(name, message, "")


@lru_cache(256)
def _cause(kind: str, message: str) -> tuple[tuple[str, bytes], ...]:
    """As `_alike`: records mostly fail for the same reason."""
    return (("laneway-error-type", _as_bytes(kind)), ("laneway-error-message", _as_bytes(message)))


def _as_bytes(value: object) -> bytes:
    return b"%d" % value if type(value) is int else str(value).encode("utf-8", "replace")


_kept: dict[tuple[tuple[CodeType, int], ...], str] = {}


def trace_of(error: BaseException, last_line: str) -> str:
    """What the interpreter would print of an exception.

    Formatting a stack takes 100 µs, because the source is read and parsed for it. Records that fail mostly fail at the
    same place, so the text of a stack is kept and only the last line differs.

    Args:
        error: the exception.
        last_line: its type and text.
    """
    has_more = error.__cause__ or error.__context__ or isinstance(error, (BaseExceptionGroup, SyntaxError))
    stack = None if has_more or getattr(error, "__notes__", None) else _stack(error.__traceback__)
    if stack is None:
        # The last frames only: an exception object that is raised again and again grows by some each time.
        return "".join(traceback.format_exception(error, limit=-_DEEPEST))
    frames = _kept.get(stack)
    if frames is None:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        frames = _kept[stack] = "".join(traceback.format_tb(error.__traceback__))
    head = "Traceback (most recent call last):\n" if frames else ""
    return f"{head}{frames}{last_line}\n"


def one_line(trace: str) -> str:
    """A trace as a header holds it: without line ends, so that tools print a record's headers on one line."""
    return trace.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def as_lines(header: str) -> str:
    """The trace in a header; one with line ends in it is of an older version, which wrote traces as they are."""
    if "\n" in header:
        return header
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[0]), header)


def _stack(place: TracebackType | None) -> tuple[tuple[CodeType, int], ...] | None:
    found: list[tuple[CodeType, int]] = []
    while place is not None:
        found.append((place.tb_frame.f_code, place.tb_lasti))
        if len(found) > _DEEPEST:
            return None
        place = place.tb_next
    return tuple(found)
