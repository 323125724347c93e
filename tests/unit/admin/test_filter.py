"""Which parked records a filter means."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from laneway.admin import Filter, FilterError
from support.parked import make_parked

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
AN_HOUR_AGO = 1_767_268_800_000 - 3_600_000


def record(**headers):
    given = {
        "error_type": b"json.decoder.JSONDecodeError",
        "error_message": "Größe fehlt: [a-z]".encode(),
        "handler": b"charge",
        "origin_topic": b"orders",
        "parked_at": str(AN_HOUR_AGO).encode(),
        **headers,
    }
    named = [(f"laneway-{name.replace('_', '-')}", value) for name, value in given.items() if value is not None]
    return make_parked(17, partition=3, key=b"42", headers=named)


def matches(parked=None, **words):
    return Filter.parse(now=NOW, **words).matches(parked or record())


def test_a_filter_without_conditions_means_everything():
    """Also a record that says nothing about itself."""
    assert matches()
    assert matches(make_parked())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"error_type": "json.decoder.JSONDecodeError"}, True),
        ({"error_type": "json.*"}, True),
        ({"error_type": "*.JSON?ecodeError"}, True),
        ({"error_type": "json"}, False),
        ({"error_type": "JSON.*"}, False),
        ({"message": "größe FEHLT"}, True),
        ({"message": "[a-z]"}, True),
        ({"message": "groesse"}, False),
        ({"key": "42"}, True),
        ({"key": "hex:3432"}, True),
        ({"key": "4"}, False),
        ({"key": ""}, False),
        ({"handler": "charge"}, True),
        ({"handler": "Charge"}, False),
        ({"origin": "orders"}, True),
        ({"origin": "order*"}, False),
        ({"places": ["3:17"]}, True),
        ({"places": ["0:1", "3:17"]}, True),
        ({"places": ["3:18", "17:3"]}, False),
        ({"since": "61m"}, True),
        ({"since": "59m"}, False),
        ({"until": "59m"}, True),
        ({"until": "61m"}, False),
        ({"since": "1h"}, True),
        ({"until": "1h"}, False),
        ({"since": "2026-01-01T11:00Z"}, True),
        ({"since": "2026-01-01T11:00:00.001"}, False),
        ({"since": "2026-01-01T12:00+01:00"}, True),
        ({"until": "2026-01-02"}, True),
        ({"since": "2h", "until": "2026-01-01 11:30", "handler": "charge", "key": "42"}, True),
        ({"since": "2h", "handler": "other"}, False),
    ],
    ids=str,
)
def test_every_condition_must_hold(words, expected):
    """Types by glob, messages by part, times from and before, the rest exactly."""
    assert matches(**words) is expected


@pytest.mark.parametrize(
    "words",
    [
        {"error_type": "*"},
        {"message": ""},
        {"handler": "unknown"},
        {"origin": "orders"},
        {"since": "36500d"},
        {"until": "9999-12-31"},
    ],
    ids=str,
)
def test_what_is_unknown_matches_no_condition(words):
    """A record must not be replayed because it is not known what it is."""
    assert not matches(make_parked(), **words)


def test_no_key_and_an_empty_key_are_different():
    """The empty text means the empty key only."""
    assert matches(make_parked(key=b""), key="")
    assert not matches(make_parked(key=None), key="")


def test_a_type_with_odd_characters_is_found_as_it_is():
    """An exact type needs no escapes, even when it looks like a pattern."""
    assert matches(record(error_type=b"my.Err[int]"), error_type="my.Err[int]")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ({"since": "yesterday"}, "--since 'yesterday' is not a time; write an age (90s"),
        ({"until": ""}, "--until '' is not a time"),
        ({"since": "5"}, "--since '5' is not a time"),
        ({"since": "0001-01-01T00:00+14:00"}, "is not a time"),
        ({"since": "1h", "until": "2h"}, "nothing can match"),
        ({"key": "hex:0"}, "pairs of hexadecimal digits"),
        ({"key": "hex:zz"}, "pairs of hexadecimal digits"),
        ({"places": ["0:1", "x"]}, "--at: 'x' is not a position; write partition:offset"),
    ],
    ids=str,
)
def test_a_filter_that_is_written_wrongly_is_refused(words, part):
    """The message shows how to write it."""
    with pytest.raises(FilterError) as caught:
        Filter.parse(now=NOW, **words)
    assert part in str(caught.value)
