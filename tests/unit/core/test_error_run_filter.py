"""Which parked records a run takes up, and what it believes of their headers."""

from __future__ import annotations

import pytest

from laneway._core.error_run_filter import ErrorRunFilter, is_new
from laneway._core.headers import Failure, parked_headers, returned_headers
from support.core import make_record

NOW = 1_700_000_000_000
HOUR = 3_600_000


def parked(handler="charge", app="billing", times=1, at=NOW, **others):
    """A record of an error topic; *others* replace headers, or with None leave them out."""
    record = make_record(headers=[("own", b"1")], topic="orders")
    record.attempt = 4
    for _ in range(times):
        headers = parked_headers(record, Failure("E", "no", ""), app=app, handler=handler, now=at)
        record.headers = headers
    changes = {f"laneway-{name.replace('_', '-')}": value for name, value in others.items()}
    headers = [(name, changes.get(name, value)) for name, value in headers]
    headers += [(name, value) for name, value in changes.items() if name not in dict(headers)]
    return make_record(topic="orders.error", headers=[pair for pair in headers if pair[1] is not None])


def rerun(*handlers, handler="charge", max_errors=None):
    return ErrorRunFilter("billing", handler, handlers or ("charge",), max_errors)


@pytest.mark.parametrize(
    ("record", "charge", "count", "refusal"),
    [
        (parked(), True, False, None),
        (parked(handler="count"), False, True, None),
        (parked(handler="mallory"), True, False, "its headers do not tell which handler parked it: charge or count"),
        (parked(handler="x", app="shop"), True, False, "another app parked it"),
        (parked(handler="count", app="shop"), False, True, "another app parked it"),
        (parked(reduced=b"value"), True, False, "its value was too large to be copied"),
        (parked(reduced=b"trace"), True, False, None),
        (parked(times=5), True, False, "it has been parked 5 times"),
        (parked(times=4), True, False, None),
    ],
)
def test_one_handler_answers_for_each_record(record, charge, count, refusal):
    """The one that the header names if it is one of those, else the first; never both, never none."""
    both = [rerun("charge", "count", handler=name, max_errors=5) for name in ("charge", "count")]
    assert [each.takes(record) for each in both] == [charge, count]
    (answers,) = [each for each in both if each.takes(record)]
    assert answers.refusal(record) == refusal


def test_an_only_handler_answers_for_everything():
    """There is nobody else whose records they could be."""
    for record in (parked(), parked(handler="mallory"), make_record(topic="orders.error")):
        assert rerun().takes(record)
        assert rerun().refusal(record) is None


def test_a_record_gets_back_what_it_had():
    """Origin, time and calls; everything is as laneway writes it."""
    record = parked(times=2)
    assert rerun().recall(record, "orders", NOW)
    assert (record.origin, record.before, record.attempt) == (("orders", 0, 0), 4, 5)


@pytest.mark.parametrize(
    "changes",
    [
        {"attempts": b"9" * 30},
        {"attempts": None},
        {"origin_topic": b"elsewhere"},
        {"origin_offset": b"-1"},
        {"origin_timestamp": b"x"},
        {"handler": "mallory"},
        {"handler": None},
        {"errors": b"0"},
        {"errors": None},
        {"parked_at": None},
        {"parked_at": b"%d" % (NOW + HOUR + 1)},
    ],
)
def test_what_cannot_be_true_is_distrusted(changes):
    """And a count of calls that cannot be believed is none, not a million."""
    record = parked(**changes)
    assert not rerun().recall(record, "orders", NOW)
    assert record.attempt in (1, 5)


@pytest.mark.parametrize(
    ("at", "within", "expected"),
    [
        (NOW - 300_000, 300_000, False),
        (NOW - 299_999, 300_000, True),
        (NOW, 300_000, True),
        (NOW + HOUR, 300_000, True),
        (NOW + HOUR + 1, 300_000, False),
        (2**63 - 1, 300_000, False),
        (None, 300_000, False),
        (0, 300_000, False),
        (NOW, 0, False),
        (NOW + 1, 0, False),
    ],
)
def test_new_is_what_was_parked_shortly_before_the_run(at, within, expected):
    """A clock may be an hour ahead; later times would hold up their partition, so they count as old."""
    assert is_new(at, NOW, within) == expected


def test_a_record_goes_back_with_its_own_headers_and_one_of_ours():
    """All others of ours, and those of a style, stay behind."""
    record = make_record(headers=[("a", b"\xff"), ("kafka_dlt-x", b"1"), ("a", None), ("laneway-errors", b"3")])
    assert returned_headers(record, "spring") == [("a", b"\xff"), ("a", None), ("laneway-errors", b"3")]
    assert returned_headers(make_record(headers=[("kafka_dlt-x", b"1")])) == [
        ("kafka_dlt-x", b"1"),
        ("laneway-errors", b"1"),
    ]
