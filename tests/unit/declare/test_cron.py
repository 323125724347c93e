"""Schedules: what is read, what is refused, and when they fall due, clocks that are set forward and back included."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway._declare.cron import Cron

ZONES = {
    "UTC": (2026, 1, 15),
    "Europe/Berlin": (2026, 3, 29),
    "America/New_York": (2026, 11, 1),
    "Australia/Lord_Howe": (2026, 4, 5),  # set back by half an hour
    "America/Havana": (2026, 11, 1),  # set back at one o'clock to midnight
    "America/Sao_Paulo": (2018, 11, 4),  # set forward at midnight
    "Atlantic/Azores": (2026, 10, 25),  # set back at one o'clock to midnight
    "America/Scoresbysund": (2024, 3, 31),  # set forward at midnight, twice
    "Pacific/Apia": (2011, 12, 30),  # a whole day is left out
    "America/Santiago": (2026, 4, 5),  # set back at midnight, to the day before
}


def wall(moment, zone):
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def is_hourly(cron):
    return cron.text.split()[1] == "*"


def matches(cron, local):
    sim = CronSim(cron.text, local)
    at = (local.month, local.hour, local.minute)
    return sim.match_day(local.date()) and all(map(set.__contains__, (sim.months, sim.hours, sim.minutes), at))


def falls_due(cron, moment, zone):
    """The rule, said minute by minute."""
    local, before = wall(moment, zone), wall(moment - timedelta(minutes=1), zone)
    if matches(cron, local) and (is_hourly(cron) or not moment.astimezone(zone).fold):
        return True
    left_out = before + timedelta(minutes=1)
    while left_out < local and not is_hourly(cron):  # clocks were set forward just now
        if matches(cron, left_out):
            return True
        left_out += timedelta(minutes=1)
    return False


def next_by_scan(cron, moment, zone, most):
    """The first minute after a moment, found by looking at each."""
    minute = moment.replace(second=0, microsecond=0)
    for _ in range(most):
        minute += timedelta(minutes=1)
        if falls_due(cron, minute, zone):
            return minute
    return None


def field(low, high):
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    step = st.tuples(st.sampled_from(["*", f"{low}-{high}", str(low)]), st.integers(1, high)).map(
        lambda pair: f"{pair[0]}/{pair[1]}"
    )
    one = st.one_of(number.map(str), span, step)
    return st.one_of(st.just("*"), st.lists(one, min_size=1, max_size=3).map(",".join))


SCHEDULES = st.tuples(field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 7)).map(" ".join)


@settings(max_examples=100, deadline=None)
@given(SCHEDULES, st.sampled_from(sorted(ZONES)), st.integers(-26 * 60, 20 * 60), st.integers(0, 59))
def test_the_next_time_is_the_one_that_a_look_at_every_minute_finds(text, name, minutes, seconds):
    """Around each kind of change of clocks, whatever the schedule."""
    cron, zone = Cron.parse(text), ZoneInfo(name)
    moment = datetime(*ZONES[name], 2, tzinfo=UTC) + timedelta(minutes=minutes, seconds=seconds)
    most = 30 * 60
    expected, actual = next_by_scan(cron, moment, zone, most), cron.next_after(moment, zone)
    if expected is None:
        assert actual > moment + timedelta(minutes=most - 1)
    else:
        assert expected == actual


@pytest.mark.parametrize(
    ("text", "moment", "expected"),
    [
        ("*/15 * * * *", "2026-01-31T08:15:00", "2026-01-31T08:30:00"),
        ("*/15 * * * *", "2026-01-31T08:14:59.999", "2026-01-31T08:15:00"),
        ("0 0 1 1 *", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00:00", "2104-02-29T00:00:00"),
        ("0 0 29 2 */7", "2060-03-01T00:00:00", "2088-02-29T00:00:00"),
        ("30 6 * * mon-fri", "2026-01-02T07:00:00", "2026-01-05T06:30:00"),
        ("0 12 * * FRI-SUN", "2026-01-03T13:00:00", "2026-01-04T12:00:00"),
        ("0 12 * * 7", "2026-01-01T00:00:00", "2026-01-04T12:00:00"),
        ("5/20 3 * feb,DEC *", "2026-01-01T00:00:00", "2026-02-01T03:05:00"),
        ("10-50/20 * * * *", "2026-01-01T00:10:00", "2026-01-01T00:30:00"),
        ("0 0 13 * fri", "2026-01-01T00:00:00", "2026-01-02T00:00:00"),  # a Friday, or a 13th
        ("0 0 13 * */5", "2026-01-01T00:00:00", "2026-02-13T00:00:00"),  # begins with *: a 13th that is one of these
    ],
)
def test_a_schedule_falls_due(text, moment, expected):
    """Steps, ranges, lists, names, leap days, and the rule of the two day fields."""
    at = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    assert datetime.fromisoformat(expected).replace(tzinfo=UTC) == Cron.parse(text).next_after(at, UTC)


@pytest.mark.parametrize(
    ("text", "day", "expected"),
    [
        ("30 2 * * *", (2026, 3, 29), ["03:00+02:00"]),  # left out: when clocks are set forward
        ("*/15 2 * * *", (2026, 3, 29), ["03:00+02:00"]),  # and once, however many are left out
        ("30 2 * * *", (2026, 10, 25), ["02:30+02:00"]),  # twice on the wall, once
        ("30 * * * *", (2026, 10, 25), ["00:30+02:00", "01:30+02:00", "02:30+02:00", "02:30+01:00", "03:30+01:00"]),
        ("30 * * * *", (2026, 3, 29), ["00:30+01:00", "01:30+01:00", "03:30+02:00"]),
    ],
)
def test_clocks_that_change(text, day, expected):
    """A daily schedule falls due once each day; an hourly one goes by the time that passes."""
    cron, zone = Cron.parse(text), ZoneInfo("Europe/Berlin")
    begin = datetime(*day, tzinfo=zone).astimezone(UTC) - timedelta(seconds=1)
    found, moment = [], begin
    while (moment := cron.next_after(moment, zone)) < datetime(*day, 4, tzinfo=zone).astimezone(UTC):
        local = moment.astimezone(zone)
        found.append(f"{local:%H:%M}{local.isoformat()[-6:]}")
    assert expected == found


def test_clocks_that_are_set_back_past_midnight():
    """The end of the day before comes a second time, after the first minute of the day."""
    cron, zone = Cron.parse("0,30 * * * *"), ZoneInfo("America/St_Johns")
    moment, found = datetime(2010, 11, 7, 1, 50, tzinfo=UTC), []
    for _ in range(5):
        moment = cron.next_after(moment, zone)
        found.append(f"{moment.astimezone(zone):%d %H:%M}")
    assert found == ["06 23:30", "07 00:00", "06 23:30", "07 00:00", "07 00:30"]


@pytest.fixture
def machine_zone(monkeypatch):
    """Sets the time zone of the machine for this process."""

    def change(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield change
    monkeypatch.undo()
    time.tzset()


def test_the_local_time_of_the_machine_counts(machine_zone):
    """Without a zone it is that of the machine, as for any cron."""
    machine_zone("Asia/Kathmandu")
    at = Cron.parse("0 6 * * *").next_after(datetime(2026, 1, 1, tzinfo=UTC))
    assert datetime(2026, 1, 1, 0, 15, tzinfo=UTC) == at


@pytest.mark.parametrize("name", ["Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "Atlantic/Azores"])
@pytest.mark.parametrize("text", ["30 * * * *", "30 2 * * *", "*/15 0-3 * * *"])
def test_changes_of_the_machines_clock_count(machine_zone, name, text):
    """Clocks that change do so with the machine's zone as with a zone that is named."""
    machine_zone(name)
    cron, moment = Cron.parse(text), datetime(*ZONES[name], tzinfo=UTC) - timedelta(days=1)
    for _ in range(60):
        assert cron.next_after(moment) == cron.next_after(moment, ZoneInfo(name))
        moment += timedelta(minutes=47)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("* * * * * *", "6 fields"),
        ("60 * * * *", "'60' cannot be the minute of a schedule: write \\*, numbers from 0 to 59"),
        ("* 24 * * *", "'24' cannot be the hour"),
        ("* * 0 * *", "from 1 to 31"),
        ("* * * 13 *", "from 1 to 12"),
        ("* * * * 8", "from 0 to 7"),
        ("* * * * mond", "a name such as sun"),
        ("*/0 * * * *", "a step of at least 1 such as \\*/2"),
        ("*/ * * * *", "a step of at least 1 such as \\*/2"),
        ("*/x * * * *", "a step of at least 1 such as \\*/2"),
        ("5-1 * * * *", "a range from low to high such as 1-5"),
        ("1,,2 * * * *", "cannot be the minute of a schedule"),
        ("1- * * * *", "cannot be the minute of a schedule"),
        ("-1 * * * *", "cannot be the minute of a schedule"),
        ("\u0661 * * * *", "cannot be the minute of a schedule"),
        ("9" * 900 + " * * * *", "from 0 to 59"),
        ("* " * 900, "is not a schedule"),
        ("0 0 30 2 *", "would never be due"),
        ("0 0 31 4,6,9,11 *", "would never be due"),
        (15, "is not a schedule"),
        (None, "is not a schedule"),
    ],
)
def test_what_is_no_schedule_is_refused(text, part):
    """Each mistake is named, with what to write instead."""
    with pytest.raises(ValueError, match=part):
        Cron.parse(text)
