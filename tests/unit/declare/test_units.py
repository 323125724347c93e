"""Durations and sizes as people write them."""

from __future__ import annotations

from datetime import timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import given

from laneway._declare.units import as_duration, as_size, in_words


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("100ms", 0.1),
        ("5s", 5),
        ("1m30s", 90),
        ("2h", 7200),
        ("1d", 86400),
        ("250us", 250e-6),
        (" 1.5 s ", 1.5),
        ("0s", 0),
    ],
)
def test_a_duration_is_read(text, seconds):
    """Units from microseconds to days, alone or together."""
    assert timedelta(seconds=seconds) == as_duration(text)


def test_a_timedelta_is_a_duration():
    """It is taken as it is."""
    assert as_duration(timedelta(minutes=1)) == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "5 has no unit; write for example '5s' or '5ms'"),
        (0.5, "0.5 has no unit"),
        (True, "True is not a duration"),
        (None, "None is not a duration"),
        ("", "'' is not a duration"),
        ("5", "'5' is not a duration"),
        ("-5s", "'-5s' is not a duration"),
        ("5 parsecs", "is not a duration"),
        ("1e3s", "is not a duration"),
        (timedelta(seconds=-1), "is negative"),
    ],
)
def test_what_is_no_duration_is_refused(value, message):
    """The message says what to write instead."""
    with pytest.raises(ValueError) as caught:
        as_duration(value)

    assert message in str(caught.value)


@given(st.integers(0, 10**10).map(lambda count: timedelta(milliseconds=count)))
def test_a_duration_in_words_is_read_back(duration):
    """What is written in whole milliseconds is what is read."""
    assert duration == as_duration(in_words(duration))


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0, "0ms"), (0.25, "250ms"), (1, "1s"), (90, "1m30s"), (86400, "1d"), (3600.5, "1h0.5s")]
)
def test_a_duration_is_put_in_words(seconds, expected):
    """Short, and with the largest units first."""
    assert expected == in_words(timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (123, 123),
        ("64KiB", 65536),
        ("16MiB", 2**24),
        ("1MB", 10**6),
        ("1.5kb", 1500),
        ("7b", 7),
        (" 1 GiB ", 2**30),
    ],
)
def test_a_size_is_read(value, expected):
    """Decimal and binary units in any case, or a number of bytes."""
    assert expected == as_size(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1, "is negative"),
        ("5", "is not a size"),
        ("5 XB", "is not a size"),
        (None, "is not a size"),
        (True, "is not a size"),
        (1.5, "is not a size"),
    ],
)
def test_what_is_no_size_is_refused(value, message):
    """The message says what to write instead."""
    with pytest.raises(ValueError, match=message):
        as_size(value)


@given(st.integers(0, 2**40), st.sampled_from(["B", "kB", "KiB", "mib"]))
def test_whole_sizes_are_exact(number, unit):
    """No byte is lost on the way through the text."""
    factor = {"B": 1, "kB": 1000, "KiB": 1024, "mib": 2**20}[unit]
    assert number * factor == as_size(f"{number}{unit}")
