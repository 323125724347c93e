"""What is made of the passes with and without failures."""

from __future__ import annotations

import pytest

from support.bench import failure


def passes(*speeds):
    return [{"records_per_second": speed, "tempo": [70.0, 70.0], "lost": 0} for speed in speeds]


def test_a_turn_is_compared_with_the_pass_just_before_it():
    """A slow spell takes both of a turn: the median of the turns shows 80 %, though the medians are 100 and 40."""
    clean, failing, half = failure.compared({0: passes(100, 50, 200), 1: passes(80, 40, 20), 50: passes(10)})

    assert (clean["part_of_first"], clean["part_of_first_median"]) == (1.0, 1.0)
    assert (failing["part_of_first"], failing["part_of_first_median"]) == (0.4, pytest.approx(0.8))
    assert (failing["records_per_second"], failing["median"]) == (80, 40)
    assert half["part_of_first_median"] == pytest.approx(0.1)


def test_a_pass_that_lost_something_is_not_hidden_behind_the_best():
    """Also when it was not the one that is kept, and whichever way the count is off."""
    slow = [*passes(100), {"records_per_second": 1, "tempo": [70.0, 70.0], "lost": -2}]
    assert failure.compared({0: slow})[0]["lost"] == 2
