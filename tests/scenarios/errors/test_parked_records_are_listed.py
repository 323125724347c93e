"""`laneway errors list` shows what is open, and says what else there is."""

from __future__ import annotations

import json

import pytest

from support.errors_scene import NOON, Row

pytestmark = pytest.mark.broker

ROWS = [Row(f"k{number}".encode(), b"v") for number in range(4)]


def places(done):
    """The places of a table's rows, in their order."""
    words = [line.split() for line in done.out.splitlines()]
    return [word for line in words for word in line[:2] if word.replace(":", "").isdigit() and ":" in word]


@pytest.fixture
def filled(scene):
    """Four records in partition 0, and one later record in partition 1."""
    scene.park(ROWS, "json.JSONDecodeError")
    scene.park([Row(None, None)], "TimeoutError", partition=1, at=NOON + 1_500)
    return scene


def test_open_records_are_listed_the_newest_last(filled):
    """With place, time, handler, origin, key, type and message; the number of all of them is said."""
    done = filled.errors("list")

    assert (done.code, done.err, places(done)) == (0, "", ["0:0", "0:1", "1:0", "0:2", "0:3"])
    line = next(line for line in done.out.splitlines() if line.startswith("0:1 "))
    expected = ["2026-01-01T12:00:01Z", "charge", filled.topic, "0:1", "k1", "json.JSONDecodeError", "bad", "1"]
    assert line.split()[1:] == expected
    assert f"{filled.error_topic}: 5 open records\n" in done.out


def test_a_limit_shows_the_newest_and_says_how_to_see_more(filled):
    """The number of all is that of the topic, not of the table."""
    done = filled.errors("list", "--limit", "2")

    assert places(done) == ["0:2", "0:3"]
    assert "5 open records, the newest 2 of them shown; --limit 5 shows all" in done.out


def test_what_is_done_is_shown_on_request(filled):
    """Records before the group's offset are done."""
    filled.commit({0: 3})

    assert places(filled.errors("list")) == ["1:0", "0:3"]
    done = filled.errors("list", "--all")
    assert [line.split()[:2] for line in done.out.splitlines()[1:6]] == [
        ["done", "0:0"],
        ["done", "0:1"],
        ["open", "1:0"],
        ["done", "0:2"],
        ["open", "0:3"],
    ]


def test_records_that_were_deleted_are_not_waited_for(filled):
    """The list begins where the log begins; a group's offset before that changes nothing."""
    filled.commit({0: 1})
    assert filled.cluster.admin.delete_records(filled.error_topic, {0: 2}) == {0: 2}

    assert places(filled.errors("list")) == ["1:0", "0:2", "0:3"]
    assert places(filled.errors("list", "--all")) == ["1:0", "0:2", "0:3"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--type", "json.*"], ["0:0", "0:1", "0:2", "0:3"]),
        (["--type", "TimeoutError"], ["1:0"]),
        (["--message", "BAD 3"], ["0:3"]),
        (["--key", "k2"], ["0:2"]),
        (["--key", "hex:6b32"], ["0:2"]),
        (["--since", "2026-01-01T12:00:01.500Z"], ["1:0", "0:2", "0:3"]),
        (["--until", "2026-01-01T12:00:01.500Z"], ["0:0", "0:1"]),
        (["--handler", "charge", "--at", "0:1", "--at", "1:0"], ["0:1", "1:0"]),
        (["--handler", "other"], []),
        (["--origin", "elsewhere"], []),
        (["--since", "1s"], []),
    ],
    ids=" ".join,
)
def test_filters_choose(filled, words, expected):
    """By type, message, key, time, handler, origin and place."""
    done = filled.errors("list", *words)
    assert (done.code, places(done)) == (0, expected)
    assert expected or "no open records that match" in done.out


def test_json_is_one_complete_object_per_line(filled):
    """All of them, whatever the table would show."""
    filled.park([Row(b"\xff", b"\x00" * 1_000, (("a", None), ("a", b"\xff")))] * 60, partition=1)
    told = [json.loads(line) for line in filled.errors("list", "--json").out.splitlines()]

    assert len(told) == 65
    assert told[0]["key"] == {"text": "k0"}
    assert told[-1]["headers"][:2] == [{"name": "a", "value": None}, {"name": "a", "value": {"base64": "/w=="}}]
    assert len(filled.errors("list", "--json", "--limit", "3").out.splitlines()) == 3


def test_types_are_counted(filled):
    """The most frequent first, with the times of the oldest and the newest."""
    lines = filled.errors("list", "--by-type").out.splitlines()

    assert lines[1].split() == ["4", "json.JSONDecodeError", "2026-01-01T12:00:00Z", "2026-01-01T12:00:03Z"]
    assert lines[2].split()[:2] == ["1", "TimeoutError"]
    assert [json.loads(line)["count"] for line in filled.errors("list", "--by-type", "--json").out.splitlines()] == [
        4,
        1,
    ]


def test_one_record_is_shown_in_full(filled):
    """What its headers tell, its own headers, its value and the trace; also when it is done."""
    filled.park([Row(b"key", b'{"a":[1,2]}', (("own", b"x"), ("own", None), ("bin", b"\xff")))], partition=1)
    filled.commit({1: 2})
    done = filled.errors("show", "1:1")

    expected = [
        f"1:1 on {filled.error_topic}, done",
        f"{filled.topic} 1:0",
        "  own: x",
        "  own: null",
        "  bin: hex:ff",
        '    "a": [',
        "  Traceback:",
        "times parked  1",
    ]
    assert [part for part in expected if part not in done.out] == []
    assert json.loads(filled.errors("show", "1:1", "--json").out)["value"] == {"text": '{"a":[1,2]}'}


@pytest.mark.parametrize("place", ["0:4", "0:99", "7:0"])
def test_a_place_without_a_record_is_said(filled, place):
    """With exit code 1 and the command that shows the places there are."""
    done = filled.errors("show", place)
    assert (done.code, done.out) == (1, "")
    assert f"there is no record at {place}" in done.err


def test_an_error_topic_that_is_not_there_is_no_error(filled):
    """Nothing is parked, which is said with exit code 0; asking does not create the topic."""
    filled.cluster.admin.delete(filled.error_topic)
    for words in (["list"], ["replay", "--yes"], ["drop", "--yes"], ["list", "--json"]):
        done = filled.errors(*words)
        assert (words, done.code) == (words, 0)
        assert "nothing is parked" in done.out + done.err
    assert filled.error_topic not in filled.cluster.admin.topics()
