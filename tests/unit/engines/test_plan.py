"""Positions, and how a batch is cut into tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from laneway._engines.spark.group_commits import commits_of
from laneway._engines.spark.plan import Position, TaskReport, merged, pack
from laneway._kafka import OffsetRange
from laneway.observe import Tally

lengths = st.dictionaries(st.integers(0, 40), st.integers(0, 100_000), max_size=20)


def ranges_of(counts):
    return [OffsetRange("t", partition, 10, 10 + count) for partition, count in counts.items()]


@given(lengths, st.integers(1, 64), st.integers(1, 8))
def test_every_range_is_in_exactly_one_share(counts, lanes, tasks):
    """Packing neither loses nor repeats a range, and makes no empty task."""
    shares = pack("h", ranges_of(counts), lanes=lanes, tasks=tasks)
    packed = sorted(part.partition for share in shares for part in share.ranges)
    assert packed == sorted(partition for partition, count in counts.items() if count)
    assert len(shares) <= tasks
    assert all(share.ranges for share in shares)


@given(st.dictionaries(st.integers(0, 40), st.integers(1, 100_000), min_size=1, max_size=20), st.integers(1, 500))
def test_the_pool_of_lanes_is_divided_by_length(counts, lanes):
    """Each share has its part of the lanes, within one lane, and never none."""
    shares = pack("h", ranges_of(counts), lanes=lanes, tasks=4)
    total = sum(counts.values())
    for share in shares:
        assert share.lanes >= 1
        assert abs(share.lanes - max(1, lanes * share.length / total)) <= 1


def test_strict_lanes_stay_with_their_partitions():
    """A share with three partitions has three times the lanes of one."""
    shares = pack("h", ranges_of({0: 9_000, 1: 3_000, 2: 3_000, 3: 3_000}), lanes=5, tasks=2, is_strict=True)
    assert sorted((len(share.ranges), share.lanes) for share in shares) == [(1, 5), (3, 15)]


def test_the_longest_range_does_not_share_its_task():
    """Work is even: the longest goes first into the emptiest task."""
    shares = pack("h", ranges_of({0: 9_000, 1: 4_000, 2: 4_000}), lanes=6, tasks=2)
    assert sorted(share.length for share in shares) == [8_000, 9_000]


def test_little_work_is_one_task():
    """A task costs more than a few records do."""
    assert len(pack("h", ranges_of(dict.fromkeys(range(15), 20)), lanes=300, tasks=4)) == 1


offsets = st.integers(0, 60)
positions = st.builds(
    lambda end, unfinished: Position(end, tuple(sorted(offset for offset in unfinished if offset < end))),
    st.integers(0, 60),
    st.sets(offsets),
)


def finished(position):
    return {offset for offset in range(100) if offset < position.end and offset not in position.unfinished}


@given(st.lists(positions, min_size=1, max_size=4))
def test_several_handlers_have_finished_what_each_has(found):
    """An offset counts only when all of them have done it."""
    assert finished(merged(found)) == set.intersection(*map(finished, found))


@given(positions)
def test_a_commit_says_what_a_position_is(position):
    """Whoever begins at the commit begins at the position."""
    again = Position.of(position.begin, f"{position.text}~77")
    assert finished(again) | set(range(position.begin)) == finished(position) | set(range(position.begin))
    assert again.begin == position.begin


@given(positions, offsets, st.sets(offsets))
def test_a_span_adds_to_what_was_finished(position, reached, left):
    """Up to where it was read the span's word counts; behind it what was finished before."""
    reached = max(reached, position.begin)
    open_ = tuple(offset for offset in sorted(left) if position.begin <= offset < reached)
    moved = position.moved(reached, [offset for offset in open_ if offset not in finished(position)])
    assert {offset for offset in finished(moved) if offset >= reached} == {
        offset for offset in finished(position) if offset >= reached
    }
    assert {offset for offset in finished(moved) if offset < reached} == set(range(reached)) - {
        offset for offset in open_ if offset not in finished(position)
    }


def report(route, positions, others=None, since=77, topic_id=""):
    since = dict.fromkeys(positions, since)
    return TaskReport(1, 1, route, "orders", topic_id, positions, others or {}, since, Tally())


def test_what_is_committed_is_what_all_handlers_have_finished():
    """Those with a task in the batch say so themselves; for the others the planner has said it."""
    found = commits_of(
        [
            report("charge", {0: Position(9), 1: Position(5)}, {1: Position(3)}, topic_id="o" * 22),
            report("mail", {0: Position(8, (6,))}, topic_id="o" * 22),
        ]
    )
    assert found == {("orders", 0): (6, f"L1bAg~77@{'o' * 22}"), ("orders", 1): (3, f"L1u~77@{'o' * 22}")}


def test_a_report_comes_back_as_it_was():
    """Rows travel as bytes."""
    row = report("charge", {0: Position(9, (4, 7))}, {0: Position(3)})
    assert TaskReport.decode(row.encode()) == row
