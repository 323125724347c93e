"""How far a retry topic may be read, whatever the clock does."""

from __future__ import annotations

import pytest

from laneway._runtime import due_offsets as _feeds
from laneway._runtime.due_offsets import DueEnds, DueOffsets
from laneway._runtime.topics import Feed

DELAY = 60.0
FEEDS = (Feed("in", ("charge",)), Feed("retry", ("charge",), 1, DELAY))


class Clock:
    """Wall and steady time; `step` sets the wall clock alone."""

    def __init__(self):
        self.wall, self.steady = 1_000_000.0, 500.0

    def time(self):
        return self.wall

    def monotonic(self):
        return self.steady

    def pass_(self, seconds):
        self.wall += seconds
        self.steady += seconds


class Logs:
    """One partition of each topic; a retry record is its timestamp in milliseconds."""

    def __init__(self):
        self.records = []
        self.questions = 0

    def partitions(self, topic):
        return [0]

    def ends_of(self, places, timeout):
        return {place: len(self.records) if place[0] == "retry" else 0 for place in places}

    def first_since(self, places, timeout):
        self.questions += 1
        (limit,) = set(places.values())
        found = next((at for at, stamp in enumerate(self.records) if stamp >= limit), None)
        return dict.fromkeys(places, found)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(_feeds, "time", made)
    return made


@pytest.fixture
def logs():
    return Logs()


def due(feeds, begin=0):
    return feeds.ends({("in", 0): 0, ("retry", 0): begin})[("retry", 0)]


def write(logs, clock, ahead=0.0):
    logs.records.append(int((clock.time() + ahead) * 1000))


def test_nothing_is_due_before_its_delay_and_all_is_after_it(clock, logs):
    """Two records a second apart fall due a second apart."""
    feeds = DueOffsets(FEEDS, logs)
    write(logs, clock)
    clock.pass_(1.0)
    write(logs, clock)
    seen = []
    for _ in range(700):
        seen.append((round(clock.wall - 1_000_000, 1), due(feeds)))
        clock.pass_(0.1)
    assert next(at for at, end in seen if end == 1) == pytest.approx(60.1, abs=0.11)
    assert next(at for at, end in seen if end == 2) == pytest.approx(61.1, abs=0.11)
    assert all(end == 0 for at, end in seen if at <= 60)


def test_what_waited_while_nobody_looked_is_due_at_once(clock, logs):
    """After a restart the timestamps tell."""
    write(logs, clock)
    clock.pass_(3600)
    assert due(DueOffsets(FEEDS, logs)) == 1


@pytest.mark.parametrize("step", [-3600.0, -1e9])
def test_a_clock_set_back_delays_nothing_by_more_than_the_delay(clock, logs, step):
    """The timestamps lie in the future then; the steady clock tells that the delay is over."""
    feeds = DueOffsets(FEEDS, logs)
    write(logs, clock)
    due(feeds)
    clock.wall += step
    clock.pass_(DELAY - 1)
    assert due(feeds) == 0
    clock.pass_(2)
    assert due(feeds) == 1


def test_a_clock_set_forward_loses_nothing(clock, logs):
    """What was written before the step is due by the new time; what is written after it waits its delay."""
    feeds = DueOffsets(FEEDS, logs)
    write(logs, clock)
    due(feeds)
    clock.wall += 3600
    clock.pass_(1)
    assert due(feeds) == 1
    write(logs, clock)
    clock.pass_(DELAY - 1)
    assert due(feeds, begin=1) == 1
    clock.pass_(2)
    assert due(feeds, begin=1) == 2


def test_a_timestamp_of_next_year_holds_up_nothing_behind_it(clock, logs):
    """It and what is behind it wait no longer than the delay."""
    feeds = DueOffsets(FEEDS, logs)
    write(logs, clock, ahead=365 * 86_400)
    write(logs, clock)
    due(feeds)
    clock.pass_(DELAY - 1)
    assert due(feeds) == 0
    clock.pass_(2)
    assert due(feeds) == 2


def test_a_record_that_comes_between_look_and_question_is_not_run_early(clock, logs):
    """An old answer that all are due does not speak for what was written after it."""
    feeds = DueOffsets(FEEDS, logs)
    write(logs, clock)
    clock.pass_(DELAY + 1)
    assert due(feeds) == 1
    write(logs, clock)
    clock.pass_(0.01)
    assert due(feeds) == 1


def test_an_empty_retry_topic_costs_no_question(clock, logs):
    """The index of timestamps is asked only when something waits, and not at every look."""
    feeds = DueOffsets(FEEDS, logs)
    for _ in range(100):
        due(feeds)
        clock.pass_(0.01)
    assert logs.questions == 0
    write(logs, clock)
    for _ in range(100):
        due(feeds)
        clock.pass_(0.01)
    assert 5 <= logs.questions <= 12


def test_looks_are_remembered_in_bounded_number():
    """A delay of a day under a steady stream keeps no more than a few hundred of them."""
    ends = DueEnds(86_400.0)
    for second in range(200_000):
        ends.saw({0: second}, float(second))
        ends.waited(float(second))
    assert len(ends._seen) < 300
    assert 200_000 - 86_400 - 500 < ends.waited(200_000.0)[0] <= 200_000 - 86_400
