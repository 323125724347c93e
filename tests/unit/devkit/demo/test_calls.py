"""The demo's handlers write down what they did."""

from __future__ import annotations

import asyncio

import pytest

from laneway import Reject
from laneway.devkit.demo import _calls
from laneway.devkit.demo._app import Order, charge, orders


@pytest.fixture(name="calls")
def _calls_of(tmp_path, monkeypatch):
    monkeypatch.setenv(_calls.VARIABLE, str(tmp_path))
    _calls._recorders.cache_clear()
    yield _calls.Calls(tmp_path)
    _calls._recorders.cache_clear()


def test_a_call_that_returned_is_counted_without_being_read(calls):
    """The size of an event is the one that the count divides by."""
    for offset in range(3):
        asyncio.run(charge(orders.record(None, key="c", offset=offset)))

    assert (calls.counts().handled, len(calls.succeeded), calls.failed) == (3, 3, [])


def test_a_call_that_raised_is_kept_apart(calls):
    """A rejected order is a failed call and not a handled one."""
    with pytest.raises(Reject):
        asyncio.run(charge(orders.record(Order(1, "c", -5), key="c")))

    assert (calls.counts().handled, len(calls.failed)) == (0, 1)


def test_an_unstable_card_fails_at_first_and_succeeds_when_tried_again(calls):
    """The second attempt returns the receipt."""
    record = orders.record(Order(1, "c", 5, "unstable"), key="c")
    with pytest.raises(ConnectionError):
        asyncio.run(charge(record))
    record.attempt = 2

    message = asyncio.run(charge(record))

    assert (message.value.number, [event.attempt for event in calls.succeeded]) == (1, [2])


def test_without_the_variable_nothing_is_written(monkeypatch):
    """The app runs anywhere."""
    monkeypatch.delenv(_calls.VARIABLE, raising=False)
    _calls._recorders.cache_clear()

    assert asyncio.run(charge(orders.record(None, key="c"))).value is None
