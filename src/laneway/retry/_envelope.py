"""The headers that tell where a parked record came from and why."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from laneway._record import Headers, Record

__all__ = ["ERROR_HEADERS", "Failure", "Reduction", "parked_headers", "text_of"]

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
)
"""Every header a parked copy carries besides those of the record."""

Reduction = Literal["", "trace", "value"]
"""What a copy leaves out: nothing, the trace, or also the value and the record's own headers: a reference."""

_TRACE_LIMIT = 4_000  # characters; a longer trace makes the copy larger than the record without telling more
_MESSAGE_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a record failed, as text, so that it can travel and be kept without its stack frames."""

    type: str
    message: str
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describe an exception."""
        kind = type(error)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        trace = "".join(traceback.format_exception(error))
        return cls(name, text_of(error)[:_MESSAGE_LIMIT], trace[-_TRACE_LIMIT:])

    def shortened(self) -> Failure:
        """The same failure without its trace, for a copy that would be too large."""
        return Failure(self.type, self.message[:200], "")


def text_of(error: BaseException) -> str:
    """The text of any exception, fit to be written anywhere: an error that breaks its own report would end the run."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - __str__ is user code too
        return "<no text: its __str__ failed>"
    return text.encode("utf-8", "replace").decode()


def parked_headers(
    record: Record[object], failure: Failure, *, app: str, handler: str, now: int, reduced: Reduction = ""
) -> Headers:
    """Headers of the parked copy: the record's own in their order, then ours.

    Ours replace any that the record already carries, so a record parked again does not grow.

    Args:
        record: what failed.
        failure: why.
        app: the app's name.
        handler: the handler's name.
        now: milliseconds since the epoch.
        reduced: what the copy leaves out because it would be too large; named in the header ``laneway-reduced``.
    """
    own = [(name, value) for name, value in record.headers if not name.startswith(_PREFIX)]
    if reduced == "value":
        own = []
    failure = failure.shortened() if reduced else failure
    values = (
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.attempt,
        failure.type,
        failure.message,
        failure.trace,
        app,
        handler,
        now,
    )
    return [
        *own,
        *((name, str(value).encode("utf-8", "replace")) for name, value in zip(ERROR_HEADERS, values, strict=True)),
        *([("laneway-reduced", reduced.encode())] if reduced else ()),
    ]
