"""What a record carries from topic to topic, and what is believed of it."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from laneway import Topic
from laneway._core.headers import (
    ERROR_HEADERS,
    Failure,
    deferred_headers,
    errors_of,
    origin_of,
    parked_at,
    parked_headers,
    read_from,
    recall,
    returned_headers,
)
from laneway._declare.record import Origin
from support.core import make_record

FAILURE = Failure("ValueError", "bad", "trace")
CONTROL = (*ERROR_HEADERS, "laneway-step", "laneway-due", "laneway-reduced", "laneway-of-tomorrow")
OWN = st.lists(
    st.tuples(
        st.text(max_size=8).filter(lambda name: not name.startswith("laneway-")),
        st.one_of(st.none(), st.binary(max_size=20)),
    ),
    max_size=6,
)
FORGED = st.lists(st.tuples(st.sampled_from(CONTROL), st.one_of(st.none(), st.binary(max_size=30))), max_size=8)
NUMBERS = ("partition", "offset", "timestamp")


def deferred(record, step=1, failure=FAILURE, due=99):
    """The record that is read from the retry topic of a step, before anything is recalled."""
    headers = deferred_headers(record, failure, app="billing", handler="charge", step=step, due=due)
    return make_record(1000 + step, record.key, record.raw, 5, headers=headers, timestamp=7, topic=f"retry.{step}")


def parked(record, style="laneway"):
    headers = parked_headers(record, FAILURE, app="billing", handler="charge", now=1, style=style)
    return make_record(3, record.key, record.raw, 2, headers=headers, timestamp=record.timestamp, topic="errors")


def own(headers):
    return [header for header in headers if not header[0].startswith("laneway-")]


def test_a_deferred_copy_tells_all_that_is_needed_later():
    """Each header has its value, as text; the trace waits for the error topic."""
    record = make_record(42, partition=7, timestamp=99)
    record.attempt = 3

    assert deferred(record, step=2, due=1234).headers == [
        ("laneway-origin-topic", b"orders"),
        ("laneway-origin-partition", b"7"),
        ("laneway-attempts", b"3"),
        ("laneway-app", b"billing"),
        ("laneway-handler", b"charge"),
        ("laneway-step", b"2"),
        ("laneway-origin-offset", b"42"),
        ("laneway-origin-timestamp", b"99"),
        ("laneway-due", b"1234"),
        ("laneway-error-type", b"ValueError"),
        ("laneway-error-message", b"bad"),
    ]


def test_a_follower_has_no_error_and_no_call():
    """It was not called where it is copied from."""
    record = make_record()
    record.before, record.attempt = 4, 5
    headers = dict(deferred(record, failure=None).headers)

    assert headers["laneway-attempts"] == b"4"
    assert not any(name.startswith("laneway-error") for name in headers)


def test_a_record_is_recalled_as_it_was():
    """Origin, timestamp and calls are those of the source topic; where it was read stays where it was read."""
    record = make_record(42, partition=7, timestamp=99)
    record.attempt = 3
    copy = deferred(record)

    assert recall(copy, "orders", 3)
    assert (copy.origin, copy.timestamp, copy.before, copy.attempt) == (Origin("orders", 7, 42), 99, 3, 4)
    assert (copy.topic, copy.partition, copy.offset) == ("retry.1", 5, 1001)


@given(
    OWN,
    FORGED,
    st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=6),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 253_402_300_799_999),
)
def test_any_number_of_hops_loses_and_adds_nothing(headers, forged, hops, partition, offset, timestamp):
    """Own headers, origin, timestamp and calls survive; what a producer wrote in our name is not believed."""
    record = make_record(offset, b"", None, partition, headers=[*headers, *forged], timestamp=timestamp)
    calls, times, names = 0, errors_of(record), None
    for step, (tries, has_failed) in enumerate(hops, 1):
        record.attempt += tries - 1
        calls += tries if has_failed else tries - 1
        copy = deferred(record, step, FAILURE if has_failed else None)
        assert own(copy.headers) == headers
        assert len({name for name, _ in copy.headers[len(headers) :]}) == len(copy.headers) - len(headers)
        assert recall(copy, "orders", 1000)
        assert (copy.origin, copy.timestamp) == (Origin("orders", partition, offset), timestamp)
        assert (copy.before, copy.attempt) == (calls, calls + 1)
        assert errors_of(copy) == times
        record = copy
    for _ in range(2):
        copy = parked(record)
        times += 1
        assert own(copy.headers) == headers
        assert tuple(name for name, _ in copy.headers[len(headers) :]) == ERROR_HEADERS
        assert names in (None, [name for name, _ in copy.headers])
        names = [name for name, _ in copy.headers]
        assert recall(copy, "orders", 1000)
        assert (copy.origin, copy.timestamp) == (Origin("orders", partition, offset), timestamp)
        assert (copy.before, errors_of(copy)) == (calls + 1, times)
        copy.attempt = record.attempt
        record = copy


LIES = [
    None,
    b"",
    b"-1",
    b"+1",
    b"1.0",
    b" 1",
    b"1 ",
    b"0x10",
    b"1_0",
    b"1e3",
    b"NaN",
    b"inf",
    b"\xff",
    b"\x00",
    b"1" * 21,
    b"1" * 2**20,
    str(10**30).encode(),
    "²".encode(),
    "٣".encode(),
    "१".encode(),
    b"\xb2",
]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: repr(lie)[:12])
@pytest.mark.parametrize("name", ["partition", "offset", "timestamp", "attempts", "errors", "parked-at"])
def test_a_header_that_is_no_number_is_left_out(name, lie):
    """Whatever stands there, nothing is raised, the other headers count, and the record is known as odd."""
    full = f"laneway-{name}" if name in ("attempts", "errors", "parked-at") else f"laneway-origin-{name}"
    copy = parked(make_record(42, partition=7, timestamp=99))
    copy.headers = [(found, lie if found == full else value) for found, value in copy.headers]
    copy.timestamp = 5
    is_trusted = recall(copy, "orders", 3)

    if (name, lie) == ("timestamp", b"-1"):  # how Kafka writes that a record has no time
        assert (is_trusted, copy.timestamp) == (True, -1)
        return
    assert is_trusted == (name in ("errors", "parked-at"))
    assert (copy.origin is None) == (name in ("partition", "offset"))
    assert copy.timestamp == (5 if name in NUMBERS else 99)
    assert copy.before == (3 if name == "attempts" else 1)
    assert errors_of(copy) == (0 if name == "errors" else 1)
    assert parked_at(copy) == (None if name == "parked-at" else 1)


@given(st.lists(st.tuples(st.sampled_from(CONTROL), st.one_of(st.none(), st.binary(), st.text().map(str.encode),
       st.integers().map(lambda number: str(number).encode()))), max_size=20), st.integers(0, 60))  # fmt: skip
def test_headers_from_outside_stay_in_bounds(headers, most):
    """Nothing is raised, no number is out of bounds, and no record claims to come from another topic."""
    record = make_record(1, headers=headers, timestamp=5, topic="retry.1")
    recall(record, "orders", most)

    assert 0 <= record.before <= most
    assert record.attempt == record.before + 1
    assert 0 <= record.timestamp < 2**63
    assert 0 <= errors_of(record) <= 1_000_000
    if record.origin is not None:
        assert record.origin.topic == "orders"
        assert 0 <= record.origin.partition < 2**31
        assert 0 <= record.origin.offset < 2**63
    place = read_from(record)
    assert place is None or (place[1] >= 0 and place[2] >= 0)
    copy = deferred(record)
    assert len(copy.headers) <= 13
    assert len(parked(copy).headers) == len(ERROR_HEADERS)


@pytest.mark.parametrize("name", ["laneway-origin-partition", "laneway-origin-offset", "laneway-attempts"])
def test_a_header_that_stands_twice_is_not_believed(name):
    """It cannot be told which of them is ours."""
    copy = deferred(make_record(42))
    copy.headers = [*copy.headers, (name, b"0")]

    assert not recall(copy, "orders", 3)


@pytest.mark.parametrize(
    ("name", "most"),
    [("laneway-origin-partition", 2**31 - 1), ("laneway-origin-offset", 2**63 - 1), ("laneway-attempts", 3)],
)
def test_the_largest_number_is_believed_and_the_next_is_not(name, most):
    """Beyond what Kafka or the ladder can count, a number is a lie."""

    def trusts(number):
        copy = deferred(make_record(42))
        copy.headers = [(found, b"%d" % number if found == name else value) for found, value in copy.headers]
        return recall(copy, "orders", 3)

    assert (trusts(most), trusts(most + 1)) == (True, False)


@pytest.mark.parametrize("topic", [None, b"", b"order", b"orders2", b"ORDERS", b"retry.1", b"orders\x00"])
def test_a_record_of_another_topic_has_no_origin(topic):
    """Its place and its timestamp are those of the copy then."""
    copy = deferred(make_record(42, timestamp=99))
    copy.headers = [(name, topic if name == "laneway-origin-topic" else value) for name, value in copy.headers]

    assert not recall(copy, "orders", 3)
    assert (copy.origin, copy.timestamp) == (None, 7)
    assert origin_of(copy, "orders") is None


def test_a_record_that_nobody_deferred_has_used_up_its_calls():
    """Whoever wrote it, it gets the calls of its step and no more."""
    record = make_record(topic="retry.2")

    assert not recall(record, "orders", 6)
    assert (record.before, record.attempt, record.origin) == (6, 7, None)


def test_a_record_that_waits_keeps_its_count():
    """One that was parked, sent back and deferred is parked for the second time next."""
    assert errors_of(deferred(make_record(headers=[("laneway-errors", b"1")]))) == 1
    assert "laneway-errors" not in dict(deferred(make_record()).headers)


def test_a_record_is_counted_only_so_often():
    """A count that can be forged must not grow without bound."""
    record = make_record(headers=[("laneway-errors", b"1000000")])

    assert errors_of(parked(record)) == 1_000_000
    assert errors_of(make_record(headers=[("laneway-errors", b"1000001")])) == 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"orders:7:42", ("orders", 7, 42)),
        (b"orders", None),
        (b"orders:7", None),
        (b"orders:7:", None),
        (b"orders::42", None),
        (b"orders:-7:42", None),
        (b"orders:7:4:2", None),
        ("orders:²:٣".encode(), None),
        (b"orders:" + b"1" * 2**20 + b":2", None),
        (b"orders:1:" + b"2" * 40, None),
        (b"", None),
        (None, None),
    ],
)
def test_where_a_record_was_read_is_told_or_not(value, expected):
    """Anything but a topic and two numbers is nothing."""
    assert expected == read_from(make_record(headers=[("laneway-read-from", value)]))


def test_a_record_that_goes_back_keeps_only_its_count():
    """Else it would come to its topic with the marks of its failure; without the count nobody saw it go in circles."""
    once = parked(make_record(headers=[("own", None), ("own", b"1")]))
    twice = parked(make_record(headers=returned_headers(once)))

    assert returned_headers(once) == [("own", None), ("own", b"1"), ("laneway-errors", b"1")]
    assert returned_headers(twice) == [("own", None), ("own", b"1"), ("laneway-errors", b"2")]
    assert returned_headers(make_record()) == [("laneway-errors", b"1")]


SPRING = [
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", b"\x00\x00\x00\x07"),
    ("kafka_dlt-original-offset", b"\x00\x00\x00\x00\x00\x00\x01\x00"),
    ("kafka_dlt-original-timestamp", b"\x00\x00\x01\x8b\xcf\xe5\x68\x00"),
    ("kafka_dlt-original-timestamp-type", b"CreateTime"),
    ("kafka_dlt-original-consumer-group", b"billing"),
    ("kafka_dlt-exception-fqcn", b"ValueError"),
    ("kafka_dlt-exception-message", b"bad"),
    ("kafka_dlt-exception-stacktrace", b"trace"),
]
CONNECT = [
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"7"),
    ("__connect.errors.offset", b"256"),
    ("__connect.errors.connector.name", b"billing"),
    ("__connect.errors.task.id", b"0"),
    ("__connect.errors.stage", b"TASK_PUT"),
    ("__connect.errors.class.name", b"charge"),
    ("__connect.errors.exception.class.name", b"ValueError"),
    ("__connect.errors.exception.message", b"bad"),
    ("__connect.errors.exception.stacktrace", b"trace"),
]


@pytest.mark.parametrize(("style", "expected"), [("spring", SPRING), ("connect", CONNECT), ("laneway", [])])
def test_a_copy_speaks_as_other_tools_do(style, expected):
    """Their names come last, with numbers as they write them, and have the trace so that it is there once."""
    copy = parked(make_record(256, partition=7, timestamp=1_700_000_000_000), style)

    assert copy.headers[len(ERROR_HEADERS) :] == expected
    assert dict(copy.headers)["laneway-error-trace"] == (b"trace" if style == "laneway" else b"")


@pytest.mark.parametrize("style", ["spring", "connect"])
@given(OWN, st.integers(0, 3))
def test_a_style_does_not_grow_either(style, headers, times):
    """Parked again, and deferred in between, a record has each name once; headers in the other style are its own."""
    other = CONNECT if style == "spring" else SPRING
    record = make_record(headers=[*headers, *other])
    first = parked(record, style)
    copy = first
    for _ in range(times):
        recall(copy, "orders", 9)
        copy.attempt = 1
        copy = parked(deferred(copy), style)
        recall(copy, "orders", 9)
        copy.attempt = 1

    assert [name for name, _ in copy.headers] == [name for name, _ in first.headers]
    assert copy.headers[: len(headers) + len(other)] == [*headers, *other]


def test_an_empty_topic_name_is_no_source():
    """A copy without a topic's name comes from nowhere."""
    copy = deferred(Topic("orders").record(b"v"))
    copy.headers = [header for header in copy.headers if header[0] != "laneway-origin-topic"]

    assert origin_of(copy, "orders") is None
