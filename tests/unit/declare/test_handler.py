"""One handler and the topics beside its source: their names, and the route that runs each step."""

from __future__ import annotations

from datetime import timedelta

import pytest

from laneway import Json, Retry, Topic
from laneway.errors import DeclarationError
from support.core import make_record, make_route

LADDER = Retry.steps("5s", "1m")
PARKING = Retry.steps("5s", "1m", mode="ordered")


def again(record):
    """Stands in for the handler on some step."""


def test_topics_are_named_after_source_and_app():
    """Two apps on one topic have their own ladders."""
    route = make_route(retry=LADDER)

    assert route.error_topic_of("billing") == "orders.billing.error"
    assert route.retry_topics_of("billing") == ["orders.billing.retry.1", "orders.billing.retry.2"]
    assert route.retry_topic_of("shipping", 2) == "orders.shipping.retry.2"


@pytest.mark.parametrize("retry", [Retry(), Retry(3), Retry.steps("5s", "1m", mode="blocking")])
def test_without_hops_there_are_no_retry_topics(retry):
    """Nothing is created that would never be read."""
    assert make_route(retry=retry).retry_topics_of("billing") == []


def test_patterns_may_be_given():
    """The handler's name is known too."""
    route = make_route(retry=LADDER, error_topic="{app}-{handler}-dlt", retry_topic="{topic}-retry-{step}")

    assert route.error_topic_of("billing") == "billing-handle-dlt"
    assert route.retry_topics_of("billing") == ["orders-retry-1", "orders-retry-2"]


def test_a_step_reads_its_topic_after_its_delay():
    """All else is as for the source topic: codec, order, lanes, policy."""
    codec = Json()
    route = make_route(topic=Topic("orders", codec), retry=LADDER, lanes=4, delay=timedelta(hours=1))
    step = route.at_step("billing", 2)

    assert step.topic == Topic("orders.billing.retry.2", codec)
    assert (step.step, step.source, step.delay) == (2, "orders", timedelta(minutes=1))
    assert (step.name, step.lanes, step.retry, step.function) == (route.name, 4, LADDER, route.function)


def test_step_0_is_the_route_itself():
    """Its delay is the handler's own."""
    route = make_route(retry=LADDER, delay=timedelta(hours=1))

    assert route.at_step("billing", 0) is route
    assert (route.step, route.source) == (0, "")


def test_names_are_those_of_the_source_on_every_step():
    """Else a record would climb a ladder of its own on each step."""
    route = make_route(retry=LADDER)
    step = route.at_step("billing", 1)

    assert step.error_topic_of("billing") == "orders.billing.error"
    assert step.retry_topics_of("billing") == route.retry_topics_of("billing")
    assert step.at_step("billing", 2) == route.at_step("billing", 2)


def test_a_function_may_stand_in_on_a_step():
    """On the others the handler itself is called."""
    route = make_route(retry=LADDER, step_functions={2: again})

    assert route.at_step("billing", 1).function is route.function
    assert route.at_step("billing", 2).function is again


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"retry": PARKING, "lanes": 4}, True),
        ({"retry": PARKING, "lanes": 1, "order": "none"}, True),
        ({"retry": PARKING, "lanes": 4, "order": "partition"}, True),
        ({"retry": PARKING, "kind": "batch"}, True),
        ({"retry": PARKING, "lanes": 4, "order": "none"}, False),
        ({"retry": LADDER, "lanes": 4}, False),
        ({"retry": Retry.steps("5s", mode="blocking"), "lanes": 4}, False),
        ({"retry": Retry(mode="ordered"), "lanes": 4}, False),
    ],
)
def test_records_queue_behind_others_only_in_ordered_mode(fields, expected):
    """And only where there is an order to keep and a topic to wait on."""
    assert expected == make_route(**fields).parks_behind


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"lanes": 4}, b"k"),
        ({"lanes": 1}, 3),
        ({"lanes": 4, "order": "partition"}, 3),
        ({"lanes": 4, "order": "none"}, None),
        ({"lanes": 1, "order": "none"}, 3),
        ({"lanes": 4, "order_by": lambda record: record.offset % 2}, 1),
        ({"lanes": 4, "order_by": lambda record: None}, None),
        ({"lanes": 4, "order_by": lambda record: record.nothing}, (b"k",)),
        ({"kind": "batch"}, b"k"),
    ],
)
def test_what_orders_a_record_is_the_same_on_every_step(fields, expected):
    """A copy lies in the same partition and has the same key, so it is found where the record was."""
    route = make_route(retry=PARKING, **fields)

    assert expected == route.lane_key(make_record(7, partition=3))
    step = route.at_step("billing", 2)
    assert expected == step.lane_key(make_record(99, partition=3, topic="orders.billing.retry.2"))


def test_a_columnar_handler_cannot_queue_single_records():
    """Its tables have no keys that could wait; a ladder of topics is fine."""
    with pytest.raises(DeclarationError, match=r"mode='ordered' follows single records.*use mode='unordered'"):
        make_route(kind="columnar").with_changes(retry=PARKING)

    assert make_route(kind="columnar").with_changes(retry=LADDER).retry.hops == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"error_topic": "orders"}, "the error topic is also the source topic, so a failing record would loop forever"),
        (
            {"error_topic": "{topic}"},
            "the error topic is also the source topic, so a failing record would loop forever",
        ),
        ({"retry_topic": "{topic}.retry"}, "two of its retry and error topics have the same name"),
        ({"retry_topic": "{topic}.retry"}, "a pattern of several retry topics holds {step}"),
        ({"retry_topic": "{topic}.{step}", "error_topic": "{topic}.2"}, "(orders.1, orders.2, orders.2)"),
        ({"retry_topic": "{topic}{stop}"}, "there is no {stop}"),
        ({"error_topic": "{topic"}, "is not a pattern of a topic's name"),
    ],
)
def test_names_that_clash_are_refused(fields, message):
    """The message says which handler, and what would come of it."""
    with pytest.raises(DeclarationError) as caught:
        make_route().with_changes(retry=LADDER, **fields)

    assert message in str(caught.value)


def test_one_retry_topic_needs_no_number():
    """A pattern without {step} is enough for a single step."""
    route = make_route().with_changes(retry=Retry.steps("5s"), retry_topic="{topic}.later")

    assert route.retry_topics_of("billing") == ["orders.later"]


def test_a_pattern_is_not_looked_at_without_a_ladder():
    """It may be the same for all handlers of an app, also for those that have none."""
    assert make_route().with_changes(retry_topic="{topic}.retry").retry_topics_of("billing") == []
