"""What is said about the health of an app, judged by snapshots."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from laneway._core.locate import BreakerStatus, HandlerStatus, LateTopic
from laneway._core.outbox import Trouble
from laneway._declare.health import Level
from laneway._declare.state import State
from laneway._runtime.broker_monitor import BrokerView
from laneway._runtime.health import monitor as _monitor
from laneway._runtime.health.monitor import HealthMonitor
from laneway._runtime.health.snapshot import Finding
from laneway._runtime.lifecycle import Lifecycle
from support.waiting import eventually
from support.watched import Seen

HERE = ("orders", 0)


def watching(seen, state=State.CONSUMING):
    life = Lifecycle()
    life.enter(state)
    monitor = HealthMonitor(life)
    monitor.watch([seen], None)
    return monitor, life


def reading():
    """A member that has a partition."""
    seen = Seen()
    seen.low[HERE] = 5
    return seen


def only(monitor):
    [reason] = monitor.health().reasons
    return reason


def test_a_member_that_does_not_poll_is_critical():
    """Before the group gives it up, which is after three times as long."""
    seen = reading()
    monitor, _ = watching(seen)
    assert monitor.health().level is Level.OK

    seen.silent = 101.0
    reason = only(monitor)
    assert (reason.level, reason.code) == (Level.CRITICAL, "not-polling")
    assert "1m41s" in reason.text


def test_no_partitions_yet_is_a_warning_and_a_spare_member_is_well():
    """A member that the group has not answered cannot work; one that has no partitions for now need not."""
    seen = Seen()
    seen.has_joined = False
    monitor, _ = watching(seen)
    reason = only(monitor)
    assert (reason.level, reason.code) == (Level.WARNING, "no-partitions")
    assert "those of a killed member are assigned after its session timeout (45s)" in reason.text

    seen.has_joined = True
    reason = only(monitor)
    assert (reason.level, reason.code) == (Level.OK, "spare")


def test_the_state_says_that_partitions_do_not_come():
    """After two seconds, because a group at rest gives them sooner; when they are there it says so no longer."""
    seen = Seen()
    seen.has_joined = False
    monitor, life = watching(seen)
    monitor.look()
    assert life.detail == ""
    eventually(lambda: (monitor.look(), life.detail)[1], timeout=20, every=0.2)
    assert life.detail.startswith("waiting for the group to assign partitions; those of a killed member")

    seen.has_joined = True
    seen.low[HERE] = 0
    monitor.look()
    assert life.detail == ""


def test_a_late_copy_is_a_warning():
    """With topic, count and reason; when the client has given up on it, that is said instead."""
    seen = reading()
    late = LateTopic("orders.shop.error", "1 copy for orders.shop.error not acknowledged for 7s", 7.0)
    seen.handler = HandlerStatus("charge", late=(late,))
    monitor, _ = watching(seen)
    reason = only(monitor)
    assert (reason.level, reason.code) == (Level.WARNING, "copies-late")
    assert reason.text == f"{late.words}; records of handler 'charge' wait"

    trouble = Trouble("orders.shop.error", "ProduceError: no", 2, 9.0)
    seen.handler = HandlerStatus("charge", late=(late,), troubles=(trouble,))
    reason = only(monitor)
    assert (reason.level, reason.code) == (Level.CRITICAL, "cannot-write")
    assert reason.text == (
        "cannot write to orders.shop.error: ProduceError: no, 2 times so far; records of handler 'charge' wait, "
        "and the write is retried"
    )


def test_an_open_breaker_is_a_warning():
    """With what opened it and when it is probed."""
    seen = reading()
    seen.handler = HandlerStatus("charge", breaker=BreakerStatus(65.0, 5, "ConnectionError: closed", 3.0))
    monitor, _ = watching(seen)
    reason = only(monitor)
    assert (reason.level, reason.code) == (Level.WARNING, "breaker-open")
    assert reason.text == (
        "the breaker of handler 'charge' has been open for 1m5s after 5 consecutive failures, first with "
        "ConnectionError: closed; the next probe is due in 3s"
    )


def test_what_brokers_say_is_passed_on():
    """That none answers, and that there are too few."""
    seen = reading()
    seen.brokers = BrokerView(code="brokers-unreachable", text="no answer from Kafka", since=time.monotonic() - 5)
    monitor, _ = watching(seen)
    reason = only(monitor)
    assert (reason.level, reason.code) == (Level.CRITICAL, "brokers-unreachable")

    seen.brokers = BrokerView(brokers=2)
    monitor.begin(None, minimum_brokers=3)
    monitor.watch([seen], None)
    try:
        assert seen.counts
        assert only(monitor).code == "few-brokers"
    finally:
        monitor.end()


def test_what_only_an_engine_knows_is_a_reason():
    """And a stalled partition is one, with the sentence of `why`; many are summed up."""
    seen = Seen()
    seen.findings = [Finding(Level.CRITICAL, "silent", "a task", "a task says nothing", 12.0)]
    seen.low |= {("orders", number): 3 for number in range(13)}
    seen.delivered |= dict.fromkeys(seen.low, 4)
    monitor, _ = watching(seen)
    monitor.begin(None, stalled_after=timedelta(0))
    try:
        reasons = monitor.health().reasons
    finally:
        monitor.end()
    assert [reason.code for reason in reasons] == ["silent"] + ["stalled"] * 11
    assert any(reason.text.startswith("orders[7]@3 (key k) has not moved for 0s: handler") for reason in reasons)
    assert any(reason.text == "3 more partitions make no progress" for reason in reasons)


def test_a_reason_knows_since_when():
    """Asked again it tells the same time, and a later one when it was over in between."""
    seen = Seen()
    seen.has_joined = False
    monitor, _ = watching(seen)
    first = only(monitor).since
    time.sleep(1.0)
    assert abs((only(monitor).since - first).total_seconds()) < 0.8

    seen.has_joined = True
    seen.low[HERE] = 0
    assert monitor.health().reasons == ()
    seen.has_joined = False
    seen.low.clear()
    assert (only(monitor).since - first).total_seconds() > 0.8


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

    reason = only(HealthMonitor(life))
    assert (reason.level, reason.code) == (level, code)


def test_a_notice_is_not_repeated_for_ever(monkeypatch):
    """What has not been said again for a while is over; what another part said stays."""
    life = Lifecycle()
    life.enter(State.CONSUMING)
    monitor = HealthMonitor(life)
    monitor.note("cannot write to orders.error")
    monitor.look()
    assert life.detail == "cannot write to orders.error"

    monkeypatch.setattr(_monitor, "_NOTED", 0.0)
    time.sleep(0.01)
    monitor.look()
    assert life.detail == ""


def test_what_is_asked_for_is_fresh():
    """A user who asks gets what other processes say now; the regular looks take what they said last."""
    seen = reading()
    monitor, _ = watching(seen)
    monitor.look()
    assert seen.refreshed == 0
    assert monitor.why(0.0) == []
    assert seen.refreshed == 1
