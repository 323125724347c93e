"""Filter: selects parked records. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from laneway._declare.units import as_duration
from laneway.admin._parked import Position
from laneway.errors import LanewayError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway.admin._parked import ParkedRecord

__all__ = ["Filter", "FilterError", "key_of", "time_of"]

_HEX = "hex:"


class FilterError(LanewayError):
    """A filter is invalid; the message says how to write it."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Matches a record when all given conditions hold; unknown header values never match.

    Args:
        error_type: the error's type, exactly or with ``*`` and ``?``.
        message: part of the error's message, in any case.
        since: parked at this time or later.
        until: parked before this time.
        key: the record's key.
        handler: the handler that failed.
        origin: the topic it came from.
        places: only these records; all when empty.

    Example:
        >>> Filter.parse(error_type="json.*", since="2h", now=datetime(2026, 1, 1, 12, tzinfo=UTC)).since.hour
        10
    """

    error_type: str | None = None
    message: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    key: bytes | None = None
    handler: str | None = None
    origin: str | None = None
    places: frozenset[Position] = frozenset()

    @classmethod
    def parse(  # noqa: PLR0913 - one for each option of the command line
        cls,
        *,
        now: datetime,
        error_type: str | None = None,
        message: str | None = None,
        since: str | None = None,
        until: str | None = None,
        key: str | None = None,
        handler: str | None = None,
        origin: str | None = None,
        places: Sequence[str] = (),
    ) -> Filter:
        """Parse a filter as a user writes it.

        Args:
            now: durations count back from here.
            error_type: the error's type, exactly or with ``*`` and ``?``.
            message: part of the message.
            since: an ISO time (UTC by default), or a duration such as ``2h``, counted back from now.
            until: as *since*.
            key: text, or ``hex:`` and hexadecimal digits.
            handler: the handler that failed.
            origin: the topic it came from.
            places: each ``partition:offset``.

        Raises:
            FilterError: with what is wrong and how to write it.
        """
        first = None if since is None else time_of("--since", since, now)
        last = None if until is None else time_of("--until", until, now)
        if first and last and first >= last:
            raise FilterError(
                f"--since {since} is not before --until {until}, so nothing can match; durations count back from now"
            )
        try:
            chosen = frozenset(Position.parse(place) for place in places)
        except ValueError as error:
            raise FilterError(f"--at: {error}") from error
        return cls(error_type, message, first, last, None if key is None else key_of(key), handler, origin, chosen)

    def matches(self, parked: ParkedRecord) -> bool:
        """Whether the record matches."""
        return (
            (not self.places or parked.place in self.places)
            and (self.key is None or parked.key == self.key)
            and (self.handler is None or parked.handler == self.handler)
            and (self.origin is None or parked.origin_topic == self.origin)
            and self._matches_error(parked)
            and self._matches_time(parked.parked_at)
        )

    def _matches_error(self, parked: ParkedRecord) -> bool:
        kind, pattern = parked.error_type, self.error_type
        if pattern is not None and (kind is None or not (kind == pattern or fnmatchcase(kind, pattern))):
            return False
        text = parked.error_message
        return self.message is None or (text is not None and self.message.casefold() in text.casefold())

    def _matches_time(self, time: datetime | None) -> bool:
        if time is None:
            return self.since is None and self.until is None
        return (self.since is None or time >= self.since) and (self.until is None or time < self.until)


def time_of(option: str, text: str, now: datetime) -> datetime:
    """The moment that an option names, as an age or a time.

    Raises:
        FilterError: it names none.
    """
    try:
        return now - as_duration(text)
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise FilterError(
            f"{option} {text!r} is not a time; write an age (90s, 2h, 1d) or a time (2026-01-31, 2026-01-31T08:00Z)"
        ) from None


def key_of(text: str) -> bytes:
    """The key that an option names, as text or ``hex:``.

    Raises:
        FilterError: its hexadecimal digits are wrong.
    """
    if not text.startswith(_HEX):
        # Command line text may have bytes that are not UTF-8; this restores them.
        return text.encode("utf-8", "surrogateescape")
    try:
        return bytes.fromhex(text.removeprefix(_HEX))
    except ValueError:
        raise FilterError(f"--key {text!r}: write pairs of hexadecimal digits after {_HEX}, as in hex:00ff") from None
