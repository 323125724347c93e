"""A task: what it reads, which handler gets what, when it ends, and how far it says that each has come."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from laneway import App, Retry, Topic
from laneway._core.state import Drain
from laneway._declare.handler import HandlerSpec
from laneway._engines.spark.control import Orders
from laneway._engines.spark.plan import Part, Position, TaskSpec
from laneway._engines.spark.query_spec import QuerySpec
from laneway._engines.spark.span import Span
from laneway._engines.spark.task import TaskRun
from laneway._runtime.handler_worker import HandlerWorker
from laneway._runtime.host import AppHost
from laneway._runtime.topics import feeds_of
from laneway.errors import DataLossError
from support.core import FakeSender, Noted, make_record
from support.waiting import eventually


class Reader:
    """Reads ranges of logs that hold a record at each offset, but for those that a test leaves out."""

    def __init__(self, topic, keys):
        self.topic, self.keys, self.left_out = topic, keys, set()
        self.is_exhausted, self.lost, self.gone, self.error = True, 0, [], None
        self.opened, self.paused, self._next = [], set(), {}

    def open(self, ranges):
        self.opened += ranges
        self._next = {part.partition: [part.start, part.end] for part in ranges}
        self.is_exhausted = not ranges

    def fetch(self, most, timeout):
        if self.error is not None:
            raise self.error
        found = []
        for partition, span in self._next.items():
            while span[0] < span[1] and len(found) < most and partition not in self.paused:
                if (offset := span[0]) not in self.left_out:
                    key = b"k%d" % (offset % self.keys)
                    found.append(make_record(offset, key, partition=partition, topic=self.topic))
                span[0] += 1
        self.is_exhausted = all(at >= end for at, end in self._next.values())
        return found

    def pause(self, partitions):
        self.paused = set(partitions)

    def reached(self, part):
        return self._next[part.partition][0]

    def close(self):
        self.is_exhausted = True


class Scene:
    """A worker process without a broker."""

    app = "billing"
    admin = None

    def __init__(self, *specs, keys=2, seconds=3600.0, host=None):
        self.host = host
        self.specs, self.keys, self.lanes = specs, keys, {}
        self.readers = {}
        self.line = SimpleNamespace(orders=Orders())
        self.seconds = seconds
        self.handled = {spec.name: [] for spec in specs}

    def reader_of(self, topic):
        return self.readers.setdefault(topic, Reader(topic, self.keys))

    def handlers(self, lanes, stream):
        return [
            HandlerWorker(
                spec,
                self.app,
                lanes=lanes[spec.name],
                sender=FakeSender(),
                host=self.host,
                listener=Noted(),
            )
            for spec in self.specs
        ]

    def task(self, *parts, lanes=1):
        for part in parts:
            self.reader_of(part.topic)
        feeds = feeds_of(self.app, list(self.specs))
        stream = QuerySpec(self.app, "orders", tuple(self.handled), b"", (), {}, {}, {}, feeds=feeds)
        spec = TaskSpec(parts, dict.fromkeys(self.handled, lanes))
        return TaskRun(self, stream, spec, Span(self.line, self.seconds))


@pytest.fixture
def host():
    made = AppHost(App("billing"))
    yield made
    made.close()


def spec_of(name="charge", function=None, **fields):
    return HandlerSpec(name, Topic("orders"), function or (lambda record: None), **fields)


def part_of(stop, topic="orders", partition=0, **positions):
    positions = positions or {"charge": Position(0)}
    return Part(topic, partition, positions, stop, stop, 0)


def done(task):
    """What a task says at its end."""
    task.recover(is_repeated=False)
    task.work()
    positions = {found[:3]: found[3] for found in task.positions()}
    return positions, task.close()


def test_all_handlers_get_what_is_read_once():
    """One reader for both; each has counts of its own."""
    scene = Scene(spec_of("charge"), spec_of("mail"))
    positions, tallies = done(scene.task(part_of(10, charge=Position(0), mail=Position(0))))
    assert positions == {("charge", "orders", 0): Position(10), ("mail", "orders", 0): Position(10)}
    assert [(tally.read, tally.handled) for tally in tallies] == [(10, 10), (10, 10)]
    assert len(scene.readers["orders"].opened) == 1


def test_what_all_have_finished_is_not_given_to_them():
    """Records before the end of a position are run again only if they are unfinished."""
    seen = []
    scene = Scene(spec_of(function=lambda record: seen.append(record.offset)))
    positions, (tally,) = done(scene.task(part_of(10, charge=Position(6, (0, 3)))))
    assert sorted(seen) == [0, 3, 6, 7, 8, 9]
    assert (positions["charge", "orders", 0], tally.gaps) == (Position(10), 0)


def test_a_handler_that_is_ahead_gets_only_what_is_new_to_it():
    """A slow one is not waited for at the end of a span, so they may differ; nobody handles a record twice for that."""
    seen = {"charge": [], "mail": []}
    scene = Scene(*(spec_of(name, lambda record, name=name: seen[name].append(record.offset)) for name in seen))
    positions, _ = done(scene.task(part_of(10, charge=Position(8, (5,)), mail=Position(4, (1, 2)))))
    assert sorted(seen["charge"]) == [5, 8, 9]
    assert sorted(seen["mail"]) == [1, 2, 4, 5, 6, 7, 8, 9]
    assert set(positions.values()) == {Position(10)}


def test_rows_that_are_finished_are_left_out():
    """As records are."""
    seen = []

    def take(table):
        seen.extend(table.column("offset").to_pylist())

    scene = Scene(spec_of("charge", take, kind="columnar"), spec_of("mail"))
    positions, _ = done(scene.task(part_of(10, charge=Position(6, (0, 3)), mail=Position(0))))
    assert seen == [0, 3, 6, 7, 8, 9]
    assert set(positions.values()) == {Position(10)}


def test_source_and_retry_topics_are_read_by_one_processor():
    """Each up to where it was planned; with one lane no two calls run at once."""
    seen, inside = [], []

    def take(record):
        inside.append(1)
        seen.append((record.topic, record.offset, len(inside)))
        time.sleep(0.001)
        inside.pop()

    spec = spec_of(function=take, retry=Retry.steps("1s", mode="unordered"), lanes=3)
    scene, topic = Scene(spec, keys=100), spec.retry_topic_of("billing", 1)
    task = scene.task(part_of(10), part_of(4, topic))
    positions, (tally,) = done(task)
    assert sorted((topic, offset) for topic, offset, _ in seen) == sorted(
        [("orders", offset) for offset in range(10)] + [(topic, offset) for offset in range(4)]
    )
    assert {count for _, _, count in seen} == {1}
    assert tally.handled == 14
    assert positions == {("charge", "orders", 0): Position(10), ("charge", topic, 0): Position(4)}


def test_a_delayed_source_is_read_up_to_what_is_due():
    """As a retry topic is."""
    from datetime import timedelta

    scene = Scene(spec_of(delay=timedelta(hours=1)))
    positions, (tally,) = done(scene.task(part_of(5)))
    assert (positions["charge", "orders", 0], tally.handled) == (Position(5), 5)


def test_gaps_are_counted_and_finished():
    """Offsets without a record are nobody's work, at the end of a range too."""
    scene = Scene(spec_of())
    scene.reader_of("orders").left_out = {2, 8, 9}
    positions, (tally,) = done(scene.task(part_of(10)))
    assert (positions["charge", "orders", 0], tally.handled, tally.gaps) == (Position(10), 7, 3)


class Blocked:
    """A handler whose first call waits."""

    def __init__(self):
        self.began, self.go, self.calls = threading.Event(), threading.Event(), []

    def __call__(self, record):
        self.calls.append(record.offset)
        self.began.set()
        self.go.wait(10)


@pytest.mark.parametrize("orders", [Orders(pause=1), Orders(is_stopping=True)])
def test_a_pause_or_a_stop_ends_it(orders):
    """What was begun is finished, the rest is left to the next one."""
    handler = Blocked()
    scene = Scene(spec_of(function=handler), keys=1)
    task, found = scene.task(part_of(10)), []
    thread = threading.Thread(target=lambda: found.append(done(task)))
    thread.start()
    assert handler.began.wait(10)
    scene.line.orders = orders
    command = Drain(orders.is_stopping)
    eventually(lambda: task.handlers[0].processor.awaits(command) or task.handlers[0].processor._drain == command)
    scene.line.orders = Orders()  # it stays over
    handler.go.set()
    thread.join(10)
    ((positions, (tally,)),) = found
    assert handler.calls == [0]
    assert positions["charge", "orders", 0].begin == 1
    assert (tally.read, tally.handled) == (1, 1)


def test_it_ends_by_time():
    """Whatever is left."""
    scene = Scene(spec_of(), seconds=0.0)
    positions, (tally,) = done(scene.task(part_of(10)))
    assert (positions["charge", "orders", 0], tally.read) == (Position(0), 0)


def test_what_was_finished_past_the_end_of_a_span_stays_finished():
    """It was read no further than that."""
    scene = Scene(spec_of(), seconds=0.0)
    positions, _ = done(scene.task(part_of(10, charge=Position(6, (0, 3)))))
    assert positions["charge", "orders", 0] == Position(6, (0, 3))


def test_when_reading_fails_no_call_goes_on():
    """Spark tries the task again elsewhere."""
    handler = Blocked()
    scene = Scene(spec_of(function=handler), keys=1)
    task, ends = scene.task(part_of(10**6)), []

    def run():
        try:
            done(task)
        except DataLossError as error:
            ends.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert handler.began.wait(10)
    scene.readers["orders"].error = DataLossError("planted")
    eventually(lambda: task.handlers[0].intake.is_exhausted)
    assert thread.is_alive()
    handler.go.set()
    thread.join(10)
    assert len(ends) == 1
    assert len(handler.calls) == 1
    assert task.handlers[0].is_over


def leave(record):
    raise SystemExit(3)


async def leave_async(record):
    raise SystemExit(3)


@pytest.mark.parametrize("function", [leave, leave_async])
def test_an_exit_in_a_handler_ends_the_task(function, host):
    """And the other handlers with it."""
    scene = Scene(spec_of("charge", function), spec_of("mail"), host=host)
    with pytest.raises(SystemExit):
        done(scene.task(part_of(10, charge=Position(0), mail=Position(0))))


def test_an_async_handler_runs_on_the_loop_of_the_app(host):
    """The task's thread reads meanwhile."""
    seen = []

    async def take(record):
        seen.append((record.offset, threading.current_thread().name))

    positions, _ = done(Scene(spec_of(function=take), host=host).task(part_of(10)))
    assert sorted(seen) == [(offset, "laneway-loop") for offset in range(10)]
    assert positions["charge", "orders", 0] == Position(10)
