"""What a configuration changes in an app before Spark starts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from laneway import App, Breaker, Retry, Topic
from laneway._declare.handler import check_together
from laneway._runtime.configure import configured, warn_unused_topics
from laneway._runtime.error_app import ErrorApp
from laneway.errors import DeclarationError, SettingsError
from laneway.settings import load


def route_with(breaker, **settings):
    app = App("billing")
    app.handler(Topic("orders"), breaker=breaker)(charge)
    overrides = {f"handlers.charge.{name}": value for name, value in settings.items()}
    return configured(app, load(overrides=overrides)).routes[0]


def charge(record):
    """Do nothing."""


def test_a_configuration_gives_a_handler_a_breaker():
    """One that has none gets one; one that has keeps what is not named."""
    made = route_with(None, breaker_failures=3).breaker
    changed = route_with(Breaker(failures=7, pause="9s"), breaker_pause="2s").breaker

    assert (made.failures, made.pause) == (3, Breaker().pause)
    assert changed.failures == 7
    assert changed == Breaker(failures=7, pause=timedelta(seconds=2))
    assert route_with(None).breaker is None


def test_a_topic_of_the_configuration_that_the_code_does_not_have_is_warned_about(caplog):
    """Not one that a handler reads, nor one that was made for messages."""
    app = App("billing")
    app.handler(Topic("orders"))(charge)
    Topic("receipts-of-orders")
    settings = load(
        overrides={f"topics.{name}.name": f"{name}-1" for name in ("orders", "receipts-of-orders", "oders")}
    )

    warn_unused_topics(app, settings)

    (told,) = caplog.messages
    assert told.startswith("topics.oders in the configuration: no handler of app 'billing' reads this topic")


def test_messages_go_where_the_configuration_says():
    """A topic on another cluster than the handler's has an address with its cluster."""
    app = App("billing")
    app.handler(Topic("orders"))(charge)
    given = {
        "cluster": "main",
        "clusters.main.brokers": "127.0.0.1:9092",
        "clusters.west.brokers": "127.0.0.1:9093",
        "topics.orders": {"name": "orders-1", "cluster": "west"},
        "topics.bills": {"name": "bills-1", "cluster": "west"},
        "topics.receipts": {"name": "receipts-1"},
    }

    route = configured(app, load(overrides=given)).routes[0]

    assert (route.topic.name, route.cluster) == ("orders-1", "west")
    assert route.addresses == {"orders": "orders-1", "bills": "bills-1", "receipts": "receipts-1@main"}


def test_retry_topics_of_one_name_on_two_clusters_are_two_topics():
    """Handlers of one topic name that read different clusters do not get each other's retries."""
    app = App("billing")
    app.handler(Topic("orders"), retry=Retry.steps("5s"))(charge)

    @app.handler(Topic("orders"), retry=Retry.steps("5s"))
    def archive(record): ...

    brokers = {"clusters.main.brokers": "127.0.0.1:9092", "clusters.west.brokers": "127.0.0.1:9093"}
    given = {"cluster": "main", **brokers}
    with pytest.raises(DeclarationError, match="have the same retry topic"):
        check_together(app.name, configured(app, load(overrides=given)).routes)
    check_together(app.name, configured(app, load(overrides={**given, "handlers.archive.cluster": "west"})).routes)


def test_an_error_run_asks_only_handlers_of_the_same_cluster():
    """A record of which it cannot be told whose it is belongs to the first handler that parks on its topic there."""
    app = App("billing")
    app.handler(Topic("orders"))(charge)

    @app.handler(Topic("orders"))
    def archive(record): ...

    brokers = {"clusters.main.brokers": "127.0.0.1:9092", "clusters.west.brokers": "127.0.0.1:9093"}
    settings = load(overrides={"cluster": "main", **brokers, "handlers.archive.cluster": "west"})

    runs = {route.name: route.rerun.handlers for route in ErrorApp(configured(app, settings), {}).routes}

    assert runs == {"charge": ("charge",), "archive": ("archive",)}


def test_a_raw_option_that_laneway_computes_is_refused():
    """With what to set instead: it would have no effect."""
    with pytest.raises(SettingsError, match=r"use handlers\.<name>\.buffer_records"):
        load(overrides={"clusters.main.client": {"queued.min.messages": 5}})
    for option in ("enable.partition.eof", "partitioner"):
        with pytest.raises(SettingsError, match="managed by laneway"):
            load(overrides={"clusters.main.client": {option: "x"}})
