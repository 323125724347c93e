"""What a parked record says about itself is believed only as far as it can be true."""

from __future__ import annotations

from datetime import UTC, datetime

import hypothesis.strategies as st
import pytest
from hypothesis import given

from laneway._core.headers import ERROR_HEADERS, Failure, parked_headers
from laneway.admin import ParkedRecord, Position
from support.core import make_record
from support.parked import make_parked

FIELDS = {
    "laneway-origin-topic": "origin_topic",
    "laneway-origin-partition": "origin_partition",
    "laneway-origin-offset": "origin_offset",
    "laneway-attempts": "attempts",
    "laneway-error-type": "error_type",
    "laneway-error-message": "error_message",
    "laneway-error-trace": "error_trace",
    "laneway-app": "app",
    "laneway-handler": "handler",
    "laneway-parked-at": "parked_at",
    "laneway-errors": "errors",
}


def with_header(name, *values):
    return make_parked(headers=[(f"laneway-{name}", value) for value in values])


def test_a_copy_that_laneway_wrote_is_read_in_full():
    """Every header comes back as the value it was made from."""
    record = make_record(42, partition=7, timestamp=99, headers=[("trace-id", b"x")])
    record.attempt = 3
    failure = Failure("json.JSONDecodeError", "bad", "Traceback")
    headers = parked_headers(record, failure, app="billing", handler="charge", now=1_767_268_800_000)
    parked = ParkedRecord.of(make_record(5, partition=1, headers=headers, timestamp=99))

    assert (parked.place, parked.timestamp, parked.headers) == (Position(1, 5), 99, headers)
    assert (parked.origin_topic, parked.origin_partition, parked.origin_offset) == ("orders", 7, 42)
    assert (parked.app, parked.handler, parked.attempts, parked.errors) == ("billing", "charge", 3, 1)
    assert (parked.error_type, parked.error_message, parked.error_trace) == ("json.JSONDecodeError", "bad", "Traceback")
    assert parked.parked_at == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert (parked.reduced, parked.is_reference) == ("", False)


TRACE = 'Traceback (most recent call last):\n  File "C:\\new.py", line 1\nValueError: bad\n'


@pytest.mark.parametrize("style", ["laneway", "spring", "connect"])
def test_a_trace_has_its_lines_again(style):
    """The header holds it in one line; the page about the record shows the lines."""
    headers = parked_headers(make_record(), Failure("E", "m", TRACE), app="a", handler="h", now=1, style=style)
    assert ParkedRecord.of(make_record(headers=headers)).error_trace == TRACE


def test_a_trace_of_an_older_laneway_is_left_as_it_is():
    """It has its line ends in it, so backslashes are its own."""
    assert with_header("error-trace", TRACE.encode()).error_trace == TRACE


@pytest.mark.parametrize("style", ["spring", "connect"])
def test_the_trace_is_found_under_the_names_of_other_systems(style):
    """A copy with their headers has it there."""
    headers = parked_headers(make_record(), Failure("E", "m", "Traceback"), app="a", handler="h", now=1, style=style)
    assert ParkedRecord.of(make_record(headers=headers)).error_trace == "Traceback"


BAD_NUMBERS = [
    b"",
    b"-1",
    b"+1",
    b" 1",
    b"1.0",
    b"1e3",
    b"NaN",
    b"0x1",
    b"1_0",
    "\u0661".encode(),
    b"9" * 31,
    b"9" * 10**6,
]


@pytest.mark.parametrize("value", [None, *BAD_NUMBERS], ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("attempts", "attempts"),
        ("origin-partition", "origin_partition"),
        ("origin-offset", "origin_offset"),
        ("parked-at", "parked_at"),
    ],
)
def test_a_number_that_is_none_is_unknown(name, field, value):
    """Signs, spaces, fractions, other scripts and ten to the thirtieth are not read."""
    assert getattr(with_header(name, value), field) is None


@pytest.mark.parametrize(
    ("name", "field", "most"),
    [
        ("attempts", "attempts", 10**9),
        ("origin-partition", "origin_partition", 2**31 - 1),
        ("origin-offset", "origin_offset", 2**63 - 1),
    ],
)
def test_a_number_beyond_its_bound_is_unknown(name, field, most):
    """The largest that Kafka could have meant is taken, one more is not."""
    assert getattr(with_header(name, str(most).encode()), field) == most
    assert getattr(with_header(name, str(most + 1).encode()), field) is None


def test_a_time_beyond_the_calendar_is_unknown():
    """The last millisecond of the year 9999 is a time, the next is none."""
    assert with_header("parked-at", b"253402300799999").parked_at.year == 9999
    assert with_header("parked-at", b"253402300800000").parked_at is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], 1),
        ([b"3"], 3),
        ([b"0003"], 3),
        ([b"1000000"], 1_000_000),
        ([b"1000001"], 1_000_000),
        ([b"1" + b"0" * 30], 1_000_000),
        ([b"0"], None),
        ([b"-3"], None),
        ([b"x"], None),
        ([None], None),
        ([b"3", b"4"], None),
    ],
)
def test_how_often_it_was_parked_has_bounds(values, expected):
    """Nothing said means once; a number too large counts as the largest, so the count never starts again."""
    assert with_header("errors", *values).errors == expected


@pytest.mark.parametrize("name", FIELDS)
def test_a_repeated_header_is_unknown(name):
    """Each is written once, so one of the two is a lie, and it is not known which."""
    field = FIELDS[name]
    assert getattr(make_parked(headers=[(name, b"7")]), field) is not None
    assert getattr(make_parked(headers=[(name, b"7"), (name, b"7")]), field) is None


@pytest.mark.parametrize(
    "value", [b"", b"a/b", b"a b", b"..", b"x" * 250, "ö".encode(), b"\xff", b"a\x00", b"a\x1b[31m"]
)
def test_an_origin_that_no_topic_can_have_is_unknown(value):
    """What Kafka would not accept as a name was not a topic."""
    assert with_header("origin-topic", value).origin_topic is None


@pytest.mark.parametrize("name", ["app", "handler"])
@pytest.mark.parametrize("value", [b"", b"x" * 256, b"\xff", b"a\x1b[31m", "a\u202eb".encode()])
def test_a_name_that_cannot_be_shown_is_unknown(name, value):
    """A name that is cut or changed would name something else."""
    assert getattr(with_header(name, value), name) is None


def test_a_text_of_a_mebibyte_is_cut():
    """Texts for people are bounded, and bytes that are no text are replaced."""
    huge = b"\xff" + "ä".encode() * 2**19
    cut = make_parked(headers=[(name, huge) for name in FIELDS])

    assert [len(text) for text in (cut.error_type, cut.error_message, cut.error_trace)] == [500, 2_000, 16_000]
    assert cut.error_type.startswith("\ufffdä")
    assert (cut.origin_topic, cut.attempts, cut.errors, cut.handler) == (None, None, None, None)


@pytest.mark.parametrize(
    ("values", "reduced", "is_reference"),
    [
        ([], "", False),
        ([b"trace"], "trace", False),
        ([b"value"], "value", True),
        ([b"trace", b"value"], "value", True),
        ([b"value", b"value"], "value", True),
        ([b"other"], None, False),
        ([None], None, False),
        ([b"trace", b"trace"], None, False),
    ],
)
def test_what_may_lack_its_value_is_a_reference(values, reduced, is_reference):
    """When in doubt the value counts as left out, because replaying its absence would be a deletion."""
    parked = with_header("reduced", *values)
    assert (parked.reduced, parked.is_reference) == (reduced, is_reference)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.text(max_size=10), st.sampled_from([*ERROR_HEADERS, "laneway-reduced", "laneway-odd"])),
            st.one_of(st.none(), st.binary(max_size=30), st.integers().map(lambda number: str(number).encode())),
        ),
        max_size=20,
    )
)
def test_no_headers_break_it(headers):
    """Whatever the headers are, a parked record can be made of them, within the bounds."""
    parked = make_parked(headers=headers)
    assert parked.errors is None or 1 <= parked.errors <= 1_000_000
    assert parked.attempts is None or 0 <= parked.attempts <= 10**9
    assert parked.handler is None or parked.handler.isprintable()


@pytest.mark.parametrize("text", ["0:17", " 3:0 ", "2147483647:9223372036854775807"])
def test_a_place_is_read_as_it_is_written(text):
    """The list's own words are understood."""
    assert str(Position.parse(text)) == text.strip()


@pytest.mark.parametrize(
    "text", ["", "17", ":", "0:", ":1", "a:1", "-1:2", "0:-1", "0:1:2", "\u0663:1", "9" * 40 + ":1"]
)
def test_what_is_no_place_is_refused(text):
    """The message shows the form."""
    with pytest.raises(ValueError, match="write partition:offset, for example 0:17"):
        Position.parse(text)
