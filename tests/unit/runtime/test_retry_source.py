"""What of retry topics is read, in which ownership, and what of it counts as lost."""

from __future__ import annotations

import pytest

from laneway._core.finished_map import FinishedMap
from laneway._runtime import retry_source as _retry_source
from laneway._runtime.partition import Partition, Partitions, Pause
from laneway._runtime.retry_source import RetrySource
from support.consumers import FakeAssigned

TOPIC = "orders.billing.retry.1"


class Scene:
    """A retry topic with two partitions, which are ours from offset 5 on in epoch 3."""

    def __init__(self, monkeypatch):
        self.reader = FakeAssigned({0: list(range(20)), 1: list(range(20))})
        monkeypatch.setattr(_retry_source, "AssignedConsumer", lambda options, skip_lost: self.reader)
        self.partitions = Partitions()
        for number in range(2):
            self.begin(number)
        self.source = RetrySource([TOPIC], self.partitions, {}, skip_lost=True)

    def begin(self, number, epoch=3):
        self.partitions.begin(Partition((TOPIC, number), [], 5, epoch=epoch))
        return self.partitions[TOPIC, number]

    def read(self, end=10, epoch=3, most=100):
        """What is read of both partitions when so much is due: partition to offsets, and how much is lost."""
        if not self.source.open(TOPIC, {(TOPIC, number): (epoch, end) for number in range(2)}):
            return None
        records, lost = self.source.read(TOPIC, most)
        found = {}
        for record in records:
            found.setdefault(record.partition, []).append(record.offset)
        return found, lost

    def positions(self):
        return [partition.position for partition in self.partitions.values()]


@pytest.fixture
def scene(monkeypatch):
    return Scene(monkeypatch)


def test_it_reads_what_is_due_and_no_further(scene):
    """What is not due yet is read when it is."""
    assert scene.read(10) == ({0: [5, 6, 7, 8, 9], 1: [5, 6, 7, 8, 9]}, 0)
    assert scene.positions() == [10, 10]
    assert scene.read(10) is None
    assert scene.read(12) == ({0: [10, 11], 1: [10, 11]}, 0)


def test_records_carry_the_epoch_of_their_partition(scene):
    """So that what is read now is void when the partition goes."""
    scene.source.open(TOPIC, {(TOPIC, 0): (3, 7)})
    records, _ = scene.source.read(TOPIC, 100)
    assert [record.epoch for record in records] == [3, 3]


def test_offsets_without_a_record_at_the_end_are_passed(scene):
    """Markers of transactions: the partition is read up to what is due all the same."""
    scene.reader.logs = {0: [5], 1: []}
    scene.read(10)
    assert scene.positions() == [10, 10]
    assert scene.partitions[TOPIC, 0].delivered == 6


def test_what_was_asked_in_another_epoch_says_nothing(scene):
    """The partition went and came back, or its log began again, since the brokers were asked."""
    assert scene.read(epoch=2) is None
    assert scene.read(epoch=3) is not None


def test_a_partition_that_goes_while_it_is_read_gives_nothing_more(scene):
    """What is left of the others is read on, from where they are."""
    scene.read(10, most=2)
    scene.partitions.end((TOPIC, 0))
    assert scene.read(10) == ({1: [5, 6, 7, 8, 9]}, 0)
    assert scene.reader.opened[-1] == [(1, 5, 10)]


def test_a_log_that_begins_again_while_it_is_read(scene):
    """The ranges of the old one are given up."""
    scene.read(10, most=2)
    scene.begin(0, epoch=4)
    assert scene.read(10, epoch=4) == ({0: [5, 6, 7, 8, 9]}, 0)


@pytest.mark.parametrize("reason", [Pause.RECOVERY, Pause.RECREATED])
def test_a_partition_that_is_held_is_not_read(scene, reason):
    """What its former owner has left is looked up first, and what became of its topic."""
    scene.partitions[TOPIC, 0].paused.add(reason)
    assert scene.read(10) == ({1: [5, 6, 7, 8, 9]}, 0)
    scene.partitions[TOPIC, 0].paused.clear()
    assert scene.read(10) == ({0: [5, 6, 7, 8, 9]}, 0)


@pytest.mark.parametrize("reason", [Pause.DELAY, Pause.METADATA])
def test_other_reasons_do_not_matter_here(scene, reason):
    """A delayed source is read here because the group does not read it; room is looked at before each read."""
    scene.partitions[TOPIC, 0].paused.add(reason)
    assert scene.read(10) == ({0: [5, 6, 7, 8, 9], 1: [5, 6, 7, 8, 9]}, 0)


def test_what_an_earlier_owner_has_finished_is_left_out(scene):
    """Its map says so; the position passes it, and it is no gap."""
    scene.partitions[TOPIC, 0].inherited = FinishedMap([(6, 8), (9, 10)])
    assert scene.read(10) == ({0: [5, 8], 1: [5, 6, 7, 8, 9]}, 0)
    assert (scene.positions(), scene.source.passed) == ([10, 10], 3)


def test_what_an_earlier_owner_has_finished_is_not_lost(scene):
    """Of the records that were deleted, its map tells of three."""
    scene.reader.logs[0] = list(range(9, 20))
    scene.partitions[TOPIC, 0].inherited = FinishedMap([(5, 8), (20, 30)])
    assert scene.read(10) == ({0: [9], 1: [5, 6, 7, 8, 9]}, 1)
    assert scene.read(12) == ({0: [10, 11], 1: [10, 11]}, 0)


def test_connections_are_closed_at_the_end(scene):
    """Each topic has one of its own."""
    scene.read(10)
    scene.source.end()
    assert scene.reader.is_closed
