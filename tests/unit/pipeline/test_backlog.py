"""Which keys have records on retry topics, and behind which step a later one goes."""

from __future__ import annotations

import pytest

from laneway import Retry
from laneway.pipeline import Backlog
from support.core import make_record, make_route


def backlog(*joined):
    made = Backlog()
    for key, step in joined:
        made.joined(key, step)
    return made


def test_an_empty_backlog_is_false_and_holds_nobody_up():
    """It is asked for each turn, so asking must cost nothing while no key waits."""
    made = backlog()

    assert not made
    assert made.behind(b"a", 0) is None


@pytest.mark.parametrize(
    ("steps", "step", "expected"),
    [
        ((1,), 0, 1),
        ((1,), 1, None),
        ((2,), 0, 2),
        ((2,), 1, 2),
        ((1, 2, 3), 0, 1),
        ((3, 2), 1, 2),
        ((1, 3), 1, 3),
        ((1, 2), 2, None),
    ],
)
def test_a_record_goes_behind_the_lowest_step_above_its_own(steps, step, expected):
    """Those on a lower step are newer than those on a higher one; on its own step it is in line already."""
    assert expected == backlog(*((b"a", found) for found in steps)).behind(b"a", step)


def test_another_key_is_not_held_up():
    """An empty key is a key of its own."""
    made = backlog((b"a", 1), (b"", 2))

    assert made.behind(b"b", 0) is None
    assert made.behind(b"", 0) == 2


def test_a_key_waits_until_its_last_record_has_left():
    """Step by step, and in any order of the steps."""
    made = backlog((b"a", 1), (b"a", 1), (b"a", 2))
    made.left(b"a", 1)
    assert made.behind(b"a", 0) == 1

    made.left(b"a", 1)
    assert (made.behind(b"a", 0), len(made)) == (2, 1)
    made.left(b"a", 2)
    assert (made.behind(b"a", 0), len(made)) == (None, 0)


@pytest.mark.parametrize(("key", "step"), [(b"b", 1), (b"a", 2), (None, 1)])
def test_a_record_that_never_joined_may_leave(key, step):
    """Anybody may write to a retry topic."""
    made = backlog((b"a", 1))
    made.left(key, step)

    assert made.behind(b"a", 0) == 1


def test_it_is_loaded_from_what_waits_on_the_topics():
    """After a restart the topics alone know; records without an order wait for nobody."""
    route = make_route(retry=Retry.steps("5s", "1m", mode="park"), lanes=4)
    made = Backlog()
    made.load([make_record(1, b"a"), make_record(2, None), make_record(3, b"a")], 1, route.lane_key)
    made.load([make_record(1, b"")], 2, route.lane_key)

    assert (len(made), made.behind(b"a", 0), made.behind(b"", 1), made.behind(None, 0)) == (2, 1, 2, None)
    made.left(b"a", 1)
    assert made.behind(b"a", 0) == 1


def test_a_partition_may_be_what_is_in_order():
    """Then all of its records queue behind the one that waits."""
    route = make_route(retry=Retry.steps("5s", mode="park"), lanes=1)
    made = Backlog()
    made.load([make_record(1, b"a", partition=3), make_record(2, None, partition=4)], 1, route.lane_key)

    assert (made.behind(3, 0), made.behind(4, 0), made.behind(5, 0)) == (1, 1, None)
