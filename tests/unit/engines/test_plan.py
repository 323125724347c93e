"""Positions, and how a batch is cut into tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from laneway._engines.spark.group_commits import commits_of
from laneway._engines.spark.plan import Part, Position, TaskReport, merged, pack
from laneway.observe import Tally

lengths = st.dictionaries(st.integers(0, 40), st.integers(0, 100_000), max_size=20)


def parts_of(counts, topic="t"):
    return [Part(topic, partition, {"h": Position(10)}, 10 + count, 0, 0) for partition, count in counts.items()]


def length(parts):
    return sum(part.length for part in parts)


@given(lengths, lengths, st.integers(1, 8))
def test_every_partition_is_in_exactly_one_task(counts, retries, tasks):
    """Packing neither loses nor repeats one, makes no empty task, and keeps a partition with its retry topics."""
    shares = pack([*parts_of(counts), *parts_of(retries, "r")], tasks=tasks)
    numbers = [{part.partition for part in parts} for parts, _ in shares]
    busy = {number for found in (counts, retries) for number, count in found.items() if count}
    assert sum(map(len, numbers)) == len(set().union(*numbers)) == len(busy)
    packed = sorted((part.topic, part.partition) for parts, _ in shares for part in parts if part.length)
    wanted = [("t", number) for number, count in counts.items() if count]
    assert packed == sorted(wanted + [("r", number) for number, count in retries.items() if count])
    assert len(shares) <= tasks
    assert all(length(parts) for parts, _ in shares)


@given(st.dictionaries(st.integers(0, 40), st.integers(1, 100_000), min_size=1, max_size=20))
def test_each_task_knows_its_part_of_the_work(counts):
    """The pool of lanes is divided by it."""
    shares = pack(parts_of(counts), tasks=4)
    for parts, share in shares:
        assert abs(share - length(parts) / sum(counts.values())) < 1e-9


def test_the_longest_partition_does_not_share_its_task():
    """Work is even: the longest goes first into the emptiest task."""
    shares = pack(parts_of({0: 9_000, 1: 4_000, 2: 4_000}), tasks=2)
    assert sorted(length(parts) for parts, _ in shares) == [8_000, 9_000]


def test_little_work_is_one_task():
    """A task costs more than a few records do."""
    assert len(pack(parts_of(dict.fromkeys(range(15), 20)), tasks=4)) == 1


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


@given(positions, offsets)
def test_what_is_finished_from_an_offset_on(position, start):
    """Others may have come less far, and read from there."""
    found = position.finished_from(start)
    known = {offset for offset in range(start, 100) if found is not None and found.has(offset)}
    assert known == {offset for offset in finished(position) if offset >= start}


def report(positions, topic_id=""):
    since = [(topic, partition, 77) for _, topic, partition, _ in positions]
    return TaskReport(1, 1, "orders", topic_id, positions, since, {0: Tally()})


def test_what_is_committed_is_what_all_handlers_have_finished():
    """Of the source with the id of its topic, of a retry topic without."""
    found = commits_of(
        [
            report([("charge", "orders", 0, Position(9)), ("mail", "orders", 0, Position(8, (6,)))], "o" * 22),
            report([("charge", "retry", 1, Position(3))], "o" * 22),
        ]
    )
    assert found == {("orders", 0): (6, f"L1bAg~77@{'o' * 22}"), ("retry", 1): (3, "L1u~77")}


def test_a_report_comes_back_as_it_was():
    """Rows travel as bytes."""
    row = report([("charge", "orders", 0, Position(9, (4, 7)))])
    assert TaskReport.decode(row.encode()) == row
