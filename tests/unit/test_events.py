"""The list of events is a contract, and subscribers get them."""

from __future__ import annotations

import logging
import pickle
import threading
from datetime import timedelta
from typing import get_args

import msgspec
import pytest
from pyspark import cloudpickle

from laneway import App, Topic, events
from laneway.errors import DeclarationError
from laneway.events import (
    EVENTS,
    BatchHandled,
    BreakerClosed,
    BreakerOpened,
    CopyFailed,
    Event,
    InterceptorFailed,
    OffsetsCommitted,
    PartitionsAssigned,
    PartitionsRevoked,
    RecordDeduplicated,
    RecordDeferred,
    RecordDropped,
    RecordEvent,
    RecordHandled,
    RecordParked,
    RecordRetried,
    RecordSkipped,
    StateChanged,
)
from laneway.observe import Tally

PLACE = ("charge", "orders", 3, 7, 2)
ONE_OF_EACH = (
    RecordHandled(*PLACE),
    RecordSkipped(*PLACE, "no need"),
    RecordRetried(*PLACE, "OSError: away", timedelta(seconds=1.5)),
    RecordDeferred(*PLACE, "OSError: away", 1),
    RecordParked(*PLACE, "OSError: away", "orders.error"),
    RecordDropped(*PLACE, "OSError: away"),
    CopyFailed("charge", "orders.error", "not enough replicas", 3),
    InterceptorFailed("charge", "mask", "orders", 3, 7, "KeyError: 'card'"),
    BatchHandled("orders", 4, Tally(read=2, handled=1, parked=1, events=[RecordHandled(*PLACE)])),
    BreakerOpened("charge", 5, "OSError: away", timedelta(seconds=30)),
    BreakerClosed("charge", timedelta(minutes=2)),
    StateChanged("initialising", "waiting for Kafka"),
    PartitionsAssigned("orders", (0, 3)),
    PartitionsRevoked("orders", (3,), is_lost=True),
    OffsetsCommitted("orders", ((0, 17),)),
    RecordDeduplicated(*PLACE),
)
PARKED = next(event for event in ONE_OF_EACH if isinstance(event, RecordParked))
STATE = next(event for event in ONE_OF_EACH if isinstance(event, StateChanged))
CONTRACT = {
    "RecordHandled": ("handler", "topic", "partition", "offset", "attempt"),
    "RecordSkipped": ("handler", "topic", "partition", "offset", "attempt", "error"),
    "RecordDeduplicated": ("handler", "topic", "partition", "offset", "attempt"),
    "RecordRetried": ("handler", "topic", "partition", "offset", "attempt", "error", "pause"),
    "RecordDeferred": ("handler", "topic", "partition", "offset", "attempt", "error", "step"),
    "RecordParked": ("handler", "topic", "partition", "offset", "attempt", "error", "error_topic"),
    "RecordDropped": ("handler", "topic", "partition", "offset", "attempt", "error"),
    "CopyFailed": ("handler", "topic", "error", "tries"),
    "InterceptorFailed": ("handler", "interceptor", "topic", "partition", "offset", "error"),
    "BatchHandled": ("topic", "batch", "tally"),
    "BreakerOpened": ("handler", "failures", "error", "pause"),
    "BreakerClosed": ("handler", "open_for"),
    "StateChanged": ("state", "detail"),
    "PartitionsAssigned": ("topic", "partitions"),
    "PartitionsRevoked": ("topic", "partitions", "is_lost"),
    "OffsetsCommitted": ("topic", "offsets"),
}
"""What users subscribe to. A name or field that is taken away, or put before others, breaks them."""


def test_the_list_of_events_is_frozen():
    """Names and fields are what they were when they were published."""
    assert {kind.__name__: kind.__struct_fields__ for kind in EVENTS} == CONTRACT


def test_every_event_type_is_in_the_list():
    """What the module holds, what a tally takes and what can be subscribed to are the same."""
    held = {value for value in vars(events).values() if isinstance(value, type) and issubclass(value, msgspec.Struct)}

    assert set(EVENTS) == held - {RecordEvent}
    assert set(EVENTS) == set(get_args(Event))
    assert {kind.__name__ for kind in EVENTS} <= set(events.__all__)
    assert [type(event) for event in ONE_OF_EACH] == list(EVENTS)


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: type(event).__name__)
def test_an_event_is_documented_frozen_and_travels(event):
    """It has a docstring and a line of text, cannot be changed, and survives pickling and the bytes of a tally."""
    assert type(event).__doc__
    assert "\n" not in str(event)
    assert str(event) != repr(event)
    with pytest.raises(AttributeError):
        setattr(event, type(event).__struct_fields__[0], "other")
    assert pickle.loads(pickle.dumps(event)) == event  # noqa: S301 - our own bytes
    assert Tally.decode(Tally(events=[event]).encode()).events == [event]


def test_a_subscriber_gets_its_kinds_in_order():
    """One kind or several, each call with one event."""
    app, parked, both = App("billing"), [], []
    assert app.on(RecordParked)(parked.append) == parked.append
    app.on(RecordParked, StateChanged)(both.append)
    app.tell(*ONE_OF_EACH)

    assert parked == [PARKED]
    assert both == [PARKED, STATE]


def test_a_subscriber_that_raises_is_one_log_line(caplog):
    """The others get the event, whatever its error's text is."""
    app, told = App("billing"), []

    @app.on(RecordParked)
    def broken(event):
        raise ValueError("two\nlines")

    app.on(RecordParked)(told.append)
    app.tell(PARKED)

    assert told == [PARKED]
    line = "subscriber 'broken' failed on RecordParked: ValueError: two lines"
    assert caplog.record_tuples == [("laneway.events", logging.ERROR, line)]


async def _later(event):
    """A subscriber that could never be awaited."""


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda app: app.on()(print), "names no event"),
        (lambda app: app.on(print)(print), "RecordParked"),
        (lambda app: app.on(RecordEvent)(print), "not an event"),
        (lambda app: app.on(RecordParked)("print"), "not a function"),
        (lambda app: app.on(RecordParked)(_later), "is async"),
    ],
)
def test_what_is_no_event_is_refused(declare, says):
    """With the reason and, where that helps, the events there are."""
    with pytest.raises(DeclarationError, match=says):
        declare(App("billing"))


def test_subscribers_stay_when_the_app_travels():
    """One that holds a lock does not keep the app from being pickled, but the workers know what is wanted."""
    app, lock = App("billing"), threading.Lock()

    @app.handler(Topic("orders"))
    def charge(record):
        return None

    @app.on(RecordHandled)
    def note(event):
        with lock:
            raise AssertionError("called in a worker")

    copy = cloudpickle.loads(cloudpickle.dumps(app))
    copy.tell(RecordHandled(*PLACE))

    assert copy.routes[0].wanted == app.routes[0].wanted == {RecordHandled}
    assert app.wants(RecordHandled)
    assert not app.wants(RecordSkipped)


def test_a_configured_app_has_the_same_subscribers():
    """Also those that are declared after it was configured."""
    app, told = App("billing"), []
    app.handler(Topic("orders"))(test_a_configured_app_has_the_same_subscribers)
    copy = app.configured({}, {})
    app.on(StateChanged)(told.append)
    copy.tell(StateChanged("consuming"))

    assert told == [StateChanged("consuming")]


def test_a_subscriber_may_make_an_event_itself():
    """One that pauses the engine gets the event of the pause, on the same thread, without waiting for itself."""
    app, told = App("billing"), []

    @app.on(RecordParked, StateChanged)
    def note(event):
        told.append(type(event).__name__)
        if isinstance(event, RecordParked):
            app.tell(StateChanged("paused"))

    app.tell(PARKED)
    assert told == ["RecordParked", "StateChanged"]


def test_two_threads_never_tell_at_once():
    """Batches of several topics end on threads of their own; a subscriber needs no lock."""
    app, inside, most, crowded = App("billing"), [], [], threading.Event()

    @app.on(StateChanged)
    def note(event):
        inside.append(event)
        most.append(len(inside))
        if len(inside) > 1:
            crowded.set()
        crowded.wait(0.1)  # long enough for the others to come in, if they could
        inside.pop()

    threads = [threading.Thread(target=app.tell, args=(StateChanged(str(number)),)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)

    assert most == [1, 1, 1]
