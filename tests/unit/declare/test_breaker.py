"""When a handler is not called for a while."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest

from laneway import App, Breaker, Reject, Retry, RetryAfter, Topic
from laneway._declare.breaker import is_failure
from laneway.errors import CodecError, DeclarationError, HandlerTimeoutError


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"failures": 0}, "it must be 1 or more"),
        ({"pause": "0s"}, "it must be 10ms or more"),
        ({"pause": "9ms"}, "it must be 10ms or more"),
        ({"pause": "soon"}, "'soon' is not a duration"),
        ({"pause_max": "5"}, "'5' is not a duration"),
    ],
)
def test_what_cannot_work_is_refused(fields, text):
    """At the declaration, with what to write instead."""
    with pytest.raises(DeclarationError, match=text):
        Breaker(**fields)


def test_the_pause_doubles_up_to_its_limit():
    """However many probes have failed."""
    breaker = Breaker(pause="5s", pause_max="1m")

    pauses = [breaker.pause_after(probes).total_seconds() for probes in (0, 1, 2, 3, 4, 5, 2000)]

    assert pauses == [5, 10, 20, 40, 60, 60, 60]


def test_a_limit_below_the_pause_is_the_pause():
    """A long pause alone raises the limit with it."""
    assert Breaker(pause="2m").pause_after(7) == timedelta(minutes=2)


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (Reject(), False),
        (CodecError("no JSON"), False),
        (ConnectionError(), True),
        (RetryAfter("1s"), True),
        (HandlerTimeoutError("too slow"), True),
        (ValueError("of a codec that asks a registry"), True),
    ],
)
def test_what_counts_against_the_handler(error, counts):
    """Not what is the record's own fault."""
    assert is_failure(error, Retry()) is counts


def test_what_is_not_retriable_does_not_count_against_the_handler():
    """It is the record's own fault, as with `Reject`."""
    retry = Retry(retriable=ConnectionError)

    assert [is_failure(error, retry) for error in (ValueError(), ConnectionResetError(), RetryAfter())] == [
        False,
        True,
        True,
    ]


def test_a_breaker_travels():
    """It goes to other processes with the app."""
    breaker = Breaker(3, "1s", "10s")

    again = pickle.loads(pickle.dumps(breaker))  # noqa: S301 - our own bytes

    assert again == breaker
    assert again.first == timedelta(seconds=1)


@pytest.mark.parametrize("kind", ["handler", "batch_handler", "unique_handler", "columnar_handler"])
def test_every_kind_of_handler_may_have_one(kind):
    """And has none unless asked for."""
    app, breaker = App("billing"), Breaker(3)
    size = {} if kind == "handler" else {"size": 10}

    @getattr(app, kind)(Topic("orders"), breaker=breaker, **size)
    def guarded(_): ...

    @getattr(app, kind)(Topic("orders"), **size)
    def plain(_): ...

    assert [route.breaker for route in app.routes] == [breaker, None]
