"""Where parked records go when they are replayed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laneway import App, Topic
from laneway.admin import Filter, Replay, Target, error_topics_of
from laneway.settings import load
from support.parked import ERROR_TOPIC, make_parked

PARTITIONS = {"orders": 4, "returns": 2, "secrets": 9}
TWO = replace(ERROR_TOPIC, sources=("orders", "returns"))


def parked(**headers):
    named = [(f"laneway-{name.replace('_', '-')}", str(value).encode()) for name, value in headers.items()]
    return make_parked(headers=[("own", b"1"), *named, ("own", None)])


@pytest.mark.parametrize(
    ("topic", "headers", "expected"),
    [
        (ERROR_TOPIC, {"origin_topic": "orders", "origin_partition": 3}, Target("orders", 3)),
        (ERROR_TOPIC, {"origin_topic": "orders", "origin_partition": 4}, Target("orders")),
        (ERROR_TOPIC, {"origin_topic": "orders"}, Target("orders")),
        (ERROR_TOPIC, {}, Target("orders")),
        (ERROR_TOPIC, {"origin_topic": "secrets", "origin_partition": 3}, Target("orders")),
        (ERROR_TOPIC, {"origin_topic": "returns"}, Target("orders")),
        (TWO, {"origin_topic": "returns", "origin_partition": 1}, Target("returns", 1)),
        (TWO, {"origin_topic": "orders", "origin_partition": 1}, Target("orders", 1)),
        (ERROR_TOPIC, {"app": "billing"}, Target("orders")),
    ],
    ids=str,
)
def test_a_record_goes_to_a_topic_of_the_app(topic, headers, expected):
    """The header chooses among the app's own topics only; a partition that does not exist is left to the key."""
    assert topic.target_of(parked(**headers), PARTITIONS) == expected


@pytest.mark.parametrize(
    ("topic", "headers", "part"),
    [
        (TWO, {"origin_topic": "secrets"}, "one of the app's topics"),
        (TWO, {}, "one of the app's topics"),
        (ERROR_TOPIC, {"app": "shipping", "origin_topic": "orders"}, "another app"),
        (ERROR_TOPIC, {"reduced": "value", "origin_topic": "orders"}, "too large to be copied"),
    ],
    ids=str,
)
def test_a_record_that_cannot_be_placed_is_left_alone(topic, headers, part):
    """The reason is reported, and a filter that means the record does not choose it."""
    record = parked(**headers)
    assert part in topic.target_of(record, PARTITIONS)
    assert part in Replay(topic, Filter(), PARTITIONS).choose(record)


def test_a_person_may_choose_another_topic():
    """It counts for all records but those that have no value."""
    replay = Replay(TWO, Filter(), PARTITIONS, to="secrets")
    assert replay.target_of(parked(origin_topic="orders", origin_partition=1)) == Target("secrets")
    assert replay.choose(parked(app="shipping")) is True
    assert "too large" in replay.choose(parked(reduced="value"))


def test_own_headers_come_back_in_their_order():
    """Ours are gone, but for how often the record was parked."""
    assert ERROR_TOPIC.replayed_headers(parked(app="billing", errors=2, odd=1)) == [
        ("own", b"1"),
        ("own", None),
        ("laneway-errors", b"2"),
    ]


@pytest.mark.parametrize(("value", "expected"), [("1" + "0" * 30, b"1000000"), ("-5", b"1"), ("x", b"1"), ("7", b"7")])
def test_the_count_that_goes_along_has_bounds(value, expected):
    """From one to a million, whatever the header says."""
    assert ERROR_TOPIC.replayed_headers(parked(errors=value))[-1] == ("laneway-errors", expected)


def test_headers_of_the_style_are_not_replayed():
    """What laneway added under another system's names goes, and only for handlers that have that style."""
    record = make_parked(headers=[("kafka_dlt-original-topic", b"x"), ("own", b"1")])
    spring = replace(ERROR_TOPIC, styles=frozenset({"spring"}))
    assert spring.replayed_headers(record) == [("own", b"1"), ("laneway-errors", b"1")]
    assert len(ERROR_TOPIC.replayed_headers(record)) == 3


def test_handlers_of_one_topic_share_its_error_topic():
    """There is one for each source topic, in the order of the handlers."""
    app = App("billing")
    for name, topic in (("a", "orders"), ("b", "orders"), ("c", "returns")):
        function = eval("lambda record: None")  # noqa: S307 - each its own function
        function.__name__ = name
        app.handler(Topic(topic))(function)
    cluster = load().cluster()
    topics = error_topics_of(app, lambda route: cluster)

    assert [(topic.name, topic.sources, topic.group) for topic in topics] == [
        ("orders.billing.error", ("orders",), "billing.errors"),
        ("returns.billing.error", ("returns",), "billing.errors"),
    ]


def test_a_shared_error_topic_has_several_sources():
    """Handlers that are configured to park in one place are one error topic."""
    app = App("billing")
    app.handler(Topic("orders"))(_charge)
    app.handler(Topic("returns"))(_refund)
    cluster = load().cluster()
    shared = app.configured({"_charge": {"error_topic": "bad"}, "_refund": {"error_topic": "bad"}}, {})

    assert [(t.name, t.sources) for t in error_topics_of(shared, lambda route: cluster)] == [
        ("bad", ("orders", "returns"))
    ]


def _charge(record): ...


def _refund(record): ...
