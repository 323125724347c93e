"""Batch sizes and tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from laneway._engines.spark.plan import BatchSize, pack, spread
from laneway._kafka import OffsetRange

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


@given(lengths, st.integers(1, 200_000))
def test_a_batch_is_cut_in_proportion(counts, limit):
    """No partition with records is left out, none gives more than it has, and the limit is kept but for one each."""
    taken = spread(counts, limit)
    assert all(taken.get(partition, 0) <= count for partition, count in counts.items())
    assert all(taken[partition] >= 1 for partition, count in counts.items() if count)
    assert sum(taken.values()) <= limit + len(counts)


def test_a_batch_lasts_about_its_target():
    """After one measurement the next batch is as many records as fit into the target."""
    size = BatchSize(target=5, most=1_000_000, first=10_000)
    size.measured(10_000, seconds=1.1)
    assert size.limit == 50_000


def test_a_batch_grows_no_more_than_eightfold():
    """One lucky measurement cannot ask for an hour of work."""
    size = BatchSize(target=5, most=10_000_000, first=1_000)
    size.measured(1_000, seconds=0.001)
    assert size.limit == 8_000


def test_a_small_batch_does_not_slow_the_pace():
    """A batch of ten records is all overhead and says nothing about a large one."""
    size = BatchSize(target=5, most=1_000_000, first=10_000)
    size.measured(50_000, seconds=5.1)
    size.measured(10, seconds=0.5)
    assert size.limit == 50_000


def test_a_small_batch_does_not_take_back_what_was_proven():
    """Between two large batches some retries were due: the second may be as large as without them."""
    size = BatchSize(target=5, most=10_000_000, first=1_000)
    size.measured(8_000, seconds=0.11)
    size.measured(500, seconds=0.05)
    assert size.limit == 64_000


def test_a_large_batch_that_took_long_proves_no_more_than_itself():
    """One that turned out slow is where growth begins again."""
    size = BatchSize(target=5, most=10_000_000, first=1_000)
    size.measured(400_000, seconds=4.1)
    size.measured(200_000, seconds=100.1)
    size.measured(10_000, seconds=0.001)
    assert size.limit == 1_600_000


def test_a_handler_that_turned_slow_gets_smaller_batches():
    """Large batches that take too long lower the pace."""
    size = BatchSize(target=5, most=1_000_000, first=10_000)
    size.measured(50_000, seconds=5.1)
    size.measured(50_000, seconds=50.1)
    assert size.limit == 27_500
