"""What the planner commits, and what it takes for the pace of a batch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from laneway import App, Topic
from laneway._engines.spark import group_commits as _group_commits
from laneway._engines.spark import planner as _planner
from laneway._engines.spark.planner import Planner
from laneway._engines.spark.query_spec import QuerySpec
from laneway._runtime.topics import Feed


class Group:
    """Takes down what is committed."""

    def __init__(self, *_):
        self.commits = []
        self.found = {}

    def commit_all(self, offsets, *, wait):
        self.commits.append(dict(offsets))

    def known(self, places):
        return self.found


def charge(record):
    """Do nothing."""


@pytest.fixture
def planner(monkeypatch):
    """A planner without a broker."""
    monkeypatch.setattr(_planner, "GroupOffsets", Group)
    monkeypatch.setattr(_planner, "Admin", lambda *_: None)
    app = App("billing")
    app.handler(Topic("orders"))(charge)
    feeds = (Feed("orders", ("charge",)),)
    rest = {"feeds": feeds}
    return Planner(QuerySpec("billing", "orders", ("charge",), QuerySpec.pickled(app), (), {}, {}, {}, **rest))


def test_offsets_that_do_not_move_are_committed_again_in_time(planner, monkeypatch):
    """Kafka forgets the offset of a partition that is idle for a week; an app that runs must not lose its place."""
    places = {("orders", 0): 5, ("orders", 1): 7}
    planner._commits.commit(places)
    planner._commits.commit(places)
    said = {place: (at, f"L1u~{planner._commits._began}") for place, at in places.items()}
    assert planner._group.commits == [said, {}]
    monkeypatch.setattr(_group_commits, "_RENEW", -1.0)
    planner._commits.commit(places)
    assert planner._group.commits[-1] == said


def test_a_commit_names_its_topic_and_is_said_again_for_another_one(planner):
    """The same offset in a topic that was recreated is another one. Retry topics are not named."""
    old, new = "o" * 22, "n" * 22
    planner._commits._since = {}
    planner._commits._began = 77
    planner._commits.commit({("orders", 0): 0, ("orders.retry", 0): 3}, old)
    planner._commits.commit({("orders", 0): 0, ("orders.retry", 0): 3}, new)
    first, second = planner._group.commits
    assert first == {("orders", 0): (0, f"L1u~77@{old}"), ("orders.retry", 0): (3, "L1u~77")}
    assert second == {("orders", 0): (0, f"L1u~77@{new}")}


def test_offsets_carry_the_id_of_their_topic(planner):
    """Spark's log keeps both together; one that was written before there were ids can be read."""
    places = {("orders", 0): 5, ("orders", 10): 7, ("orders.retry", 0): 3}
    offsets = planner._as_offsets(places, "o" * 22)
    assert (planner._id_of(offsets), _planner._as_places(offsets)) == ("o" * 22, places)
    before = planner._as_offsets(places, "")
    assert before == {"orders": {"0": 5, "10": 7}, "orders.retry": {"0": 3}}
    assert (planner._id_of(before), _planner._as_places(before)) == ("", places)


NOW = 10**13
PLACE = ("orders", 0)


@pytest.mark.parametrize(
    ("found", "is_of_group", "since"),
    [
        ({}, True, NOW),  # a new group
        ({PLACE: (5, "L1c")}, True, NOW),  # ended well
        ({PLACE: (5, "")}, True, NOW),  # reset, or committed by another tool
        ({PLACE: (5, "L1u~77")}, True, 77),  # killed
        ({PLACE: (5, "L1rAQ~77")}, True, 77),  # killed on the direct engine
        ({PLACE: (5, "L1rAQ")}, True, 0),  # the same, of a version that wrote no time
        ({PLACE: (5, "")}, False, NOW),  # a checkpoint, and a reset to where it stands
        ({PLACE: (3, "L1u~77")}, False, 77),  # killed between the checkpoint and the group's offset
        ({PLACE: (3, "")}, False, 0),  # a checkpoint counts, whatever the group says
        ({}, False, 0),
    ],
)
def test_since_when_copies_count(planner, found, is_of_group, since):
    """Those of a killed run do. Without laneway's marker the offset is a reset, and none do."""
    planner._group.found, planner._commits.is_of_group, planner._commits._began = found, is_of_group, NOW
    planner._commits.learn({PLACE: 5})
    assert planner._commits._since == {PLACE: since}
    planner._commits.commit({PLACE: 6})
    assert planner._group.commits == [{PLACE: (6, f"L1u~{since}")}]


def test_the_last_commit_says_that_nothing_is_under_way(planner):
    """So that the next run need not look for copies."""
    planner._commits.commit_for_good({PLACE: 6}, "")
    assert planner._group.commits == [{PLACE: (6, "L1c")}]


@pytest.mark.parametrize(
    ("start", "end", "read"),
    [
        (("", 0), ("n" * 22, 5), 5),
        (("n" * 22, 0), ("n" * 22, 5), 5),
        (("o" * 22, 7), ("n" * 22, 0), 0),
        (("o" * 22, 0), ("n" * 22, 5), 0),
    ],
    ids=["from before there were ids", "the same topic", "recreated", "recreated, and never asked for"],
)
def test_a_batch_reads_what_lies_between_offsets_of_one_topic(planner, start, end, read):
    """Between a deleted topic and the new one there is nothing; an id that is learned late takes nothing away."""
    planner._recovered, planner._source = {}, SimpleNamespace(name="orders", is_other=lambda *_, **__: False)
    planner._feeds = SimpleNamespace(logs={("orders", 0): 9}, tend=lambda guard: None, partitions=lambda feed: 1)
    offsets = [planner._as_offsets({("orders", 0): offset}, topic_id) for topic_id, offset in (start, end)]
    assert sum(share.length for share in planner.shares(*offsets)) == read
