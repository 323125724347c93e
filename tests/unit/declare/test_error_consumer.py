"""The options of an error consumer, and the app that is derived for its runs."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import timedelta

import pytest

from laneway import App, ErrorConsumer, GroupedBy, Json, Message, Retry, Topic
from laneway._runtime.error_app import ErrorApp
from laneway.errors import DeclarationError


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"cron": "every day"}, "five: minute, hour"),
        ({"cron": "61 * * * *"}, "from 0 to 59"),
        ({"cron": 15}, "is not a schedule"),
        ({"max_errors": 0}, "1 or more, or None"),
        ({"max_errors": -1}, "1 or more, or None"),
        ({"max_errors": "5"}, "1 or more, or None"),
        ({"stop_when_new": 5}, "has no unit"),
        ({"stop_when_new": "-5m"}, "not a duration"),
        ({"stop_when_idle": "soon"}, "not a duration"),
        ({"action": "drop"}, "use 'handle' or 'replay'"),
        ({"action": None}, "use 'handle' or 'replay'"),
    ],
)
def test_what_cannot_work_is_refused(fields, part):
    """At once, with what to write instead."""
    with pytest.raises(DeclarationError, match=part):
        ErrorConsumer(**fields)


def test_an_app_takes_only_an_error_consumer():
    """A schedule alone is a likely slip."""
    with pytest.raises(DeclarationError, match=r"give ErrorConsumer\(cron="):
        App("billing", errors="*/15 * * * *")


def test_it_is_a_value():
    """Its defaults are those of the page, and it travels with its app."""
    plain = ErrorConsumer()
    assert (plain.cron, plain.max_errors, plain.new, plain.action) == (None, 5, timedelta(minutes=5), "handle")
    every = ErrorConsumer(cron="*/5 * * * *", max_errors=None)
    again = pickle.loads(pickle.dumps(App("billing", errors=every))).errors  # noqa: S301 - our own
    assert again == every
    assert again.due == every.schedule
    assert replace(every, enabled=False).due is None
    assert plain.due is None


def test_an_error_handler_needs_a_handler():
    """One that is not there is named, with those that are."""
    app = App("billing")
    app.handler(Topic("orders"))(charge)
    with pytest.raises(DeclarationError, match=r"no handler 'refund'; it has: charge"):
        app.error_handler(of="refund")(charge)
    with pytest.raises(DeclarationError, match="is not a function"):
        app.error_handler(of=charge)("charge_again")


def charge(record):
    return record


def mend(record):
    return record


def derived(errors=None, **partitions):
    """An app of all kinds, and the one that runs over its error topics."""
    app = App("billing", errors=errors, error_topic="{topic}.failed")
    orders = Topic("orders", value=Json(dict))
    retry = Retry.steps("1h", mode="ordered", attempts=3, backoff="7s")
    app.handler(orders, lanes=8, retry=retry, timeout="5s", delay="1h")(charge)
    app.batch_handler(orders, size=100, bisect=True)(lambda batch: None)
    app.unique_handler(Topic("stock"), size=100)(count)
    app.custom_handler(Topic("stock"), size=100, kind=GroupedBy("key"))(group)
    app.columnar_handler(Topic("clicks"))(rows)
    app.error_handler(of="count")(mend)
    app.setup(lambda: None)
    return app, {route.name: route for route in ErrorApp(app, partitions).routes}


def count(batch):
    return batch


def group(batch):
    return batch


def rows(table):
    return table.num_rows


def test_each_handler_reads_where_it_parks():
    """One record at a call, its own codec and calls in place, no steps and no delay."""
    app, routes = derived(ErrorConsumer(max_errors=7))
    assert ErrorApp(app, {}).name == "billing.errors"
    assert ErrorApp(app, {}).setups == ()
    assert len(ErrorApp(app, {}, hooks=True).setups) == 1
    own = routes["charge"]
    assert (own.topic, own.source) == (Topic("orders.failed", value=Json(dict)), "orders")
    assert own.error_topic_of("anything") == "orders.failed"
    assert (own.retry, own.delay, own.step) == (Retry(attempts=3, backoff="7s"), timedelta(0), 0)
    assert (own.lanes, own.timeout, own.function) == (8, timedelta(seconds=5), charge)
    assert own.rerun.handlers == ("charge", "<lambda>")
    assert (own.rerun.app, own.rerun.handler, own.rerun.max_errors) == ("billing", "charge", 7)
    kinds = {name: (route.kind, route.size, route.bisect) for name, route in routes.items()}
    assert kinds == {
        "charge": ("single", 1, False),
        "<lambda>": ("batch", 1, False),
        "count": ("batch", 1, False),
        "group": ("custom", 1, False),
        "rows": ("single", 1, False),
    }
    assert routes["count"].function is mend


def test_a_name_of_full_length_has_an_error_app():
    """Its group is longer than an app's name may be."""
    app = App("a" * 200)
    app.handler(Topic("orders"))(charge)
    assert ErrorApp(app, {}).name == "a" * 200 + ".errors"


def test_a_replay_needs_no_header_to_be_true():
    """The topic is the handler's own; the partition is the old one only when the topic has it."""
    _, routes = derived(ErrorConsumer(action="replay"), orders=3)
    assert {route.kind for route in routes.values()} == {"single"}
    replay, codec = routes["charge"].function, routes["charge"].topic.value
    assert codec.decode(b"\xff") == b"\xff"
    record = Topic("orders.failed").record(b"v", key="k", headers=[("laneway-origin-topic", b"secrets")], timestamp=5)
    from laneway._declare.record import Origin

    for partition, expected in ((2, 2), (3, None), (2**31 - 1, None)):
        message = replay(record.replaced(origin=Origin("orders", partition, 0)))
        assert message == Message(Topic("orders"), b"v", b"k", [("laneway-errors", b"1")], expected, 5)
    assert replay(record).partition is None


def test_a_columnar_handler_gets_a_table_of_one_row():
    """With every column, and what it returns is no message."""
    seen = []
    app = App("billing")
    app.columnar_handler(Topic("clicks"))(seen.append)
    (route,) = ErrorApp(app, {}).routes
    record = Topic("clicks.billing.error").record(b"v", key="k", headers=[("a", None)], partition=1, offset=2)
    assert route.function(record) is None
    (row,) = seen[0].to_pylist()
    assert (row["topic"], row["partition"], row["offset"]) == ("clicks.billing.error", 1, 2)
    assert (row["key"], row["value"], row["headers"]) == (b"k", b"v", [{"name": "a", "value": None}])
