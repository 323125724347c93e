"""Parked records on a terminal and for programs."""

from __future__ import annotations

import base64
import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from laneway.admin import Filter
from laneway.cli._errors_list import row_of
from laneway.cli._errors_view import as_json, key_text, page, print_table, safe, time_text
from support.parked import make_parked

ESCAPES = "\x1b[31m\x07\x00\r\n\x9b2J\u202e\u2066\x7f\t"


def text_of(parked):
    return "\n".join(page(parked, is_open=True))


@given(st.text())
def test_what_is_safe_is_printable(text):
    """Whatever a record holds, nothing that a terminal would act on is left."""
    assert safe(text, 50).isprintable()


def test_control_characters_become_escapes():
    """They can be seen, and do nothing."""
    assert safe("a\x1b[2Jb\nc\u202ed", 50) == r"a\x1b[2Jb\nc\u202ed"


def test_a_long_text_is_cut_with_a_mark():
    """The mark says that there is more."""
    assert (safe("abc", 3), safe("abcd", 3)) == ("abc", "abc…")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, "-"),
        (b"", '""'),
        (b"42", "42"),
        ("größe".encode(), "größe"),
        (b"\xff\x00", "hex:ff00"),
        (b"a\x1b", "hex:611b"),
        (b"hex:00", "hex:6865783a3030"),
        (b"-", "hex:2d"),
        (b"x" * 100, "x" * 40 + "…"),
    ],
)
def test_a_key_is_shown_as_it_can_be_asked_for(key, expected):
    """No key, an empty key, text and bytes look different, and --key reads what is shown in full."""
    assert key_text(key) == expected
    if key and "…" not in expected:
        from datetime import UTC, datetime

        assert Filter.parse(now=datetime.now(UTC), key=expected).key == key


def test_a_row_holds_nothing_that_a_terminal_acts_on():
    """Key, type and message are of the record's making."""
    headers = [("laneway-error-type", ESCAPES.encode()), ("laneway-error-message", ESCAPES.encode())]
    assert all(cell.isprintable() for cell in row_of(make_parked(key=ESCAPES.encode(), headers=headers)))


def test_unknown_is_said_in_a_row():
    """A record without our headers is shown nevertheless."""
    assert row_of(make_parked(7, partition=3)) == ("3:7", "unknown", "unknown", "unknown", "k", "unknown", "")


def test_markup_is_not_read(capsys):
    """Brackets of a record are shown as they are and colour nothing."""
    print_table(("place", "message"), [("0:1", "[bold red]x[/] :smile: [link=http://a]")])
    assert "[bold red]x[/] :smile: [link=http://a]" in capsys.readouterr().out


def test_json_is_complete_and_in_one_line():
    """Bytes that are no text are there too, and null is not empty."""
    headers = [("laneway-attempts", b"3"), ("a", None), ("a", b""), ("a", b"\xff")]
    parked = make_parked(7, key=b"\xff", value="ä\x7f\x1b\n".encode() * 100_000, headers=headers)
    line = as_json(parked, is_open=False)
    told = json.loads(line)

    assert line.isascii()
    assert line.isprintable()
    assert (told["state"], told["place"], told["attempts"], told["handler"]) == ("done", "0:7", 3, None)
    assert base64.b64decode(told["key"]["base64"]) == b"\xff"
    assert told["value"]["text"].encode() == parked.value
    assert [header["value"] for header in told["headers"]] == [
        {"text": "3"},
        None,
        {"text": ""},
        {"base64": base64.b64encode(b"\xff").decode()},
    ]


def test_a_json_value_is_laid_out_and_not_changed():
    """Repeated names and the writing of numbers stay."""
    shown = text_of(make_parked(value=b'{"a":1.0E5,"a":[10000000000000000000001]}'))
    assert [line for line in ('"a": 1.0E5,', '"a": [', "10000000000000000000001") if line not in shown] == []


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (None, "null"),
        (b"", "0 bytes"),
        (b"plain text", "  plain text"),
        (b'{"broken', '  {"broken'),
        (b"[" * 50_000, "[[[["),
        (bytes(range(16)), "00000000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f  ................"),
        (b"abc\x1b[31m", "61 62 63 1b 5b 33 31 6d"),
        (b"line\r\nnext\ttab", "  next    tab"),
    ],
    ids=repr,
)
def test_a_value_is_shown_as_what_it_is(value, part):
    """JSON, text or bytes, whatever its nesting."""
    assert part in text_of(make_parked(value=value))


@given(
    st.binary(max_size=200), st.lists(st.tuples(st.text(max_size=20), st.one_of(st.none(), st.binary())), max_size=5)
)
def test_no_record_breaks_its_page(value, headers):
    """Every line is printable, whatever is in the record."""
    assert all(line.isprintable() for line in page(make_parked(key=value, value=value, headers=headers), is_open=True))


@pytest.mark.parametrize("value", [b"\x00" * 5_000_000, b"x\n" * 5_000_000, b'{"a":"' + b"b" * 5_000_000 + b'"}'])
def test_a_page_is_bounded(value):
    """A record of megabytes is shown in part, which is said."""
    shown = text_of(make_parked(value=value, headers=[("h", value), ("laneway-error-trace", value)]))
    assert len(shown) < 200_000
    assert "more; --json shows all" in shown


def test_a_reference_says_where_the_record_is():
    """Its value is at its origin only."""
    headers = [("laneway-reduced", b"value"), ("laneway-origin-topic", b"orders"), ("laneway-origin-offset", b"7")]
    shown = text_of(make_parked(value=None, headers=headers))
    assert "the whole record is on its source topic" in shown
    assert "origin        orders unknown:7" in shown


@pytest.mark.parametrize("stamp", [-1, 0, 10**18, 2**63 - 1])
def test_an_odd_timestamp_is_shown(stamp):
    """One beyond the calendar is a number still."""
    assert str(stamp) in text_of(make_parked(timestamp=stamp))


def test_a_time_is_shown_as_it_can_be_asked_for():
    """--since reads it."""
    parked = make_parked(headers=[("laneway-parked-at", b"1767268800000")])
    shown = time_text(parked.parked_at)
    assert shown == "2026-01-01T12:00:00Z"
    assert Filter.parse(now=parked.parked_at, since=shown).matches(parked)
