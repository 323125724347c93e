"""ErrorRunFilter: which parked records a run over an error topic handles, and for which handler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laneway._core.headers import errors_of, parked_at, recall

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from laneway._declare.cron import Cron
    from laneway._declare.record import Record

__all__ = ["ErrorRunFilter", "end_of_run", "is_new", "next_run"]

_MOST_CALLS = 1_000_000  # calls that a record may have had; more is a lie
_MOST_LEFT_OUT = 10_000  # runs that are counted as left out behind one; a laptop that slept for a year has more
_AHEAD = 3_600_000  # milliseconds that a clock may be ahead; later times must not block a partition


@dataclass(frozen=True, slots=True)
class ErrorRunFilter:
    """What one handler's part of a run needs to know.

    Whatever can write to the error topic may have written the headers. They choose among the handlers of the app
    that park there, and nothing else.

    Args:
        app: whose error topic it is.
        handler: the handler.
        handlers: all that park on the same topic. The first answers for records of which it is not known whose they
            are.
        max_errors: a record that has been parked so often is not run again.
    """

    app: str
    handler: str
    handlers: tuple[str, ...]
    max_errors: int | None = None

    def takes(self, record: Record[Any]) -> bool:
        """Whether this handler answers for a record, be it that it runs or that it is skipped."""
        return (self._owner(record) or self.handlers[0]) == self.handler

    def refusal(self, record: Record[Any]) -> str | None:
        """Why a record that it answers for is not run; None when it is."""
        if (record.header("laneway-app") or self.app.encode()) != self.app.encode():
            return "another app parked it"
        if self._owner(record) is None:
            return f"its headers do not tell which handler parked it: {' or '.join(self.handlers)}"
        if ("laneway-reduced", b"value") in record.headers:
            # It looks like a tombstone, and would delete what it stands for.
            return "its value was too large to be copied"
        if self.max_errors is not None and errors_of(record) >= self.max_errors:
            return f"it has been parked {errors_of(record)} times"
        return None

    def recall(self, record: Record[Any], source: str, now: float) -> bool:
        """Give a record what it had when it was first read.

        Args:
            record: to be changed.
            source: the topic that it must have come from.
            now: milliseconds since the epoch.

        Returns:
            Whether everything was as laneway writes it.
        """
        is_sound = recall(record, source, _MOST_CALLS)
        if record.before == _MOST_CALLS:
            record.before, record.attempt = 0, 1
        at = parked_at(record)
        is_sound = is_sound and at is not None and at <= now + _AHEAD and errors_of(record) > 0
        return is_sound and record.header("laneway-handler") == self.handler.encode()

    def _owner(self, record: Record[Any]) -> str | None:
        """The handler that parked it, as far as that can be believed."""
        named = record.header("laneway-handler")
        found = (name for name in self.handlers if name.encode() == named)
        return next(found, self.handlers[0] if len(self.handlers) == 1 else None)


def is_new(at: float | None, started: float, within: float) -> bool:
    """Whether a record was parked so shortly before a run that it is to wait for the next one.

    A time that cannot be read counts as old, and so does one that is far in the future.

    Args:
        at: when the record was parked, milliseconds since the epoch, as it says.
        started: when the run began.
        within: milliseconds before that; 0 for nothing is new.
    """
    return bool(within) and at is not None and started - within < at <= started + _AHEAD


def end_of_run(parked: Iterable[tuple[int, float | None]], end: int, *, started: float, within: float) -> int:
    """Where a run ends in a partition: before the first record that is new, else at the end of the log.

    Args:
        parked: offset and parking time of the records that wait, in the order of the log; read only if needed.
        end: the end of the log.
        started: as of `is_new`.
        within: as of `is_new`.
    """
    if not within:
        return end
    return next((offset for offset, at in parked if is_new(at, started, within)), end)


def next_run(cron: Cron, after: datetime, now: datetime) -> tuple[datetime, int]:
    """When the next run is due, and how many runs were due between *after* and *now* and are left out."""
    due, left_out = cron.next_after(after), 0
    while due <= now and left_out < _MOST_LEFT_OUT:
        left_out += 1
        due = cron.next_after(due)
    return (cron.next_after(now) if due <= now else due), left_out
