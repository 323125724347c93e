"""What brokers are asked again and again, and what is found out when they do not answer."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from laneway._kafka import MISSING, BrokerUnavailableError
from laneway._runtime.monitor import BrokerMonitor
from laneway.errors import AdminError
from support.waiting import eventually

ERROR = "orders.billing.error"


class Admin:
    """A cluster of which a test says what is wrong."""

    def __init__(self):
        self.is_away, self.leaderless, self.known = False, False, {"orders": [0, 1]}
        self.questions = []

    def ends_of(self, places, timeout):
        if self.is_away or self.leaderless:
            raise BrokerUnavailableError("no leader for orders[1]")
        return dict.fromkeys(places, 10)

    def topics(self, timeout):
        if self.is_away:
            raise AdminError("Connection refused")
        return self.known

    def brokers(self, timeout):
        self.questions.append("brokers")
        return 3

    def partitions(self, topic):
        return self.known.get(topic, [])

    def trouble(self, topic):
        return "" if topic in self.known else MISSING

    def largest(self, topic):
        return None

    def create(self, topic, partitions, *, config):
        self.known[topic] = list(range(partitions))
        return True


@pytest.fixture
def admin():
    return Admin()


def monitor_of(admin, owned=(("orders", 0), ("orders", 1)), *, may_create=True):
    return BrokerMonitor(
        SimpleNamespace(admin=admin), owned, sources=["orders"], errors={ERROR: "orders"}, may_create=may_create,
        where="kafka:9092",
    )  # fmt: skip


@pytest.fixture
def monitor(admin):
    found = monitor_of(admin)
    yield found
    found.end()


def found(monitor, looks=5):
    """The troubles of some looks, one after the other."""
    codes = []
    for _ in range(looks):
        monitor.look()
        codes.append(monitor.view.code)
    return codes


def test_all_is_well(monitor):
    """The ends of the logs are known then."""
    assert set(found(monitor)) == {""}
    assert monitor.view.ends == {("orders", 0): 10, ("orders", 1): 10}


def test_a_partition_without_a_leader(admin, monitor):
    """Brokers answer and the topic is there; a change of leaders, which is over at the next look, is not told."""
    admin.leaderless = True
    codes = found(monitor)
    assert codes[0] == ""
    assert codes[-1] == "partitions-unavailable"
    assert monitor.view.words == "no answer about partitions at kafka:9092: no leader for orders[1]"
    admin.leaderless = False
    assert found(monitor, 1) == [""]


def test_a_topic_that_is_gone(admin, monitor):
    """It is told by its name."""
    admin.leaderless, admin.known = True, {}
    assert found(monitor)[-1] == "topic-missing"
    assert monitor.view.words == "there is no topic orders at kafka:9092"


def test_no_broker_is_told_at_once(admin, monitor):
    """With the reason that the client gives."""
    admin.is_away = True
    assert found(monitor, 1) == ["brokers-unreachable"]
    assert monitor.view.words == "no answer from Kafka at kafka:9092: Connection refused"


def test_a_view_does_not_change(admin, monitor):
    """Those who read it compare what is in it; the next look makes another one."""
    monitor.look()
    before = monitor.view
    admin.is_away = True
    monitor.look()
    assert (before.code, before.ends) == ("", {("orders", 0): 10, ("orders", 1): 10})
    assert monitor.view.ends == before.ends, "what was seen last"


def test_trouble_that_lasts_keeps_its_age(admin, monitor):
    """Its age is that of the first look that found it."""
    admin.is_away = True
    monitor.look()
    since = monitor.view.since
    monitor.look()
    assert monitor.view.since == since
    admin.is_away = False
    monitor.look()
    assert monitor.view.since > since


@pytest.mark.parametrize(("owned", "counts", "asked"), [(["one"], False, 0), (["one"], True, 1), ([], False, 1)])
def test_brokers_are_counted_when_that_matters(admin, owned, counts, asked):
    """To count them lists all topics. Without partitions nothing else says whether they answer."""
    monitor = monitor_of(admin, owned)
    monitor.counts = counts
    monitor.look()
    monitor.look()
    assert admin.questions == ["brokers"] * asked
    assert monitor.view.brokers == (3 if asked else None)


class Due:
    """What is due of a source's retry topics, as a test says."""

    def __init__(self):
        self.delayed = {"orders.retry"}
        self.answer, self.asked, self.forgot, self.renewed = {("orders", 0): 90, ("orders.retry", 0): 7}, [], 0, {}

    def ends(self, begin):
        self.asked.append(begin)
        if self.answer is None:
            raise BrokerUnavailableError("nobody")
        return self.answer

    def forget(self):
        self.forgot += 1


def due_of(admin, *feeds):
    owned = {
        ("orders", 0): SimpleNamespace(position=50, epoch=3),
        ("orders.retry", 0): SimpleNamespace(position=5, epoch=3),
    }
    return BrokerMonitor(SimpleNamespace(admin=admin), owned, feeds=feeds, errors={}, may_create=True), owned


def test_what_is_due_is_asked_for_by_position(admin):
    """Of topics whose records wait, and with the epoch that was asked about: an answer may be late."""
    due = Due()
    monitor, owned = due_of(admin, due)
    assert monitor.ask_due()
    assert due.asked == [{("orders.retry", 0): 5}]
    assert monitor.view.due == {("orders.retry", 0): (3, 7)}

    owned.clear()
    assert monitor.ask_due()
    assert (len(due.asked), monitor.view.due) == (1, {})


def test_one_source_that_cannot_be_asked_holds_no_other(admin):
    """Of the one nothing is read; a topic of it may have been deleted, so it is looked for again."""
    due, away = Due(), Due()
    away.answer = None
    monitor, _ = due_of(admin, away, due)
    assert not monitor.ask_due()
    assert (away.forgot, due.forgot) == (1, 0)
    assert monitor.view.due == {("orders.retry", 0): (3, 7)}


def test_a_recreated_retry_topic_is_known_before_what_is_due_of_it(admin):
    """Else it would be read on at the old offsets."""
    due = Due()
    monitor, _ = due_of(admin, due)
    due.renewed = {"orders.retry": {("orders.retry", 0): 9}}
    monitor.ask_due()
    assert list(monitor.recreated) == [("orders.retry", {("orders.retry", 0): 9})]
    assert due.renewed == {}


def test_it_asks_by_itself(admin, monitor):
    """Once it is started, and no more when it has ended."""
    monitor.start()
    eventually(lambda: monitor.view.ends, timeout=10, every=0.01)
    monitor.end()
    eventually(lambda: not monitor._thread.is_alive(), timeout=10, every=0.01)


# --- topics that copies wait for --------------------------------------------------------------------------------------


def asked(monitor, topic, words):
    """Ask until it says these words."""
    eventually(lambda: monitor.trouble(topic) == words, timeout=10, every=0.01, why=lambda: monitor.trouble(topic))


def test_an_error_topic_that_was_deleted_is_created_again(admin, monitor, caplog):
    """With the partitions of its source, and a line that says so, once."""
    asked(monitor, ERROR, "it was deleted and is created again")
    assert admin.known[ERROR] == [0, 1]
    assert caplog.messages == [f"created topic {ERROR} again: it was deleted"]


def test_what_may_not_be_created_is_said(admin, monitor):
    """Nor is any other topic than an error topic created here."""
    strict = monitor_of(admin, may_create=False)
    asked(strict, ERROR, f"{MISSING}, and create_topics is false: create it")
    asked(monitor, "elsewhere", MISSING)
    assert set(admin.known) == {"orders"}
    strict.end()


def test_the_caller_does_not_wait(admin, monitor):
    """Brokers may take long to answer; meanwhile nothing is known, and they are asked once."""
    gate, questions = threading.Event(), []

    def trouble(topic):
        questions.append(topic)
        assert gate.wait(10)
        raise BrokerUnavailableError("nobody")

    admin.trouble = trouble
    assert [monitor.trouble(ERROR) for _ in range(100)] == [""] * 100
    gate.set()
    asked(monitor, ERROR, "no broker answers (nobody)")
    assert questions == [ERROR]
