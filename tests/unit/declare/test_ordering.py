"""Orders other than the key's."""

from __future__ import annotations

import pickle

import pytest

from laneway import App, Topic, by_field, by_header
from laneway.errors import DeclarationError
from support.core import make_record, make_route


def test_a_header_orders_and_its_absence_does_not():
    """The last value counts; None means no order."""
    order = pickle.loads(pickle.dumps(by_header("c")))  # noqa: S301 - our own bytes
    assert order(Topic("t").record(b"", headers=[("c", b"1"), ("c", b"2")])) == b"2"
    assert order(Topic("t").record(b"")) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [(b'{"a": {"b": 1}}', b"1"), (b'{"a": {"b": "1"}}', b'"1"'), (b'{"a": 1}', None), (b"[]", None), (None, None)],
)
def test_a_field_orders(value, expected):
    """A number and a text are different; a field that is not there is no order."""
    order = pickle.loads(pickle.dumps(by_field("a.b")))  # noqa: S301 - our own bytes
    assert expected == order(Topic("t").record(value))


def test_a_record_whose_order_is_unknown_keeps_the_order_of_its_key():
    """Poison must not end the run; it fails when it is called."""
    route = make_route(lambda record: None, lanes=4, order_by=by_field("a"))
    assert route.order_value(make_record(key=b"k", raw=b"{")) == (b"k",)


def test_an_order_that_is_no_function_is_refused():
    """The message says what to give."""
    with pytest.raises(DeclarationError, match="by_header"):
        App("a").handler(Topic("t"), order_by="customer")(lambda record: None)
