"""Percentiles in a few integers."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from laneway.observe import Histogram

VALUES = st.lists(st.integers(-5, 10**12), min_size=1, max_size=60)


@given(VALUES, st.sampled_from([1, 25, 50, 90, 99, 99.9, 100]))
def test_a_percentile_is_near_the_exact_one(values, percent):
    """The answer is below the exact value by no more than 3.2 per cent."""
    histogram = Histogram()
    histogram.add_all(values)
    ordered = sorted(max(value, 0) for value in values)
    exact = next(value for count, value in enumerate(ordered, 1) if count >= len(ordered) * percent / 100)

    assert exact * (1 - 0.032) <= histogram.percentile(percent) <= exact


@given(VALUES, VALUES)
def test_merging_is_as_counting_together(left, right):
    """Two histograms merged equal one that saw everything."""
    merged, other, whole = Histogram(), Histogram(), Histogram()
    merged.add_all(left)
    other.add_all(right)
    merged.merge(other)
    whole.add_all(left + right)

    assert whole.counts == merged.counts
    assert len(left + right) == merged.total


def test_small_values_are_exact():
    """Below 64 each value has its own bucket; the first wider bucket is where it should be."""
    for value in (*range(64), 64, 128, 2**40):
        histogram = Histogram()
        histogram.add_all([value])
        assert value == histogram.percentile(50)


def test_nothing_has_no_percentile():
    """Without values there is no answer."""
    assert Histogram().percentile(50) is None


@given(values=st.lists(st.integers(-5, 10**9)))
def test_one_by_one_is_as_all_at_once(values):
    """Whichever way they are counted, in the same buckets."""
    singly, together = Histogram(), Histogram()
    for value in values:
        singly.add(value)
    together.add_all(values)

    assert singly.counts == together.counts
