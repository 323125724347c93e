"""Tallies add up and travel."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import given

from laneway.events import CopyFailed, RecordHandled, RecordParked
from laneway.observe import Tally

COUNTS = st.integers(0, 10**6)
PLACE = ("charge", "orders", 3, 2**40, 1)
GOOD = st.lists(st.just(RecordHandled(*PLACE)), max_size=3)
BAD = st.lists(
    st.sampled_from([RecordParked(*PLACE, 'E: "ü\0\u2028"', "errors"), CopyFailed("charge", "out", "", 1)]), max_size=30
).map(lambda events: events[:20])


@st.composite
def tallies(draw):
    names = (
        "read",
        "handled",
        "skipped",
        "parked",
        "dropped",
        "deferred",
        "retried",
        "produced",
        "gaps",
        "lost",
        "undelivered",
        "calls",
    )
    tally = Tally(**{name: draw(COUNTS) for name in names}, size=draw(COUNTS), lanes=draw(st.integers(0, 99)))
    if draw(st.booleans()):
        tally.first = draw(st.floats(1, 1000))
        tally.last = tally.first + draw(st.floats(0, 1000))
        tally.lanes_busy = draw(st.floats(0, 99))
    tally.seconds = draw(st.floats(0, 1000))
    tally.latency = draw(st.dictionaries(st.integers(0, 300), st.integers(1, 50), max_size=4))
    tally.events = draw(GOOD) + draw(BAD)
    return tally


def copy(tally):
    return Tally.decode(tally.encode())


@given(tallies())
def test_a_tally_travels(tally):
    """Encoding and decoding gives an equal tally."""
    assert tally == copy(tally)


@given(tallies(), tallies())
def test_the_order_of_adding_does_not_matter(left, right):
    """All but the choice of events is the same whichever comes first."""
    one, other = copy(left), copy(right)
    one.add(right)
    other.add(left)

    for name, value in one.as_dict().items():
        assert value == pytest.approx(other.as_dict()[name])
    assert one.latency == other.latency
    assert Counter(map(type, one.events)) == Counter(map(type, other.events))
    assert max(Counter(map(type, one.events)).values(), default=0) <= 20


@given(tallies())
def test_adding_to_nothing_gives_the_same(tally):
    """An empty tally is neutral."""
    total = Tally()
    total.add(tally)

    expected = tally.as_dict()
    if tally.first == tally.last:
        expected["lanes_busy"] = 0.0
    assert expected == pytest.approx(total.as_dict())
    assert tally.latency == total.latency


def test_lanes_in_use_are_averaged_over_time():
    """Two halves with 4 and 2 lanes in use make 3 on average; two at the same time make 6."""
    total = Tally(first=10.0, last=20.0, lanes_busy=4.0)
    total.add(Tally(first=20.0, last=30.0, lanes_busy=2.0))
    assert total.lanes_busy == 3.0

    total = Tally(first=10.0, last=20.0, lanes_busy=4.0)
    total.add(Tally(first=10.0, last=20.0, lanes_busy=2.0))
    assert total.lanes_busy == 6.0


def test_what_reached_its_end_is_counted_once():
    """Finished is every end there is, without what was tried again."""
    assert Tally(read=99, handled=1, skipped=2, parked=3, dropped=4, deferred=5, retried=50).finished == 15


def test_only_the_first_events_of_each_kind_are_kept():
    """However many tallies are added, a total stays small; its counts stay exact."""
    total = Tally()
    for offset in range(50):
        place = ("h", "t", 0, offset, 1)
        total.add(Tally(parked=1, events=[RecordHandled(*place), RecordParked(*place, "E", "errors")]))

    assert total.parked == 50
    assert [event.offset for event in total.events if isinstance(event, RecordHandled)] == [0, 1, 2]
    assert [event.offset for event in total.events if isinstance(event, RecordParked)] == list(range(20))


@given(tallies(), tallies())
def test_what_was_added_can_be_told_from_what_was_there(before, added):
    """A total without what it was earlier is what was added since, latencies included."""
    total = copy(before)
    total.add(added)
    new = total.since(copy(before))

    for name, value in added.as_dict().items():
        if isinstance(value, int) and name != "lanes":
            assert value == new.as_dict()[name]
    assert added.latency == new.latency


def test_percentiles_come_from_the_latencies():
    """A tally answers as its histogram does."""
    assert Tally(latency={5: 9, 50: 1}).percentile(50) == 5
    assert Tally().percentile(50) is None
