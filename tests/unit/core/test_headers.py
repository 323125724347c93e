"""What a parked copy says about its record."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from laneway._core.headers import ERROR_HEADERS, Failure, as_lines, errors_of, one_line, parked_headers
from laneway.errors import text_of
from support.core import make_record

FAILURE = Failure("ValueError", "bad", "trace")
HEADERS = st.lists(
    st.tuples(
        st.one_of(st.text(max_size=10), st.sampled_from(ERROR_HEADERS)), st.one_of(st.none(), st.binary(max_size=20))
    ),
    max_size=6,
)


class Unprintable(Exception):  # noqa: N818 - the name says what it is
    def __str__(self):
        raise RuntimeError("no text")


def headers_of(record, failure=FAILURE):
    return parked_headers(record, failure, app="billing", handler="charge", now=1234)


def test_the_copy_tells_where_it_came_from_and_why():
    """Each header has its value, as bytes, in the order of ERROR_HEADERS."""
    record = make_record(42, partition=7, timestamp=99)
    record.attempt = 3

    assert headers_of(record) == [
        ("laneway-origin-topic", b"orders"),
        ("laneway-origin-partition", b"7"),
        ("laneway-origin-offset", b"42"),
        ("laneway-origin-timestamp", b"99"),
        ("laneway-attempts", b"3"),
        ("laneway-error-type", b"ValueError"),
        ("laneway-error-message", b"bad"),
        ("laneway-error-trace", b"trace"),
        ("laneway-app", b"billing"),
        ("laneway-handler", b"charge"),
        ("laneway-parked-at", b"1234"),
        ("laneway-errors", b"1"),
        ("laneway-read-from", b"orders:7:42"),
    ]


TRACE = 'Traceback (most recent call last):\n  File "C:\\new.py", line 1\r\n    re.sub("\\n")\nValueError: bad\n'


def test_a_trace_is_one_line():
    """Tools that print headers, such as kcat with %h, print a record on one line."""
    written = dict(headers_of(make_record(), Failure("ValueError", "bad", TRACE)))["laneway-error-trace"]

    assert len(written.splitlines()) == 1
    assert written.startswith(b"Traceback (most recent call last):\\n  File ")


@given(st.text(alphabet=st.sampled_from("a\\nr\n\r\u2028é ")))
def test_a_trace_is_read_as_it_was(text):
    """Whatever backslashes stand in it."""
    assert as_lines(one_line(text)) == text
    assert "\n" not in one_line(text)


@given(HEADERS)
def test_headers_of_the_record_survive(headers):
    """Order, duplicates, null and binary values stay; only ours are replaced."""
    own = [header for header in headers if not header[0].startswith("laneway-")]
    copy = headers_of(make_record(headers=headers))

    assert own == copy[: len(own)]
    assert list(ERROR_HEADERS) == [name for name, _ in copy[len(own) :]]
    assert all(isinstance(value, bytes) for _, value in copy[len(own) :])


@given(HEADERS)
def test_a_record_parked_again_does_not_grow(headers):
    """The copy of a copy has the same headers, save that it counts how often it was parked."""
    record = make_record(headers=headers)
    first, times = headers_of(record), errors_of(record)
    for _ in range(3):
        times += 1
        copy = headers_of(record)
        record = make_record(headers=copy)

        counted = [(name, b"%d" % times if name == "laneway-errors" else value) for name, value in first]
        assert copy == counted


def test_a_failure_names_its_type_with_its_module():
    """A builtin stands alone, any other has its module in front."""
    assert Failure.of(ValueError("x")).type == "ValueError"
    assert Failure.of(Unprintable()).type == f"{__name__}.Unprintable"


def test_a_failure_is_cut_to_size():
    """A long message keeps its beginning, a long trace its end."""
    failure = Failure.of(ValueError("a" * 9000 + "end"))

    assert failure.message == "a" * 1000
    assert len(failure.trace) == 4000
    assert failure.trace.rstrip().endswith("end")


def test_a_shortened_failure_has_no_trace():
    """What we added is given up first when a copy is too large."""
    assert Failure("T", "m" * 500, "trace").shortened() == Failure("T", "m" * 200, "")


def test_an_error_whose_text_fails_still_has_one():
    """Once, an exception with a broken __str__ ended the run instead of its record."""
    assert Failure.of(Unprintable()).message == "<no text: its __str__ failed>"


def test_a_text_that_is_not_unicode_is_made_so():
    """A lone surrogate, as json.loads may give one, can be written to a header and to the tally."""
    assert text_of(ValueError("a\ud800b")) == "a?b"
    assert headers_of(make_record(), Failure.of(ValueError("a\ud800b")))[6] == ("laneway-error-message", b"a?b")
