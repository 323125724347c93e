"""What a configuration changes in an app before Spark starts."""

from __future__ import annotations

from datetime import timedelta

from laneway import App, Breaker, Topic
from laneway.engines._configured import configured
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
