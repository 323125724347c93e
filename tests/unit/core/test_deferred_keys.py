"""Which keys have records on retry topics, and behind which step a later one goes."""

from __future__ import annotations

import pytest

from laneway import Retry
from laneway._core.deferred_keys import DeferredKeys
from laneway._declare.record import Origin
from support.core import make_record, make_route


def backlog(*joined, partition=0):
    made = DeferredKeys()
    for key, step in joined:
        made.joined(partition, key, step)
    return made


def copy_of(offset, key=b"a", partition=0, *, origin=None):
    """A record as it lies on a retry topic, with the offset it was first read at."""
    headers = [
        ("laneway-origin-topic", b"orders"),
        ("laneway-origin-partition", b"%d" % (partition if origin is None else origin)),
        ("laneway-origin-offset", b"%d" % offset),
    ]
    return make_record(900 + offset, key, partition=partition, headers=headers, topic="orders.billing.retry.1")


def test_an_empty_backlog_is_false_and_holds_nobody_up():
    """It is asked for each turn, so asking must cost nothing while no key waits."""
    made = backlog()

    assert not made
    assert made.behind(0, b"a", 0) is None


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
    assert expected == backlog(*((b"a", found) for found in steps)).behind(0, b"a", step)


def test_another_key_is_not_held_up():
    """An empty key is a key of its own."""
    made = backlog((b"a", 1), (b"", 2))

    assert made.behind(0, b"b", 0) is None
    assert made.behind(0, b"", 0) == 2


def test_a_key_waits_until_its_last_record_has_left():
    """Step by step, and in any order of the steps."""
    made = backlog((b"a", 1), (b"a", 1), (b"a", 2))
    made.left(0, b"a", 1)
    assert made.behind(0, b"a", 0) == 1

    made.left(0, b"a", 1)
    assert (made.behind(0, b"a", 0), len(made)) == (2, 1)
    made.left(0, b"a", 2)
    assert (made.behind(0, b"a", 0), len(made)) == (None, 0)


@pytest.mark.parametrize(
    ("partition", "key", "step"), [(0, b"b", 1), (0, b"a", 2), (0, None, 1), (1, b"a", 1), (1, None, 1)]
)
def test_a_record_that_never_joined_may_leave(partition, key, step):
    """Anybody may write to a retry topic."""
    made = backlog((b"a", 1))
    made.left(partition, key, step)

    assert (made.behind(0, b"a", 0), len(made)) == (1, 1)


def test_it_is_loaded_from_what_waits_on_the_topics():
    """After a restart the topics alone know; records without an order wait for nobody."""
    route = make_route(retry=Retry.steps("5s", "1m", mode="ordered"), lanes=4)
    made = DeferredKeys()
    made.load([make_record(1, b"a"), make_record(2, None), make_record(3, b"a")], 1, route.lane_key)
    made.load([make_record(1, b"")], 2, route.lane_key)

    assert (len(made), made.behind(0, b"a", 0), made.behind(0, b"", 1), made.behind(0, None, 0)) == (2, 1, 2, None)
    made.left(0, b"a", 1)
    assert made.behind(0, b"a", 0) == 1


def test_a_partition_may_be_what_is_in_order():
    """Then all of its records queue behind the one that waits."""
    route = make_route(retry=Retry.steps("5s", mode="ordered"), lanes=1)
    made = DeferredKeys()
    made.load([make_record(1, b"a", partition=3), make_record(2, None, partition=4)], 1, route.lane_key)

    assert (made.behind(3, 3, 0), made.behind(4, 4, 0), made.behind(5, 5, 0)) == (1, 1, None)
    assert made.behind(3, 4, 0) is None


def test_a_key_waits_in_each_partition_for_itself():
    """A copy lies where its record was read, and records of different partitions have no order."""
    made = DeferredKeys()
    made.load([copy_of(1, partition=3), copy_of(2, partition=4), copy_of(3, partition=4)], 1, lambda record: "c")
    assert (made.behind(3, "c", 0), made.behind(4, "c", 0), made.behind(0, "c", 0), len(made)) == (1, 1, None, 2)

    made.left(3, "c", 1)
    assert (made.behind(3, "c", 0), made.behind(4, "c", 0), len(made)) == (None, 1, 1)


def test_a_record_that_is_older_than_all_that_wait_is_known():
    """By the offset it had at first, in its own partition, and only when the copies were loaded after a crash."""
    made = DeferredKeys()
    made.load([copy_of(7), copy_of(5), copy_of(3, partition=1)], 1, lambda record: record.key, "orders")
    assert [made.precedes(b"a", make_record(offset, b"a")) for offset in (4, 5, 6)] == [True, False, False]
    assert [made.precedes(b"a", make_record(offset, b"a", partition=1)) for offset in (2, 3)] == [True, False]
    assert not made.precedes(b"b", make_record(0, b"b"))
    assert not made.precedes(b"a", make_record(0, b"a", partition=2))

    came_back = make_record(2, b"a", topic="orders.billing.retry.1")
    came_back.origin = Origin("orders", 0, 6)
    assert not made.precedes(b"a", came_back)
    without = DeferredKeys()
    without.load([copy_of(7)], 1, lambda record: record.key)
    assert not without.precedes(b"a", make_record(0, b"a"))


def test_the_place_where_a_copy_lies_counts_and_not_what_it_says():
    """Anybody may write to a retry topic; what is forgotten with a partition must not depend on a header."""
    made = DeferredKeys()
    made.load([copy_of(5, partition=1, origin=2)], 1, lambda record: record.key, "orders")
    assert (made.behind(1, b"a", 0), made.behind(2, b"a", 0)) == (1, None)
    assert not made.precedes(b"a", make_record(0, b"a", partition=2))

    made.forget(1)
    assert not made
    assert not made.precedes(b"a", make_record(0, b"a", partition=1))


def test_a_partition_is_forgotten_with_all_that_waits_there():
    """Another process has it now; given back, it begins with what is loaded then."""
    made = DeferredKeys()
    made.load([copy_of(5), copy_of(5, b"b"), copy_of(5, partition=1)], 2, lambda record: record.key, "orders")
    made.forget(0)
    assert (made.behind(0, b"a", 0), made.behind(0, b"b", 0), made.behind(1, b"a", 0)) == (None, None, 2)
    assert not made.precedes(b"a", make_record(4, b"a"))
    assert made.precedes(b"a", make_record(4, b"a", partition=1))
    assert len(made) == 1

    made.forget(7)
    made.left(0, b"a", 2)
    made.joined(0, b"a", 1)
    assert (made.behind(0, b"a", 0), made.behind(0, b"a", 1)) == (1, None)
    made.forget(0)
    made.forget(1)
    assert not made


def test_what_another_backlog_holds_is_added():
    """Counts add up, the older of two offsets stays, and the other one is not changed by what happens here."""
    made, given = backlog((b"a", 1), (b"b", 2)), backlog((b"a", 1), (b"a", 3))
    made.load([copy_of(5)], 1, lambda record: record.key, "orders")
    given.load([copy_of(3), copy_of(8, partition=4)], 1, lambda record: record.key, "orders")
    made.merge(given)
    assert (len(made), made.behind(4, b"a", 0), made.behind(0, b"a", 1), made.behind(0, b"b", 0)) == (3, 1, 3, 2)
    assert [made.precedes(b"a", make_record(offset, b"a")) for offset in (2, 4)] == [True, False]
    assert made.precedes(b"a", make_record(7, b"a", partition=4))

    for left in (3, 2, 1, 0):
        assert made.behind(0, b"a", 0) == 1
        made.left(0, b"a", 1)
        assert (made.behind(0, b"a", 0) == 1) == (left > 0)
    made.forget(4)
    assert (given.behind(0, b"a", 0), given.behind(4, b"a", 0), len(given)) == (1, 1, 2)


def test_nothing_added_to_nothing_is_nothing():
    """It is still false, so that no turn is looked through."""
    made = DeferredKeys()
    made.merge(DeferredKeys())

    assert not made
