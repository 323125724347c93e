"""The demo's result is computed from what was found, and says what is wrong."""

from __future__ import annotations

import pytest

from laneway.devkit.demo._figures import Found, judge
from laneway.devkit.demo._orders import Mix
from laneway.devkit.history import Event


def found(**changes):
    """One partition: offset 0 handled, 1 rejected, 2 not JSON, 3 handled at the second attempt."""
    whole = {
        "mix": Mix(total=4, poison=1, negative=1, unstable=1),
        "ends": {0: 4},
        "parked": [(0, 1), (0, 2)],
        "receipts": 2,
        "succeeded": [Event(7, 0, 0, 0.0, 0.02, 1), Event(9, 0, 3, 0.08, 0.1, 2)],
        "failed": [Event(8, 0, 1, 0.0, 0.02, 1), Event(9, 0, 3, 0.0, 0.02, 1)],
    }
    return Found(**{**whole, **changes})


def test_a_run_as_it_should_be_is_clean():
    """Every figure comes from the history and the topics."""
    figures = judge(found(), lanes=25)

    assert (figures.is_clean, figures.handled, figures.parked, figures.retries) == (True, 2, 2, 1)
    assert (figures.records_per_second, figures.ideal_per_second) == pytest.approx((40, 1250))
    assert figures.times_faster == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"parked": [(0, 1)]}, "records lost"),
        ({"parked": [(0, 1), (0, 2), (0, 2)]}, "calls or copies too many"),
        ({"receipts": 3}, "receipts"),
        ({"mix": Mix(total=5, poison=1, negative=1, unstable=1)}, "records in the topic"),
        ({"succeeded": [Event(7, 0, 0, 0.0, 0.02, 1)]}, "records lost"),
        ({"succeeded": [Event(7, 0, 0, 0.0, 0.02, 1), Event(7, 0, 3, 0.01, 0.1, 2)]}, "calls of one key at once"),
        ({"succeeded": [Event(7, 0, 3, 0.0, 0.02, 2), Event(7, 0, 0, 0.03, 0.1, 1)]}, "calls out of order"),
        ({"failed": []}, "retries"),
    ],
)
def test_whatever_is_wrong_is_named(changes, problem):
    """A planted violation makes the result unclean and stands in its problems."""
    if problem == "retries":
        changes = {**changes, "succeeded": [Event(7, 0, 0, 0.0, 0.02, 1), Event(9, 0, 3, 0.08, 0.1, 1)]}
    figures = judge(found(**changes), lanes=25)

    assert problem in " ".join(figures.problems)
    assert figures.as_dict()["clean"] is False
