"""What the planner plans and commits."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from laneway import App, Topic
from laneway._engines.spark import group_commits as _group_commits
from laneway._engines.spark import planner as _planner
from laneway._engines.spark.control import Progress
from laneway._engines.spark.plan import Position
from laneway._engines.spark.planner import Planner
from laneway._engines.spark.query_spec import QuerySpec
from laneway._runtime.topics import Feed

ID = "o" * 22
PLACE = ("orders", 0)
NOW = 10**13


class Group:
    """Takes down what is committed."""

    def __init__(self, *_):
        self.commits = []
        self.found = {}

    def commit_all(self, offsets, *, wait):
        self.commits.append(dict(offsets))
        self.found |= offsets

    def known(self, places):
        return {place: self.found[place] for place in places if place in self.found}


class Admin:
    """Topics of one partition, or more, that keep everything."""

    def __init__(self, *_):
        self.ends = {PLACE: 0}
        self.numbers = [0]

    def partitions(self, topic):
        return self.numbers

    def starts(self, topic, partitions):
        return dict.fromkeys(partitions, 0)

    def ends_of(self, places, timeout=5.0):
        return {place: self.ends.get(place, 0) for place in places}

    def high_watermarks(self, places):
        return self.ends_of(places)

    def first_since(self, places, timeout=5.0):
        return dict.fromkeys(places)

    def topic_ids(self, topics):
        return dict.fromkeys(topics, ID)


class Line:
    """What the driver says."""

    link = None

    def __init__(self, *_):
        self.orders = SimpleNamespace(is_stopping=False, pause=0, tasks=0)
        self.known = {}
        self.said = []

    def answer(self, **said):
        self.said.append(said)

    def progress(self, batch):
        return self.known.get(batch)


def charge(record):
    """Do nothing."""


def mail(record):
    """Do nothing."""


@pytest.fixture
def planning(monkeypatch):
    """Planners without a broker."""
    monkeypatch.setattr(_planner, "GroupOffsets", Group)
    monkeypatch.setattr(_planner, "Admin", Admin)
    monkeypatch.setattr(_planner, "ControlLine", Line)
    monkeypatch.setattr(_planner, "_WAIT", 0.0)

    def planner(*names, steps=(), lanes=1):
        app = App("billing")
        for function in (charge, mail):
            app.handler(Topic("orders"), lanes=lanes)(function)
        feeds = (Feed("orders", names), *(Feed(topic, names, 1, 0.001) for topic in steps))
        made = Planner(QuerySpec("billing", "orders", names, QuerySpec.pickled(app), (), {}, {}, {}, feeds=feeds))
        monkeypatch.setattr(made._feeds, "start_checks", lambda guard: None)
        made._commits._began = NOW
        return made

    return planner


@pytest.fixture
def planner(planning):
    """Of one handler."""
    return planning("charge")


def progress(planner, **positions):
    """The driver has committed what the tasks of the last batch have finished."""
    found = [(name, *PLACE, position) for name, position in positions.items()]
    planner._line.known[planner._batch] = Progress(1, planner._batch, found)


def read(task):
    """What a task reads."""
    return [(part.topic, part.position.begin, part.stop) for part in task.parts if part.length]


def topics(planner):
    """What the tasks of a batch read."""
    return {topic for task in planner.tasks() for topic, _, _ in read(task)}


def test_a_batch_is_what_is_not_finished(planner):
    """Up to the end of the log; the next one begins where the tasks of this one have come to."""
    batch = planner.initial()
    planner._admin.ends = {PLACE: 1_000}
    batch = planner.latest(batch)
    (task,) = planner.tasks()
    assert (*read(task), task.batch) == (("orders", 0, 1_000), batch["batch"])
    progress(planner, charge=Position(400, (20, 30)))
    after = planner.latest(batch)
    assert after != batch
    (task,) = planner.tasks()
    assert read(task) == [("orders", 20, 1_000)]
    assert task.parts[0].positions == {"charge": Position(400, (20, 30))}
    progress(planner, charge=Position(1_000))
    assert planner.latest(after) == after


def test_without_word_of_the_driver_a_batch_begins_at_the_group(planner):
    """It has committed before Spark asks for the next batch."""
    batch = planner.initial()
    planner._admin.ends = {PLACE: 100}
    planner.latest(batch)
    planner.tasks()
    planner._group.found[PLACE] = (40, f"{Position(60, (40, 50)).text}~77@{ID}")
    planner.latest(batch)
    (task,) = planner.tasks()
    assert read(task)[0][1] == 40
    assert task.parts[0].positions == {"charge": Position(60, (40, 50))}


def test_a_run_begins_at_the_group_and_leaves_out_what_its_map_says(planner):
    """The map of an engine that was killed counts, too; and an owner says so before anything is copied."""
    planner._group.found[PLACE] = (5, f"{Position(9, (5,)).text}~77@{ID}")
    planner._admin.ends = {PLACE: 9}
    planner.latest(planner.initial())
    assert planner._group.commits[0] == {PLACE: (5, f"L1bDg~77@{ID}")}
    (task,) = planner.tasks()
    assert task.parts[0].positions == {"charge": Position(9, (5,))}
    assert task.parts[0].since == 77


def test_handlers_go_on_where_each_has_come_to(planning):
    """One task reads for both, from where the slowest one is."""
    planner = planning("charge", "mail")
    batch = planner.initial()
    planner._admin.ends = {PLACE: 1_000}
    planner.latest(batch)
    planner.tasks()
    progress(planner, charge=Position(900), mail=Position(500, (7, 400)))
    planner.latest(batch)
    (task,) = planner.tasks()
    assert read(task) == [("orders", 7, 1_000)]
    assert task.parts[0].positions == {"charge": Position(900), "mail": Position(500, (7, 400))}


def test_lanes_are_a_pool_of_all_partitions(planning):
    """A task has as many of them as it has of the work, though others have none; strict ones stay with partitions."""
    planner = planning("charge", "mail", lanes=20)
    planner._admin.numbers = [0, 1, 2, 3]
    batch = planner.initial()
    planner._admin.ends = {PLACE: 6_000, ("orders", 1): 2_000}
    planner._line.orders.tasks = 2
    planner.latest(batch)
    tasks = {task.parts[0].partition: task.lanes for task in planner.tasks()}
    assert tasks == {0: {"charge": 60, "mail": 60}, 1: {"charge": 20, "mail": 20}}


def test_nothing_of_a_recreated_retry_topic_is_read_before_it_is_due(planning):
    """What was due was asked for what lies past the offsets of the old one."""
    planner = planning("charge", steps=("orders.retry",))
    retry = ("orders.retry", 0)
    planner._group.found = {PLACE: (0, "L1c"), retry: (50, "L1c")}
    planner._admin.ends = {retry: 50}
    planner._stream = replace(planner._stream, skip_lost=True)
    batch = planner.initial()
    assert planner.latest(batch) == batch
    planner._feeds.recreated["orders.retry"] = {retry: 50}
    planner._admin.ends = {retry: 3}
    planner._admin.first_since = lambda places, timeout=5.0: dict.fromkeys(places, 0)  # of none is the time over
    assert planner.latest(batch) == batch
    assert planner._places()[retry] == 0


def test_offsets_that_do_not_move_are_committed_again_in_time(planner, monkeypatch):
    """Kafka forgets the offset of a partition that is idle for a week; an app that runs must not lose its place."""
    batch = planner.initial()
    planner.latest(batch)
    said = {PLACE: (0, f"L1u~{NOW}@{ID}")}
    assert planner._group.commits == [said, {}]
    monkeypatch.setattr(_group_commits, "_RENEW", -1.0)
    planner.latest(batch)
    assert planner._group.commits[-1] == said


def test_what_the_driver_has_committed_is_not_committed_again(planner):
    """Each commit is a request to the coordinator."""
    batch = planner.initial()
    planner._admin.ends = {PLACE: 100}
    planner.latest(batch)
    planner.tasks()
    progress(planner, charge=Position(60, (40,)))
    planner.latest(batch)
    assert planner._group.commits[-1] == {}


@pytest.mark.parametrize(
    ("found", "since"),
    [
        ({}, NOW),  # a new group
        ({PLACE: (5, "L1c")}, NOW),  # ended well
        ({PLACE: (5, "")}, NOW),  # reset, or committed by another tool
        ({PLACE: (5, "L1u~77")}, 77),  # killed
        ({PLACE: (5, "L1rAQ~77")}, 77),  # killed on the direct engine
        ({PLACE: (5, "L1rAQ")}, 0),  # the same, of a version that wrote no time
    ],
)
def test_since_when_copies_count(planner, found, since):
    """Those of a killed run do. Without laneway's marker the offset is a reset, and none do."""
    planner._group.found, planner._admin.ends = dict(found), {PLACE: 9}
    planner.initial()
    offset = 5 if found else 0
    assert planner._group.commits == [{PLACE: (offset, f"L1u~{since}@{ID}")}]


@pytest.mark.parametrize(("left", "text"), [((), "L1c"), ((4,), "L1bPg~")], ids=["nothing is left", "a map"])
def test_the_last_commit_says_that_nothing_is_under_way(planner, left, text):
    """So that the next run need not look for copies of earlier ones."""
    batch = planner.initial()
    planner._admin.ends = {PLACE: 10}
    planner.latest(batch)
    planner.tasks()
    progress(planner, charge=Position(10, left))
    planner._line.orders.is_stopping = True
    planner.latest(batch)
    offset, said = planner._group.commits[-1][PLACE]
    assert offset == (left[0] if left else 10)
    assert said.startswith(text)
    assert said.endswith(f"@{ID}")
    assert planner._line.said == [{"is_drained": True}]


@pytest.mark.parametrize(("text", "first"), [("L1u~77", {"orders"}), ("L1c", {"orders", "orders.retry"})])
def test_what_a_killed_run_may_have_begun_is_not_repeated_beside_its_copies(planning, text, first):
    """The first batch after a kill reads the source alone; from then on retry topics are read with it."""
    planner = planning("charge", steps=("orders.retry",))
    retry = ("orders.retry", 0)
    planner._group.found = {PLACE: (5, text), retry: (0, text)}
    planner._admin.ends = {PLACE: 20, retry: 3}
    batch = planner.initial()
    planner.latest(batch)
    assert topics(planner) == first
    progress(planner, charge=Position(10))
    planner.latest(batch)
    assert topics(planner) == {"orders", "orders.retry"}
