"""The schedule of runs over error topics on Spark, with queries that are none."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import ClassVar

import pytest

from laneway import App, ErrorConsumer, Topic
from laneway._declare.error_consumer import ErrorRuns
from laneway._engines.spark import errors as _errors
from laneway._engines.spark.errors import SparkErrorSchedule, error_streams
from laneway._engines.spark.from_settings import master_of
from laneway._engines.spark.query_spec import QuerySpec
from laneway._runtime import error_runs as _error_runs
from laneway._runtime.configure import _error_consumer
from laneway._runtime.error_runs import only_run
from laneway.admin import OpenRange, ParkedRecord
from laneway.errors import EngineError
from laneway.settings import load
from support.waiting import eventually


class Often:
    """A schedule that falls due every few milliseconds."""

    def __init__(self, seconds=0.02):
        self._every = timedelta(seconds=seconds)

    def next_after(self, moment):
        return moment + self._every


class Query:
    """Stands in for a streaming query: it is active until told otherwise."""

    made: ClassVar[list[Query]] = []
    error: Exception | None = None
    lasts = threading.Event()

    def __init__(self, stream, batch_done, channel):
        self.stream = stream
        self.is_over = False
        self.was_asked = self.was_ended = False
        self.names = []
        Query.made.append(self)

    def start(self, spark, *, folder, trigger, once, name):
        assert once
        self.names.append(name)
        folder.mkdir(parents=True)

    @property
    def is_active(self):
        return not (self.is_over or self.was_ended or Query.lasts.is_set())

    @property
    def is_drained(self):
        return not self.is_active or (self.was_asked and self.is_over)

    def ask_to_stop(self):
        self.was_asked = True

    def end(self):
        self.was_ended = True

    def raise_if_failed(self):
        if Query.error is not None and not self.was_ended:
            raise Query.error


@pytest.fixture
def stage(monkeypatch, tmp_path):
    """A schedule whose runs read one error topic, and what it told."""
    Query.made, Query.error, Query.lasts = [], None, threading.Event()
    planned = []

    def error_streams(app, settings, *, payload, refresh, is_stopping):
        planned.append(app)
        made.refreshed += refresh
        return [SimpleNamespace(name="billing.errors/orders.error@main", place="orders.error@main")]

    monkeypatch.setattr(_errors, "error_streams", error_streams)
    monkeypatch.setattr(_errors, "Query", Query)
    made = SimpleNamespace(notes=[], runs=ErrorRuns(), planned=planned, refreshed=0)

    def begin(cron=None):
        made.schedule = SparkErrorSchedule(
            App("billing"),
            cron or Often(),
            settings=None,
            payload=b"",
            folder=tmp_path,
            batch_done=lambda *_: None,
            control=SimpleNamespace(channel=lambda: None),
            note=made.notes.append,
            runs=made.runs,
        )
        made.schedule.start()
        return made

    made.begin = begin
    yield made
    made.schedule.end()


def test_runs_follow_each_other_and_never_overlap(stage):
    """While one is under way those that fall due are left out and told of; afterwards the next one begins."""
    stage.begin()
    eventually(lambda: Query.made)
    begun = datetime.now(UTC)
    eventually(lambda: datetime.now(UTC) - begun > timedelta(seconds=0.2))
    assert len(Query.made) == 1
    Query.made[0].is_over = True
    eventually(lambda: len(Query.made) == 2)
    assert (stage.runs.runs, stage.runs.failed) == (1, 0)
    assert stage.runs.left_out >= 5
    assert "left out" in stage.notes[0]
    # One data source for all runs: Spark never forgets one.
    assert Query.made[0].names == Query.made[1].names


def test_a_run_that_fails_ends_nothing_else(stage):
    """It is counted and told in one line; the next run begins, and when it is good the trouble is over."""
    Query.error = EngineError("the query on topic orders.error failed: no\nand a page of Spark's")
    Query.lasts.set()
    stage.begin()
    eventually(lambda: stage.runs.failed >= 2)
    assert stage.notes[0] == "an error run failed: the query on topic orders.error failed: no"
    Query.error = None
    eventually(lambda: stage.runs.runs >= 1 and stage.notes[-1] == "")


def test_a_stop_finishes_the_running_batch(stage):
    """The query is asked; the schedule is drained when it has ended, and nothing more begins."""
    stage.begin()
    eventually(lambda: Query.made)
    assert not stage.schedule.is_drained
    stage.schedule.ask_to_stop()
    eventually(lambda: Query.made[0].was_asked)
    assert not stage.schedule.is_drained
    Query.made[0].is_over = True
    eventually(lambda: stage.schedule.is_drained)
    assert (len(Query.made), stage.runs.left_out) == (1, 0)


def test_an_end_waits_for_nobody(stage):
    """The query is stopped in mid-batch, and that is no failure to tell of."""
    stage.begin()
    eventually(lambda: Query.made)
    Query.error = EngineError("the query was stopped")
    stage.schedule.end()
    assert (Query.made[0].was_ended, stage.schedule.is_drained, stage.runs.failed) == (True, True, 0)


def test_nothing_begins_while_paused(stage):
    """A run that is under way ends after its batch; the schedule goes on when the engine does."""
    stage.begin()
    eventually(lambda: Query.made)
    stage.schedule.pause(on=True)
    eventually(lambda: Query.made[0].was_asked)
    Query.made[0].is_over = True
    eventually(lambda: stage.runs.runs == 1)
    count = len(stage.planned)
    begun = datetime.now(UTC)
    eventually(lambda: datetime.now(UTC) - begun > timedelta(seconds=0.2))
    assert len(stage.planned) == count
    stage.schedule.pause(on=False)
    eventually(lambda: len(stage.planned) > count)


def test_a_run_by_hand_holds_off_the_schedule(stage):
    """In the same process, and the other way round."""
    with only_run("billing"):
        stage.begin()
        eventually(lambda: stage.runs.left_out >= 2)
        assert (Query.made, stage.runs.failed) == ([], 0)
    eventually(lambda: Query.made)
    with pytest.raises(EngineError, match="is under way"), only_run("billing"):
        pass
    with only_run("shop"):
        pass


def test_a_run_leaves_no_folder_behind(stage, tmp_path):
    """Thousands of runs would fill the disk."""
    Query.lasts.set()
    stage.begin()
    eventually(lambda: stage.runs.runs >= 3)
    stage.schedule.end()
    assert stage.refreshed == 1  # the next time in hours
    assert list(tmp_path.iterdir()) == []


class Log:
    """Stands in for an error topic: partition to its committed offset and when each record was parked."""

    parts: ClassVar[dict[int, tuple[int | None, list[int]]]] = {}
    commits: ClassVar[dict[int, int]] = {}

    def __init__(self, topic):
        self.topic = topic

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def partitions(self):
        return {"orders": 4, "secrets": 9}

    def extents(self):
        return {part: OpenRange.of(0, len(times), committed) for part, (committed, times) in self.parts.items()}

    def read(self, partition, start, end):
        for offset in range(start, end):
            at = [("laneway-parked-at", str(self.parts[partition][1][offset]).encode())]
            yield ParkedRecord.of(
                Topic("orders.billing.error").record(b"", headers=at, partition=partition, offset=offset)
            )

    def commit(self, partition, offset):
        Log.commits[partition] = offset


@pytest.fixture
def streams(monkeypatch, tmp_path):
    """What a run over an error topic would read."""
    monkeypatch.setattr(_error_runs, "ErrorLog", Log)
    empty = dict.fromkeys(("app", "topic", "routes", "payload", "paths", "client", "consumer", "producer"), ())
    monkeypatch.setattr(_errors, "stream_of", lambda *_: QuerySpec(**empty))
    Log.commits = {}
    app = App("billing", errors=ErrorConsumer())
    app.handler(Topic("orders"))(print)

    def planned(parts, **fields):
        Log.parts = parts
        return error_streams(app, load(), payload=b"x", **fields)

    return planned


def test_a_run_ends_before_what_is_new(streams):
    """In each partition for itself; what is settled is read no further."""
    now = int(datetime.now(UTC).timestamp() * 1000)
    old, new = now - 301_000, now - 290_000
    parts = {0: (None, [old, old, new, old]), 1: (1, [new, old, old]), 2: (2, [old, old]), 3: (9, [old])}
    (stream,) = streams(parts)
    assert stream.errors.ends == {0: 2, 1: 3, 2: 2, 3: 1}
    assert (stream.errors.partitions, stream.tasks, stream.skip_lost) == ({"orders": 4}, 1, True)
    assert Log.commits == {}


def test_a_group_with_nothing_to_do_is_not_forgotten(streams):
    """Kafka forgets offsets that nobody commits for a week; every record there is would be run again."""
    parts = {0: (2, [1, 1]), 1: (None, []), 2: (7, [])}
    assert streams(parts, refresh=False) == []
    assert Log.commits == {}
    assert streams(parts) == []
    assert Log.commits == {0: 2}
    assert streams(parts, topic="another") == []


def test_the_configuration_changes_what_the_code_declares():
    """What it does not name stays; without a declaration the rest are the defaults."""
    declared = ErrorConsumer(cron="0 * * * *", max_errors=3, action="replay")
    assert _error_consumer(declared, load()) is declared
    changed = load(overrides={"errors.max_errors": 0, "errors.stop_when_new": "1m", "errors.enabled": False})
    assert _error_consumer(declared, changed) == ErrorConsumer(
        cron="0 * * * *", max_errors=None, action="replay", stop_when_new=timedelta(minutes=1), enabled=False
    )
    assert _error_consumer(None, load(overrides={"errors.cron": "5 * * * *"})) == ErrorConsumer(cron="5 * * * *")
    assert _error_consumer(None, load()) is None


def test_runs_beside_an_app_have_slots_of_their_own():
    """A slow handler of parked records must not take those of the app's topics."""
    assert master_of("local[*]", [], 3) == "local[5,8]"
    assert master_of("local[2]", [], 3) == "local[2]"
