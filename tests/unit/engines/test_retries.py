"""What of retry topics is read, and what of it counts as lost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from laneway._core.finished_map import FinishedMap
from laneway._engines.direct.retries import Retries

TOPIC = "orders.billing.retry.1"


class Reader:
    """A reader that has something, and counts how often it is asked."""

    def __init__(self):
        self.asked, self.is_exhausted, self.lost, self.gone = 0, False, 0, []

    def fetch(self, most, timeout):
        self.asked += 1
        return []


def made(full=()):
    partitions = {(TOPIC, number): SimpleNamespace(may_read_on=lambda n=number: n not in full) for number in (0, 1, 7)}
    station = SimpleNamespace(room=100)
    return Retries(
        (), {TOPIC: [station]}, admin=None, options={}, skip_lost=True, may_create=True, partitions=partitions,
    )  # fmt: skip


@pytest.mark.parametrize(("full", "asked"), [((), 1), ((1,), 0), ((7,), 1)])
def test_a_topic_waits_while_commits_can_tell_of_no_more(full, asked):
    """All of it, because its partitions are read together; those that are not being read hold up nothing."""
    retries, reader = made(full), Reader()
    retries._readers[TOPIC], retries._open[TOPIC] = reader, (0, {0: 50, 1: 50})
    retries._read()

    assert reader.asked == asked


def test_what_an_earlier_owner_has_finished_is_not_lost():
    """Of ten records that were deleted, its map tells of three."""
    retries, reader = made(), Reader()
    retries._finished[TOPIC, 0] = FinishedMap([(2, 5), (20, 30)])
    reader.lost, reader.gone = 14, [(0, 0, 10), (1, 6, 10)]

    assert retries._lost(TOPIC, reader) == 11
