"""Cron: schedules of five fields. Pure: the time is a parameter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

__all__ = ["Cron"]

_DAY = timedelta(days=1)
_LONGEST = 366 * 41  # days; a 29 February on a Sunday may be forty years away
_SET_BACK = timedelta(hours=3)  # more than clocks are ever set back by, so later hours cannot come earlier
_MOST = 1_000  # characters; a list of every minute has 170


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    _Field("day of week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)
_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class Cron:
    """A schedule such as ``*/15 * * * *``: minute, hour, day of month, month, day of week.

    Each field is ``*``, a number, a range ``1-5``, a step ``*/15`` or ``10-50/20``, or a list of these. Months and days
    of the week may have names of three letters; Sunday is 0 or 7. If neither day field begins with ``*``, a match of
    one of the two is enough.

    Times are local. When clocks are set forward, a skipped time is due at that moment. When they are set back, a time
    that comes twice is due once. A schedule for every hour (its second field begins with ``*``) follows elapsed time
    instead.

    Example:
        >>> Cron.parse("30 6 * * mon-fri").next_after(datetime(2026, 1, 2, 7, 0, tzinfo=UTC), UTC).isoformat()
        '2026-01-05T06:30:00+00:00'
    """

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    either_day: bool
    """Both day fields are restricted, and one match is enough."""
    is_hourly: bool
    """The hour field begins with ``*``, so the schedule follows elapsed time."""

    @classmethod
    def parse(cls, text: object) -> Cron:
        """Parse a schedule.

        Raises:
            ValueError: the message names the wrong part and what to write.
        """
        if not isinstance(text, str) or len(text) > _MOST:
            raise ValueError(f"{str(text)[:40]!r} is not a schedule; write five fields, for example '*/15 * * * *'")
        parts = text.split()
        if len(parts) != len(_FIELDS):
            raise ValueError(
                f"{text!r} has {len(parts)} fields; a schedule has five: minute, hour, day of month, month and day of "
                "week, for example '*/15 * * * *'"
            )
        minutes, hours, days, months, weekdays = (
            _values(part, field) for part, field in zip(parts, _FIELDS, strict=True)
        )
        is_any_day = parts[2].startswith("*") or parts[4].startswith("*")
        if parts[4].startswith("*") and all(min(days) > _LENGTHS[month - 1] for month in months):
            raise ValueError(f"{text!r}: none of its months has a day {min(days)}, so it would never be due")
        return cls(
            text=" ".join(parts),
            minutes=tuple(sorted(minutes)),
            hours=tuple(sorted(hours)),
            days=frozenset(days),
            months=frozenset(months),
            weekdays=frozenset(day % 7 for day in weekdays),
            either_day=not is_any_day,
            is_hourly=parts[1].startswith("*"),
        )

    def next_after(self, moment: datetime, zone: tzinfo | None = None) -> datetime:
        """The first due time after *moment*, in UTC.

        Args:
            moment: an aware datetime.
            zone: the time zone of the schedule; the machine's by default.
        """
        # A day earlier: clocks that are set back past midnight repeat a part of the day before.
        first = moment.astimezone(zone).date() - _DAY
        found: datetime | None = None
        for number in range(_LONGEST):
            day = first + number * _DAY
            for hour in self.hours if self.has_day(day) else ():
                begin, last = datetime.combine(day, time(hour)), datetime.combine(day, time(hour, 59))
                if found is not None and _as_utc(begin, 0, zone) > found + _SET_BACK:
                    return found
                if max(_as_utc(last, 0, zone), _as_utc(last, 1, zone)) > moment:
                    due = [at for at in self._moments(begin, zone) if at > moment]
                    found = min(due if found is None else [found, *due], default=None)
            if found is not None and day > found.date() + _DAY:
                return found
        if found is None:
            raise ValueError(f"{self.text!r} is not due within {_LONGEST // 366} years")
        return found

    def has_day(self, day: date) -> bool:
        """Whether it may be due on a day."""
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        is_day = (in_month or in_week) if self.either_day else (in_month and in_week)
        return is_day and day.month in self.months

    def _moments(self, hour: datetime, zone: tzinfo | None) -> Iterator[datetime]:
        """Due times in an hour, in UTC."""
        for minute in self.minutes:
            wall = hour.replace(minute=minute)
            early, late = _as_utc(wall, 0, zone), _as_utc(wall, 1, zone)
            if early <= late:
                yield early
                if early < late and self.is_hourly:
                    yield late
            elif not self.is_hourly:
                yield _set_forward(late, early, zone)

    def __str__(self) -> str:
        """The normalised text."""
        return self.text


def _as_utc(wall: datetime, fold: int, zone: tzinfo | None) -> datetime:
    """A local time in UTC. The folds differ if it comes twice; if it is skipped, fold 0 is the later one."""
    local = wall.replace(fold=fold)
    return (local.astimezone(UTC) if zone is None else local.replace(tzinfo=zone).astimezone(UTC)).replace(fold=0)


def _set_forward(before: datetime, after: datetime, zone: tzinfo | None) -> datetime:
    """When clocks were set forward: after *before*, and not after *after*."""
    offset = after.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) // 2
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after.replace(microsecond=0)


def _values(text: str, field: _Field) -> set[int]:
    """All numbers that a field matches."""
    found: set[int] = set()
    for part in text.lower().split(","):
        span, slash, step = part.partition("/")
        if slash and not (step.isascii() and step.isdigit() and 0 < int(step[:5]) < 1_000):
            raise _wrong(part, field, "a step is a number of at least 1, such as */15")
        first, dash, last = span.partition("-")
        if span == "*":
            low, high = field.low, field.high
        else:
            low = _number(first, field)
            high = _number(last, field) if dash else (field.high if slash else low)
            if dash and last == "sun":
                high = 7
        if low > high:
            raise _wrong(part, field, f"{low} is more than {high}")
        found |= set(range(low, high + 1, int(step[:5]) if slash else 1))
    return found


def _number(text: str, field: _Field) -> int:
    if text in field.words:
        return field.words.index(text) + (field.low if field.low == 1 else 0)
    if not (text.isascii() and text.isdigit()):
        named = f", or a name such as {field.words[0]}" if field.words else ""
        raise _wrong(text, field, f"write *, or numbers from {field.low} to {field.high}{named}")
    number = int(text[:5])
    if not field.low <= number <= field.high:
        raise _wrong(text, field, f"write numbers from {field.low} to {field.high}")
    return number


def _wrong(part: str, field: _Field, fix: str) -> ValueError:
    return ValueError(f"{part!r} cannot be the {field.name} of a schedule: {fix}")
