"""Tallies add up and travel."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from laneway.instrumentation import ErrorSample, Tally

COUNTS = st.integers(0, 10**6)
SAMPLES = st.lists(st.builds(ErrorSample, *[st.just("x")] * 2, COUNTS, COUNTS, st.text(max_size=5), st.just("parked")))


@st.composite
def tallies(draw):
    names = ("read", "handled", "skipped", "parked", "retried", "produced", "gaps", "lost", "undelivered", "calls")
    tally = Tally(**{name: draw(COUNTS) for name in names}, size=draw(COUNTS), lanes=draw(st.integers(0, 99)))
    if draw(st.booleans()):
        tally.first = draw(st.floats(1, 1000))
        tally.last = tally.first + draw(st.floats(0, 1000))
        tally.lanes_busy = draw(st.floats(0, 99))
    tally.seconds = draw(st.floats(0, 1000))
    tally.latency = draw(st.dictionaries(st.integers(0, 300), st.integers(1, 50), max_size=4))
    tally.samples = draw(SAMPLES.map(lambda samples: samples[:3]))
    return tally


def copy(tally):
    return Tally.decode(tally.encode())


@given(tallies())
def test_a_tally_travels(tally):
    """Encoding and decoding gives an equal tally."""
    assert tally == copy(tally)


@given(tallies(), tallies())
def test_the_order_of_adding_does_not_matter(left, right):
    """All but the choice of samples is the same whichever comes first."""
    one, other = copy(left), copy(right)
    one.add(right)
    other.add(left)

    for name, value in one.as_dict().items():
        assert value == pytest.approx(other.as_dict()[name])
    assert one.latency == other.latency
    assert len(one.samples) == len(other.samples) <= 5


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
    """Finished is handled, skipped and parked, without what was tried again."""
    assert Tally(read=9, handled=1, skipped=2, parked=3, retried=50).finished == 6


def test_only_a_few_samples_are_kept():
    """Counts stay exact, texts are examples."""
    tally = Tally()
    for offset in range(9):
        tally.sample(ErrorSample("h", "t", 0, offset, "E", "parked"))

    assert [sample.offset for sample in tally.samples] == [0, 1, 2, 3, 4]


def test_percentiles_come_from_the_latencies():
    """A tally answers as its histogram does."""
    assert Tally(latency={5: 9, 50: 1}).percentile(50) == 5
    assert Tally().percentile(50) is None
