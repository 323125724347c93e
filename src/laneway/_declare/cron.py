"""Cron: schedules of five fields. Pure: the time is a parameter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from cronsim import CronSim, CronSimError

__all__ = ["Cron"]

_LONGEST = 1_000  # characters; a list of every minute has 170
_FIELDS = {
    "minute": "numbers from 0 to 59",
    "hour": "numbers from 0 to 23",
    "day-of-month": "numbers from 1 to 31",
    "month": "numbers from 1 to 12 or a name such as jan",
    "day-of-week": "numbers from 0 to 7 or a name such as sun",
}
"""The fields, as cronsim names them in its errors, and what each may hold."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A schedule such as ``*/15 * * * *``: minute, hour, day of month, month, day of week.

    Each field is ``*``, a number, a range ``1-5``, a step ``*/15`` or ``10-50/20``, or a list of these. Months and days
    of the week may have names of three letters; Sunday is 0 or 7. If neither day field begins with ``*``, a match of
    one of the two is enough.

    Times are local. When clocks are set forward, a skipped time is due at that moment. When they are set back, a time
    that comes twice is due once. A schedule for every hour (its second field is ``*``) follows elapsed time instead.

    Example:
        >>> Cron.parse("30 6 * * mon-fri").next_after(datetime(2026, 1, 2, 7, 0, tzinfo=UTC), UTC).isoformat()
        '2026-01-05T06:30:00+00:00'
    """

    text: str
    rule: str
    """The text for cronsim."""

    @classmethod
    def parse(cls, text: object) -> Cron:
        """Parse a schedule.

        Raises:
            ValueError: the message names the wrong field and what to write.
        """
        if not isinstance(text, str) or len(text) > _LONGEST:
            raise ValueError(f"{str(text)[:40]!r} is not a schedule; write five fields, for example '*/15 * * * *'")
        parts = text.split()
        if len(parts) != len(_FIELDS):
            raise ValueError(
                f"{text!r} has {len(parts)} fields; a schedule has five: minute, hour, day of month, month and day of "
                "week, for example '*/15 * * * *'"
            )
        rule = _for_cronsim(parts)
        try:
            CronSim(rule, datetime.min)  # noqa: DTZ901 - only the fields are checked
        except CronSimError as error:
            raise _wrong(parts, str(error).removeprefix("Bad ")) from None
        return cls(" ".join(parts), rule)

    def next_after(self, moment: datetime, zone: tzinfo | None = None) -> datetime:
        """The first due time after *moment*, in UTC."""
        # While a time comes for the second time, the first results are those of the first time.
        for due in CronSim(self.rule, moment.astimezone(zone or _MachineZone())):
            if (found := due.astimezone(UTC)) > moment:
                return found
        raise ValueError(f"{self.text!r} is not due within 50 years")

    def __str__(self) -> str:
        """The normalised text."""
        return self.text


def _for_cronsim(parts: list[str]) -> str:
    """The same schedule in the form in which cronsim follows our rules.

    cronsim lets every schedule follow elapsed time whose minutes or hours begin with ``*``, and accepts Sunday at the
    end of a range as 7 only.
    """
    minutes, hours, *days = parts
    if hours != "*":
        minutes, hours = minutes.replace("*", "0-59"), hours.replace("*", "0-23")
    return " ".join((minutes, hours, *days)).lower().replace("-sun", "-7")


def _wrong(parts: list[str], name: str) -> ValueError:
    part = parts[list(_FIELDS).index(name)]
    if name == "day-of-month":
        try:
            CronSim(f"* * {part} * *", datetime.min)  # noqa: DTZ901
        except CronSimError:
            pass
        else:
            return ValueError(f"{' '.join(parts)!r}: none of its months has a day {part}, so it would never be due")
    allowed = f"write *, {_FIELDS[name]}, a range from low to high such as 1-5, "
    allowed += "a step of at least 1 such as */2, or a list of these"
    return ValueError(f"{part!r} cannot be the {name.replace('-', ' ')} of a schedule: {allowed}")


class _MachineZone(tzinfo):
    """The time zone of the machine with its changes of the clock; `datetime.astimezone` alone gives a fixed offset."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        wall = (moment or datetime.now(UTC)).replace(tzinfo=None)
        return wall.astimezone().utcoffset() or timedelta()

    def dst(self, _moment: datetime | None) -> None:
        return None

    def tzname(self, _moment: datetime | None) -> str:
        return "local"

    def fromutc(self, moment: datetime) -> datetime:
        local = moment.replace(tzinfo=UTC).astimezone()
        wall = local.replace(tzinfo=self)
        return wall.replace(fold=int(self.utcoffset(wall) != local.utcoffset()))
