"""Runs over error topics: what they read and when they begin, with drivers that read nothing."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import ClassVar

import pytest

from laneway import App, ErrorConsumer, Topic
from laneway._declare.error_consumer import ErrorRuns
from laneway._runtime import error_runs as _error_runs
from laneway._runtime.configure import _error_consumer
from laneway._runtime.error_runs import ErrorSchedule, error_plans, only_run
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


class Driver:
    """Stands in for what reads an error topic: it is over when a test says so."""

    made: ClassVar[list[Driver]] = []
    error: Exception | None = None
    lasts = threading.Event()

    def __init__(self):
        self.is_ready = False
        self.was_asked = self.was_ended = False
        Driver.made.append(self)

    def start(self):
        pass

    def look(self):
        if Driver.error is not None and not self.was_ended:
            raise Driver.error

    @property
    def is_over(self):
        return self.is_ready or Driver.lasts.is_set()

    def stop(self):
        self.was_asked = True

    @property
    def is_finished(self):
        return self.is_over

    def end(self, until):
        self.was_ended = True
        return True


class Life:
    """Keeps what was noted."""

    def __init__(self):
        self.notes = []

    def note(self, words):
        self.notes.append(words)


@pytest.fixture
def stage(monkeypatch):
    """A schedule whose runs read one error topic, and what it told."""
    Driver.made, Driver.error, Driver.lasts = [], None, threading.Event()
    planned, life = [], Life()

    def error_plans(app, settings, *, refresh, is_stopping):
        planned.append(app)
        made.refreshed += refresh
        return ["a plan"]

    monkeypatch.setattr(_error_runs, "error_plans", error_plans)
    made = SimpleNamespace(notes=life.notes, runs=ErrorRuns(), planned=planned, refreshed=0)

    def begin(cron=None):
        made.schedule = ErrorSchedule(
            App("billing"),
            cron or Often(),
            settings=load(),
            source=SimpleNamespace(drivers=lambda plans, reporter: iter([Driver()])),
            reporter=SimpleNamespace(flush=lambda: None),
            life=life,
            runs=made.runs,
        )
        made.schedule.start()
        return made

    made.begin = begin
    yield made
    made.schedule.end()


def test_runs_follow_each_other_and_never_overlap(stage):
    """Runs that are due during another one are skipped and logged; the next one begins afterwards."""
    stage.begin()
    eventually(lambda: Driver.made)
    begun = datetime.now(UTC)
    eventually(lambda: datetime.now(UTC) - begun > timedelta(seconds=0.2))
    assert len(Driver.made) == 1
    Driver.made[0].is_ready = True
    eventually(lambda: len(Driver.made) == 2)
    assert (stage.runs.runs, stage.runs.failed) == (1, 0)
    assert stage.runs.left_out >= 5
    assert "skipped" in stage.notes[0]


def test_a_run_that_fails_ends_nothing_else(stage):
    """It is counted and told in one line; the next run begins, and when it is good the trouble is over."""
    Driver.error = EngineError("the query on topic orders.error failed: no\nand a page of Spark's")
    Driver.lasts.set()
    stage.begin()
    eventually(lambda: stage.runs.failed >= 2)
    assert stage.notes[0] == "an error run failed: the query on topic orders.error failed: no"
    Driver.error = None
    eventually(lambda: stage.runs.runs >= 1 and stage.notes[-1] == "")


def test_a_stop_finishes_the_running_batch(stage):
    """The driver is asked; the schedule is drained when it has ended, and nothing more begins."""
    stage.begin()
    eventually(lambda: Driver.made)
    assert not stage.schedule.is_drained
    stage.schedule.ask_to_stop()
    eventually(lambda: Driver.made[0].was_asked)
    assert not stage.schedule.is_drained
    Driver.made[0].is_ready = True
    eventually(lambda: stage.schedule.is_drained)
    assert (len(Driver.made), stage.runs.left_out) == (1, 0)


def test_an_end_waits_for_nobody(stage):
    """The run is stopped in the middle, and that is no failure."""
    stage.begin()
    eventually(lambda: Driver.made)
    Driver.error = EngineError("it was stopped")
    stage.schedule.end()
    assert (Driver.made[0].was_ended, stage.schedule.is_drained, stage.runs.failed) == (True, True, 0)


def test_nothing_begins_while_paused(stage):
    """A run that is under way ends after its batch; the schedule goes on when the engine does."""
    stage.begin()
    eventually(lambda: Driver.made)
    stage.schedule.pause(on=True)
    eventually(lambda: Driver.made[0].was_asked)
    Driver.made[0].is_ready = True
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
        assert (Driver.made, stage.runs.failed) == ([], 0)
    eventually(lambda: Driver.made)
    with pytest.raises(EngineError, match="is active"), only_run("billing"):
        pass
    with only_run("shop"):
        pass


def test_offsets_are_refreshed_once_in_a_while(stage):
    """At the first run, and the next time hours later."""
    Driver.lasts.set()
    stage.begin()
    eventually(lambda: stage.runs.runs >= 3)
    stage.schedule.end()
    assert stage.refreshed == 1


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
def plans(monkeypatch):
    """What a run over an error topic would read."""
    monkeypatch.setattr(_error_runs, "ErrorLog", Log)
    Log.commits = {}
    app = App("billing", errors=ErrorConsumer())
    app.handler(Topic("orders"))(print)

    def planned(parts, **fields):
        Log.parts = parts
        return error_plans(app, load(), **fields)

    return planned


def test_a_run_ends_before_what_is_new(plans):
    """In each partition for itself; what is settled is read no further."""
    now = int(datetime.now(UTC).timestamp() * 1000)
    old, new = now - 301_000, now - 290_000
    parts = {0: (None, [old, old, new, old]), 1: (1, [new, old, old]), 2: (2, [old, old]), 3: (9, [old])}
    (plan,) = plans(parts)
    assert plan.ends == {0: 2, 1: 3, 2: 2, 3: 1}
    assert plan.partitions == {"orders": 4}
    assert Log.commits == {}


def test_a_group_with_nothing_to_do_is_not_forgotten(plans):
    """Kafka forgets offsets that nobody commits for a week; every record there is would be run again."""
    parts = {0: (2, [1, 1]), 1: (None, []), 2: (7, [])}
    assert plans(parts, refresh=False) == []
    assert Log.commits == {}
    assert plans(parts) == []
    assert Log.commits == {0: 2}
    assert plans(parts, topic="another") == []


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
