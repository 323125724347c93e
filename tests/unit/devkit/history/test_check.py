"""The checker finds every planted violation, and nothing in a history that is in order."""

from __future__ import annotations

import pytest

from laneway.devkit.history import Event, check


def call(offset, start, *, key=7, partition=0, attempt=1, lasts=1.0):
    """One handler call."""
    return Event(key, partition, offset, start, start + lasts, attempt)


def test_a_history_in_order_is_clean():
    """Two keys side by side, each in its order, are no violation."""
    events = [call(0, 0), call(1, 0.5, key=8), call(2, 1), call(3, 1.5, key=8)]

    verdict = check(events, {0: 4})

    assert (verdict.is_clean, verdict.calls, verdict.records, verdict.most_at_once) == (True, 4, 4, 2)


def test_a_record_without_a_call_is_lost():
    """The one offset without a call is found."""
    assert check([call(0, 0), call(2, 1)], {0: 3}).lost == 1


def test_a_record_that_only_failed_is_lost():
    """A call that raised does not count as an end."""
    assert check([call(0, 0)], {0: 2}, failed=[call(1, 1)]).lost == 1


def test_a_parked_record_is_not_lost():
    """A copy on the error topic is an end, with a call before it or without."""
    verdict = check([call(0, 0)], {0: 3}, failed=[call(1, 1)], parked=[(0, 1), (0, 2)])

    assert (verdict.is_clean, verdict.lost) == (True, 0)


def test_a_second_call_is_a_duplicate():
    """The same attempt of the same record twice is one duplicate and no inversion."""
    verdict = check([call(0, 0), call(1, 1), call(0, 2)], {0: 2})

    assert (verdict.duplicates, verdict.inversions) == (1, 0)


def test_a_retry_is_not_a_duplicate():
    """A failed first attempt and a successful second are as they should be."""
    verdict = check([call(0, 1, attempt=2), call(1, 2)], {0: 2}, failed=[call(0, 0)])

    assert (verdict.is_clean, verdict.calls, verdict.records) == (True, 3, 2)


@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_any_call_after_a_success_is_a_duplicate(attempt):
    """Whatever its attempt says, a call of a record that had succeeded is one too many."""
    assert check([call(0, 0), call(0, 1, attempt=attempt)], failed=[]).duplicates == 1


def test_a_repeated_retry_is_a_duplicate():
    """Attempts one, two, two: the last is one too many."""
    assert check([call(0, 0), call(0, 1, attempt=2), call(0, 2, attempt=2)]).duplicates == 1


def test_a_copy_parked_twice_is_a_duplicate():
    """The error topic holds each record once."""
    assert check([], {0: 1}, parked=[(0, 0), (0, 0)]).duplicates == 1


def test_a_later_record_first_is_an_inversion():
    """Offset 1 of a key before its offset 0 is found."""
    assert check([call(1, 0), call(0, 1)], {0: 2}).inversions == 1


def test_a_later_record_before_a_retry_is_an_inversion():
    """A key does not go on while a record of it waits for its retry."""
    assert check([call(1, 1), call(0, 2, attempt=2)], {0: 2}, failed=[call(0, 0)]).inversions == 1


def test_calls_of_one_key_at_once_are_an_overlap():
    """The second begins before the first has ended."""
    verdict = check([call(0, 0), call(1, 0.5)], {0: 2})

    assert (verdict.overlaps, verdict.inversions) == (1, 0)


def test_a_failed_call_overlaps_too():
    """A call that raised was still a call."""
    assert check([call(1, 0.5)], failed=[call(0, 0)], parked=[(0, 0)]).overlaps == 1


def test_records_without_a_key_have_no_order():
    """No key, no order to break."""
    assert check([call(1, 0, key=0), call(0, 0.5, key=0)], {0: 2}).is_clean
