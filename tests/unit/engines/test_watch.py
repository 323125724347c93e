"""What holds records up, found among real stations without a broker; and who watches."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

from laneway import App, Breaker, Retry, RetryAfter, Topic
from laneway._core.commands import Drain
from laneway._core.outbox import Late
from laneway._declare.health import Level
from laneway._engines.direct import progress as _progress
from laneway._engines.direct import stalls as _stalls
from laneway._engines.direct.check import HealthCheck
from laneway._engines.direct.hold import Hold
from laneway._engines.direct.progress import Progress
from laneway._engines.direct.stalls import Heard
from laneway._engines.direct.watch import Watch
from laneway._runtime.host import AppHost
from laneway._runtime.lease import Lease
from laneway._runtime.lifecycle import Lifecycle, State
from laneway._runtime.monitor import BrokerView
from laneway._runtime.partition import PartitionView, Pause
from laneway._runtime.status_file import StatusFile, statuses
from laneway._runtime.worker_loop import Request, WorkerStatus
from laneway.errors import ProduceError
from laneway.events import CopyFailed, OffsetsCommitted, PartitionsRevoked, RecordParked
from support.stations import ORDERS, Post, row, station_of
from support.waiting import eventually


class Clock:
    """The time of a module, moved by hand."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


def awaited(station, code, partition=0, offset=0):
    """The cause, once it is of this code; and that it was looked up while nothing changed."""

    def found():
        cause, is_sure = station.cause(partition, offset)
        of_record = cause["orders", partition, offset]
        return of_record if is_sure and of_record.code == code else None

    return eventually(found, timeout=30, why=lambda: f"{code}, and not {station.cause(partition, offset)}")


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


def test_a_call_that_runs_is_named_with_its_record_and_time(gate):
    """The handler, how long it has been at it, and the key."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4)
    def charge(record):
        gate.wait(30)

    with station_of(app, [row(7, b"slow")]) as station:
        cause = awaited(station, "running", 0, 7)
        time.sleep(0.3)
        later = awaited(station, "running", 0, 7)
        gate.set()

    assert cause.words.startswith("handler 'charge' has been running for ")
    assert cause.words != later.words
    assert cause.record.key == b"slow"


def test_a_record_that_waits_for_its_next_try(gate):
    """When the next one is due, and what the last one failed with."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4, retry=Retry(attempts=3, backoff="1h", backoff_max="1h"))
    def charge(record):
        raise ConnectionError("nobody there")

    with station_of(app, [row(0)]) as station:
        cause = awaited(station, "next-try")

    assert "attempt 2, due in " in cause.words
    assert "m" in cause.words.partition("due in ")[2]
    assert cause.words.endswith("after ConnectionError: nobody there")


def test_a_copy_that_cannot_be_written_names_topic_and_reason():
    """The record waits for its error topic, and it is said which and why."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4)
    def charge(record):
        raise ValueError("bad")

    with station_of(app, [row(0)], Post(ProduceError("TOPIC_AUTHORIZATION_FAILED: not for you"))) as station:
        cause = eventually(
            lambda: (found := awaited(station, "copy")) and "cannot write" in found.words and found, timeout=30
        )
        station.processor.outbox._sender.error = None

    assert "cannot write to orders.shop.error: ProduceError: TOPIC_AUTHORIZATION_FAILED: not for you" in cause.words


def test_a_message_without_an_answer_is_waited_for():
    """Nothing failed yet: the brokers have not acknowledged it."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4)
    def charge(record):
        return Topic("receipts").message(b"r")

    post = Post(answers=False)
    with station_of(app, [row(0)], post) as station:
        cause = awaited(station, "copy")
        post.answers = True

    assert cause.words == "its copy or message has not been acknowledged by the brokers yet"


def test_an_open_breaker_is_the_cause():
    """Of every record that is not called because of it, with what opened it and when it is probed."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4, breaker=Breaker(2, "1h", "1h"))
    def charge(record):
        raise ConnectionError("the bank is closed")

    with station_of(app, [row(0, b"a"), row(1, b"b"), row(2, b"c")]) as station:
        cause = awaited(station, "breaker", 0, 2)

    assert "the breaker of handler 'charge' is open for " in cause.words
    assert "ConnectionError: the bank is closed" in cause.words
    assert "the next probe is due in " in cause.words


def test_a_record_behind_another_of_its_key(gate):
    """It is said behind which one, and what that one waits for; the other may be of another partition."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4)
    def charge(record):
        gate.wait(30)

    with station_of(app, [row(5, b"k", 1), row(0, b"k", 0)]) as station:
        # The head alone is in work: of an unknown pace a turn is one record.
        cause = awaited(station, "behind", 0, 0)
        gate.set()

    assert cause.words.startswith("it waits behind orders[1]@5 of its key: handler 'charge' has been running for ")


def test_a_record_that_waits_for_a_lane(gate):
    """All lanes are busy with other keys."""
    app = App("shop")

    @app.handler(ORDERS, lanes=2)
    def charge(record):
        gate.wait(30)

    with station_of(app, [row(0, b"a"), row(1, b"b"), row(2, b"c")], lanes=2) as station:
        awaited(station, "running", 0, 1)
        cause = awaited(station, "lane", 0, 2)
        gate.set()

    assert cause.words == "it waits for a free lane of handler 'charge', which are all busy (2)"


def test_a_record_without_a_key_is_found_too(gate):
    """No queue holds it while it runs."""
    app = App("shop")

    @app.handler(ORDERS, lanes=2)
    def charge(record):
        gate.wait(30)

    with station_of(app, [row(0, None)]) as station:
        cause = awaited(station, "running")
        gate.set()

    assert cause.record.key is None


def test_a_record_that_nobody_has_acknowledged():
    """Its function has returned; the next of its key waits behind it."""
    app, acks = App("shop"), []

    @app.handler(ORDERS, lanes=4, acknowledge="manual")
    def charge(record, ack):
        acks.append(ack)

    with station_of(app, [row(0), row(1)]) as station:
        cause, next_ = awaited(station, "acknowledge"), awaited(station, "behind", 0, 1)
        acks[0].done()
        eventually(lambda: len(acks) == 2, timeout=30)
        acks[1].done()

    assert (cause.record.offset, next_.record.offset) == (0, 1)
    assert cause.words == "handler 'charge' has returned and not acknowledged it yet"
    assert next_.words == f"it waits behind orders[0]@0 of its key: {cause.words}"


def test_a_batch_that_is_not_full():
    """Its records wait for more."""
    app = App("shop")

    @app.batch_handler(ORDERS, size=10, within="1h")
    def archive(batch):
        pass

    with station_of(app, [row(0)]) as station:
        assert awaited(station, "batch").words == "it waits for the batch of handler 'archive' to be full"


def test_a_blocked_event_loop_is_found_out(gate):
    """An async handler that blocks its loop keeps it from answering; the record in work is named all the same."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4)
    async def charge(record):
        gate.wait(30)

    with station_of(app, [row(3, b"k")]) as station:
        eventually(lambda: station.processor.begun, timeout=20)
        found, is_sure = station.cause(0, 3, timeout=0.2)
        crew = Crew()
        crew.found, crew.delivered, crew.stations = {("orders", 0): 3}, {("orders", 0): 4}, [station]
        [stall] = followed(crew).stalls(0.0)
        gate.set()

    assert not is_sure
    assert found["orders", 0, 3].code == "running"
    assert found["orders", 0, 3].record.key == b"k"
    assert stall.code == "loop"
    assert stall.words.startswith(
        "the event loop does not answer: something blocks it; handler 'charge' has been running"
    )


def test_a_partition_that_is_held_for_its_commit_says_so(gate):
    """The record that holds it up is named, and why nothing behind it is read."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4)
    def charge(record):
        gate.wait(30)

    with station_of(app, [row(3, b"k")]) as station:
        awaited(station, "running", 0, 3)
        crew = Crew()
        crew.found, crew.delivered, crew.stations = {("orders", 0): 3}, {("orders", 0): 4}, [station]
        crew.paused = {("orders", 0): {Pause.METADATA}}
        [stall] = followed(crew).stalls(0.0)
        gate.set()

    assert (stall.code, stall.offset) == ("running", 3)
    assert stall.words.startswith("handler 'charge' has been running for ")
    assert "the partition is not read on before it is finished, because commits can tell of no more" in stall.words


def test_a_process_that_was_stopped_waits_for_its_group():
    """Free lanes are no help: it is not known whether the record is still its own."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4)
    def charge(record):
        pass

    with station_of(app, []) as station:
        station.processor.lease = Lease(0.0)
        station.intake.put([row(3, b"k")])
        cause = awaited(station, "group", 0, 3)

    assert "waits for its group to say which partitions are still its own" in cause.words


def test_what_is_left_for_the_next_start():
    """A stop that cannot wait puts back what was not begun; somebody who asks then is told so."""
    app = App("shop")

    @app.handler(ORDERS, lanes=1, retry=Retry(attempts=3))
    def charge(record):
        raise RetryAfter("10m")

    with station_of(app, [row(0)]) as station:
        awaited(station, "next-try")
        station.post(Drain())
        assert awaited(station, "left").words == "it is left for the next start, because this one is ending"


def test_a_handler_may_ask_from_its_own_loop():
    """To wait for the loop that one runs on would be to wait for oneself."""
    app, answers = App("shop"), []

    @app.handler(ORDERS, lanes=4)
    async def charge(record):
        answers.append(stations[0].cause(0, 0, timeout=20.0))

    stations = []
    with station_of(app, []) as station:
        stations.append(station)
        began = time.monotonic()
        station.intake.put([row(0)])
        found, is_sure = eventually(lambda: answers and answers[0], timeout=30)

    assert is_sure
    assert found["orders", 0, 0].code == "running"
    assert time.monotonic() - began < 15


def test_what_cannot_be_written_counts_until_something_landed():
    """Between two tries nothing is known to fail, and still it is not well; when nothing waits any more, it is."""
    heard = Heard()
    heard.hear(CopyFailed("charge", "orders.error", "ProduceError: no", 3))

    assert [topic for topic, *_ in heard.troubles("charge", is_pending=True, timeout=30.0)] == ["orders.error"]
    assert heard.troubles("other", is_pending=True, timeout=30.0) == []
    heard.hear(RecordParked("charge", "orders", 0, 1, 1, "ValueError", "orders.error"))
    # Another record's copy may still fail: a single one that landed says too little yet.
    assert heard.troubles("charge", is_pending=True, timeout=30.0)
    assert heard.troubles("charge", is_pending=False, timeout=30.0) == []
    assert heard.troubles("charge", is_pending=True, timeout=30.0) == []


@pytest.mark.parametrize(("has_landed", "seconds"), [(True, 7), (False, 43)])
def test_a_topic_that_takes_copies_again_is_well(monkeypatch, has_landed, seconds):
    """Soon after one has landed; and without one only when no try can be under way any more."""
    clock, heard = Clock(), Heard()
    monkeypatch.setattr(_stalls, "time", clock)
    heard.hear(CopyFailed("charge", "orders.error", "ProduceError: no", 1))
    if has_landed:
        clock.now += 0.5
        heard.hear(RecordParked("charge", "orders", 0, 1, 1, "ValueError", "orders.error"))
        clock.now -= 0.5
    clock.now += seconds - 2
    assert heard.troubles("charge", is_pending=True, timeout=30.0)
    clock.now += 2
    assert heard.troubles("charge", is_pending=True, timeout=30.0) == []


class Crew:
    """Partitions that stand where a test puts them."""

    def __init__(self):
        self.found, self.delivered, self.stations, self.polled = {}, {}, [], time.monotonic()
        self.member, self.sources, self.has_joined, self.is_over = self, ["orders"], True, False
        self.worker_loop = self
        self.paused = {}
        self.monitor = SimpleNamespace(view=BrokerView())
        self.cluster = SimpleNamespace(
            brokers=("broker:9092",),
            producer=SimpleNamespace(timeout=timedelta(seconds=30)),
            consumer=SimpleNamespace(max_poll_interval=timedelta(minutes=5), session_timeout=timedelta(seconds=45)),
        )

    @property
    def owned(self):
        return list(self.found)

    def status(self):
        partitions = {
            place: PartitionView(at, at, [], self.delivered.get(place, 0), self.paused.get(place, set()))
            for place, at in self.found.items()
        }
        return WorkerStatus(partitions, self.has_joined, False, False, False, self.polled, 0)

    @property
    def partitions(self):
        return {place: SimpleNamespace(paused=view.paused) for place, view in self.status().partitions.items()}


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(_progress, "time", found)
    return found


def followed(crew, ends=None, heard=None):
    crew.monitor.view = BrokerView(ends={} if ends is None else ends)
    return Progress(crew, heard or Heard(), lambda: False)


def test_an_idle_partition_does_not_stand_still(clock):
    """A record that comes after an hour of silence is not an hour late."""
    crew, ends = Crew(), {("orders", 0): 5}
    crew.found, crew.delivered = {("orders", 0): 5}, {("orders", 0): 5}
    progress = followed(crew, ends)
    progress.look()
    clock.now += 3600
    ends["orders", 0] = 6
    assert progress.stalls(30.0) == []
    clock.now += 31

    [stall] = progress.stalls(30.0)
    assert (stall.code, stall.offset, stall.age) == ("unread", 5, timedelta(seconds=31))
    assert stall.words == "1 record waits to be read; the brokers give none"


def test_what_holds_a_partition_back_is_said(clock):
    """Why nothing is read of it, in the words of the reason that counts most."""
    crew, ends = Crew(), {("orders", 0): 6}
    crew.found = crew.delivered = {("orders", 0): 5}
    crew.paused = {("orders", 0): {Pause.BUFFER, Pause.RECOVERY}}
    progress = followed(crew, ends)
    progress.look()
    clock.now += 31

    [stall] = progress.stalls(30.0)
    assert stall.words == "1 record waits to be read; what its former owner has left is being looked up"


def test_records_that_wait_for_their_delay_do_not_stand_still(clock):
    """Until the delay is over, and a little more: they are told of as what they are."""
    crew, ends = Crew(), {("orders", 0): 7}
    crew.found, crew.delivered = {("orders", 0): 5}, {("orders", 0): 5}
    step = SimpleNamespace(spec=SimpleNamespace(topic=ORDERS, delay=timedelta(minutes=10)))
    crew.stations = [SimpleNamespace(processor=SimpleNamespace(steps=[step]), topics=["orders"])]
    progress = followed(crew, ends)
    progress.look()
    clock.now += 600
    [stall] = progress.stalls(30.0)
    assert (stall.code, stall.words) == ("delay", "2 records wait to be read; each of them when it is 10m old")
    clock.now += 31
    assert [stall.code for stall in progress.stalls(30.0)] == ["unread"]


def test_partitions_that_are_gone_are_not_told_of(clock):
    """After a rebalance there is nothing about what is somebody else's, and what comes back begins anew."""
    crew, ends, heard = Crew(), {("orders", 0): 9, ("orders", 1): 9}, Heard()
    crew.found = {("orders", 0): 5, ("orders", 1): 5}
    progress = followed(crew, ends, heard)
    progress.look()
    clock.now += 60
    assert len(progress.stalls(30.0)) == 2

    del crew.found["orders", 1]
    assert [stall.partition for stall in progress.stalls(30.0)] == [0]
    assert list(progress.lag()) == [("orders", 0)]

    # It went and came back between two looks, at the same offset.
    progress.forget({0})
    assert progress.stalls(30.0) == []


def test_commits_that_do_not_get_there_are_told(clock):
    """More is finished than the brokers know of, for longer than a few commits take; one that arrives ends that."""
    crew, heard = Crew(), Heard()
    place = ("orders", 0)
    crew.found = {place: 5}
    progress = followed(crew, heard=heard)
    progress.look()
    for _ in range(12):
        crew.found[place] += 10
        clock.now += 1
        progress.look()
    assert progress.uncommitted() == {place: 11.0}

    heard.hear(OffsetsCommitted("orders", ((0, crew.found[place]),)))
    assert progress.uncommitted() == {}


def test_a_partition_that_moves_on_is_committed_in_time(clock):
    """On a busy topic there is always something finished that is not committed yet."""
    crew, heard = Crew(), Heard()
    crew.found = {("orders", 0): 5}
    progress = followed(crew, heard=heard)
    for _ in range(60):
        crew.found["orders", 0] += 10
        progress.look()
        heard.hear(OffsetsCommitted("orders", ((0, crew.found["orders", 0] - 5),)))
        clock.now += 1
        assert progress.uncommitted() == {}


def watching(crew, state=State.CONSUMING, **rest):
    life = Lifecycle()
    life.enter(state)
    watch = Watch(life, **rest)
    watch.attend([crew], None)
    return watch, life


def test_a_member_that_does_not_poll_is_critical():
    """Before the group gives it up, which is after three times as long."""
    crew = Crew()
    crew.found = {("orders", 0): 5}
    watch, _ = watching(crew)
    assert watch.health().level is Level.OK

    crew.polled -= 101
    health = watch.health()
    assert (health.level, health.reasons[0].code) == (Level.CRITICAL, "not-polling")
    assert "1m41s" in health.reasons[0].words


def test_no_partitions_yet_is_a_warning_and_a_spare_member_is_well():
    """Who has not been answered by the group cannot work; who is told that there is none for it need not."""
    crew = Crew()
    crew.has_joined = False
    watch, _ = watching(crew)
    (reason,) = watch.health().reasons
    assert (reason.level, reason.code) == (Level.WARNING, "no-partitions")
    assert "those of a member that was killed come after its session time-out (45s)" in reason.words

    crew.has_joined = True
    assert [(reason.level, reason.code) for reason in watch.health().reasons] == [(Level.OK, "spare")]


def test_the_state_says_that_partitions_do_not_come():
    """After two seconds, because a group at rest gives them sooner; when they are there it says so no longer."""
    crew = Crew()
    crew.has_joined = False
    watch, life = watching(crew)
    watch._look()
    assert life.detail == ""
    eventually(lambda: (watch._look(), life.detail)[1], timeout=20, every=0.2)
    assert life.detail.startswith("it waits for the group to give it partitions; those of a member that was killed")

    crew.has_joined, crew.found = True, {("orders", 0): 0}
    watch._look()
    assert life.detail == ""


def test_a_late_copy_is_a_warning():
    """With topic, count and reason; when the client has given up on it, that is said instead."""
    app = App("shop")

    @app.handler(ORDERS, lanes=4)
    def charge(record):
        raise ValueError("bad")

    post = Post(answers=False)
    with station_of(app, [row(0)], post) as station:
        eventually(lambda: station.processor.outbox.pending == 1, timeout=30)
        crew = Crew()
        crew.found, crew.stations = {("orders", 0): 0}, [station]
        watch, _ = watching(crew)
        assert watch.health().reasons == ()
        since = time.monotonic() - 7
        station.processor.outbox._aged = time.monotonic() + 60  # it would look by itself in five seconds
        station.processor.outbox.late = (Late("orders.shop.error", 1, since, "there is no such topic"),)
        [reason] = watch.health().reasons
        cause, _ = station.cause()
        post.answers = True

    assert (reason.level, reason.code) == (Level.WARNING, "copies-late")
    words = "1 copy or message for orders.shop.error not acknowledged for 7s: there is no such topic"
    assert reason.words == f"{words}; records of handler 'charge' wait"
    assert cause["orders", 0, 0].words == f"its copy or message is not safe yet: {words}"


def test_a_reason_knows_since_when():
    """Asked again it tells the same time, and a later one when it was over in between."""
    crew = Crew()
    crew.has_joined = False
    watch, _ = watching(crew)
    first = watch.health().reasons[0].since
    time.sleep(1.0)
    second = watch.health().reasons[0].since
    assert abs((second - first).total_seconds()) < 0.8

    crew.has_joined = True
    crew.found = {("orders", 0): 0}
    assert watch.health().reasons == ()
    crew.has_joined, crew.found = False, {}
    assert (watch.health().reasons[0].since - first).total_seconds() > 0.8


@pytest.mark.parametrize(
    ("state", "detail", "level", "code"),
    [
        (State.STOPPED, "", Level.OK, "stopped"),
        (State.CLOSED, "", Level.OK, "closed"),
        (State.INITIALISING, "", Level.OK, "initialising"),
        (State.INITIALISING, "waiting for Kafka at b:1: timed out", Level.CRITICAL, "brokers-unreachable"),
        (State.INITIALISING, "waiting for topic orders", Level.CRITICAL, "topic-missing"),
        (State.PAUSED, "", Level.OK, "paused"),
    ],
)
def test_the_state_alone_says_something(state, detail, level, code):
    """Before, after and between runs there is an answer."""
    life = Lifecycle()
    life.enter(state, detail)
    watch = Watch(life)

    [reason] = watch.health().reasons
    assert (reason.level, reason.code) == (level, code)


def test_a_notice_is_not_repeated_for_ever(monkeypatch):
    """What has not been said again for a while is over; what somebody else said stays."""
    from laneway._engines.direct import watch as _watch

    life = Lifecycle()
    life.enter(State.CONSUMING)
    watch = Watch(life)
    watch.note("cannot write to orders.error")
    watch._look()
    assert life.detail == "cannot write to orders.error"

    monkeypatch.setattr(_watch, "_NOTED", 0.0)
    time.sleep(0.01)
    watch._look()
    assert life.detail == ""


def test_ages_are_forgotten_when_partitions_go():
    """The event of a rebalance reaches those who count."""
    crew = Crew()
    watch, _ = watching(crew)
    forgotten = []
    watch._crews[0][1].forget = forgotten.append
    watch.hear(PartitionsRevoked("orders", (1, 2), False))

    assert forgotten == [{1, 2}]


def answered(function, **rest):
    """The first answer of a check."""
    check = HealthCheck(function, asyncio.new_event_loop, every=0.01, **rest)
    first = check.trouble
    check.start()
    try:
        return eventually(lambda: (check.trouble != first and [check.trouble]) or None, timeout=20)[0]
    finally:
        check.end()


def test_a_check_that_has_not_answered_says_so():
    """Until it has said yes, nothing is read."""
    assert HealthCheck(lambda: True, asyncio.new_event_loop).trouble == "the check '<lambda>' has not answered yet"


@pytest.mark.parametrize("answer", [True, None, 1, "ready"])
def test_a_check_that_is_content(answer):
    """Anything true, and a function that returns nothing and raises nothing."""
    assert answered(lambda: answer) is None


def test_a_check_that_says_no_or_raises():
    """Both are told with its name."""

    def bank():
        raise ConnectionError("no\nroute")

    assert answered(lambda: False) == "the check '<lambda>' says no"
    assert answered(bank) == "the check 'bank' failed: ConnectionError: no route"


def test_a_check_that_hangs_counts_as_no_and_recovers(gate):
    """Nobody waits for it; once it answers, that counts."""
    gate.set()

    def bank():
        return gate.wait(30)

    check = HealthCheck(bank, asyncio.new_event_loop, every=0.01, timeout=0.2)
    check.start()
    eventually(lambda: check.trouble is None, timeout=20)
    gate.clear()
    assert "has not answered for" in eventually(lambda: check.trouble, timeout=20)
    gate.set()
    eventually(lambda: check.trouble is None, timeout=20)
    check.end()


def test_an_async_check_runs_on_the_loop_and_has_a_limit():
    """Its answer counts as that of a plain one, and a task that takes too long is cancelled."""
    host, cancelled, answers = AppHost(App("shop")), threading.Event(), [True]

    async def bank():
        if answers[0] is None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise
        return answers[0]

    check = HealthCheck(bank, lambda: host.loop, every=0.01, timeout=0.3)
    check.start()
    try:
        eventually(lambda: check.trouble is None, timeout=20)
        answers[0] = None
        assert cancelled.wait(20)
        eventually(lambda: "no answer within 0.3s" in (check.trouble or ""), timeout=20)
    finally:
        answers[0] = True
        check.end()
        check._thread.join(20)
        host.close()


class Switch:
    """A crew that can be paused, with or without calls that run."""

    def __init__(self):
        self.is_quiet, self.paused, self.worker_loop = False, [], self

    def request(self, request):
        self.paused.append(request is Request.PAUSE)


def held(check=None):
    life, crew = Lifecycle(), Switch()
    life.enter(State.CONSUMING)
    hold = Hold(life)
    hold.attend([crew], None, check)
    return hold, life, crew


def test_a_pause_is_over_when_nothing_runs():
    """Pausing while calls run, paused when they have ended, and back at once."""
    hold, life, crew = held()
    hold.is_asked = True
    hold.apply()
    assert life.state is State.PAUSING
    hold.apply()
    assert life.state is State.PAUSING

    crew.is_quiet = True
    hold.apply()
    assert life.state is State.PAUSED
    crew.is_quiet = False  # a try that had been put off
    hold.apply()
    assert life.state is State.PAUSED

    hold.is_asked = False
    hold.apply()
    assert (life.state, crew.paused) == (State.CONSUMING, [True, False])


def test_a_bad_check_pauses_with_its_words_and_resumes_by_itself():
    """What the user asked for counts besides: a good check does not end a pause."""
    check = SimpleNamespace(trouble="the check 'bank' says no")
    hold, life, crew = held(check)
    crew.is_quiet = True
    hold.apply()
    assert (life.state, life.detail) == (State.PAUSED, "the check 'bank' says no")

    hold.is_asked, check.trouble = True, None
    hold.apply()
    assert life.state is State.PAUSED
    hold.is_asked = False
    hold.apply()
    assert (life.state, life.detail, crew.paused) == (State.CONSUMING, "", [True, False])


def test_a_stopping_engine_is_not_paused():
    """Nothing takes it back from its end."""
    hold, life, _ = held()
    life.enter(State.STOPPING)
    hold.is_asked = True
    hold.apply()
    hold.is_asked = False
    hold.apply()

    assert life.state is State.STOPPING


def test_a_status_file_is_read_while_its_process_lives(tmp_path):
    """By the name of the app; it is gone when it is removed, and nobody else may read it."""
    mine, other = StatusFile("shop", tmp_path), StatusFile("bank", tmp_path)
    mine.write({"state": "starting"})
    mine.write({"state": "consuming"})
    other.write({"state": "paused"})

    [said] = statuses("shop", tmp_path)
    assert (said["app"], said["pid"], said["state"]) == ("shop", os.getpid(), "consuming")
    assert {oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == {"0o600"}
    mine.remove()
    assert statuses("shop", tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 1


def test_what_dead_processes_and_others_left_is_not_believed(tmp_path):
    """The process number may be another's by now, and a file may be no status at all."""
    file = StatusFile("shop", tmp_path)
    file._known["began"] = 1.0  # the same number, another process
    file.write({"state": "consuming"})
    (tmp_path / "half.json").write_text('{"version": 1, "app": "sh')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "old.json").write_text('{"version": 0, "app": "shop", "pid": 1}')

    assert statuses("shop", tmp_path) == []
    assert file._path.exists()  # it may be of another machine that shares the folder
    os.utime(file._path, (1.0, 1.0))
    StatusFile("shop", tmp_path)
    assert not file._path.exists()


def test_a_folder_that_cannot_be_written_harms_nobody(tmp_path):
    """The file is a courtesy, and the run goes on without it."""
    (tmp_path / "run").write_text("not a folder")
    file = StatusFile("shop", tmp_path / "run")
    file.write({"state": "consuming"})
    file.remove()

    assert statuses("shop", tmp_path / "run") == []
