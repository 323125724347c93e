"""What a replay or a drop will do is known before it is done."""

from __future__ import annotations

import pytest

from laneway.admin import OpenRange, PartitionPlan, plan_redrive
from support.parked import ERROR_TOPIC, FakeLog, FakeTopics


def log_of(*partitions, committed=()):
    """Error topic whose partitions hold records with these values."""
    topics = FakeTopics(committed=dict(committed))
    for partition, values in enumerate(partitions):
        topics.logs[ERROR_TOPIC.name, partition] = []
        for value in values:
            topics.append(ERROR_TOPIC.name, partition, key=b"k", value=value.encode(), headers=(), timestamp=1)
    return FakeLog(topics)


def chosen(parked):
    """Capital letters are chosen, a question mark cannot be."""
    return "odd" if parked.value == b"?" else parked.value.isupper()


def plan_of(log, limit=None):
    return plan_redrive(log, log.extents(), chosen, limit)


def test_a_share_ends_at_the_last_chosen_record():
    """What lies before it and is not chosen has to be kept; what lies behind it is left where it is."""
    plan = plan_of(log_of("aAbBccc", "", "xyz", "A"))

    assert plan.shares == [
        PartitionPlan(0, 0, 4, None, chosen=2, kept=2, oldest=1),
        PartitionPlan(3, 0, 1, None, chosen=1, kept=0, oldest=1),
    ]
    assert (plan.chosen, plan.kept) == (3, 2)


def test_what_is_done_is_not_looked_at():
    """The plan begins at the group's offset."""
    plan = plan_of(log_of("AAaA", committed=[(0, 2)]))

    assert plan.shares == [PartitionPlan(0, 2, 4, 2, chosen=1, kept=1, oldest=1)]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(1, [(0, 2, 1)]), (2, [(0, 4, 2)]), (3, [(0, 4, 2), (1, 1, 1)]), (9, [(0, 4, 2), (1, 2, 2)])],
)
def test_a_limit_takes_the_first(limit, expected):
    """Partition by partition; records behind the last one taken are neither chosen nor kept."""
    plan = plan_of(log_of("aAbB", "AA"), limit)

    assert [(share.partition, share.end, share.chosen) for share in plan.shares] == expected


def test_a_limit_is_not_read_past():
    """The rest of a long topic is not fetched for nothing."""
    log = log_of("A" * 5, "A" * 5)
    plan_of(log, 2)
    assert log.reads <= 3


def test_records_that_cannot_be_chosen_are_counted_and_named():
    """The first few by their place; they are kept when they lie before a chosen one."""
    plan = plan_of(log_of("?" * 12 + "A"))

    assert plan.shares == [PartitionPlan(0, 0, 13, None, chosen=1, kept=12, oldest=1)]
    assert (plan.left_out["odd"].count, list(map(str, plan.left_out["odd"].places))) == (
        12,
        [f"0:{offset}" for offset in range(10)],
    )


@pytest.mark.parametrize(
    ("start", "end", "committed", "first_open"),
    [(0, 9, None, 0), (3, 9, None, 3), (0, 9, 4, 4), (5, 9, 4, 5), (0, 9, 9, 9), (0, 9, 10, 0), (0, 0, None, 0)],
)
def test_open_is_what_lies_at_or_past_the_groups_offset(start, end, committed, first_open):
    """Records that retention removed are not; an offset past the end is of an earlier topic and says nothing."""
    extent = OpenRange.of(start, end, committed)
    assert (extent.open, extent.is_settled) == (first_open, first_open >= end)
