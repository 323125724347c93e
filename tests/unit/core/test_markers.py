"""The marker of a commit: whether work may be under way behind it, and since when."""

from __future__ import annotations

import pytest

from laneway._core.finished_map import (
    CLEAN,
    UNDER_WAY,
    began_with,
    decode_finished,
    encode_finished,
    moved_on,
    since_of,
    under_way,
)

MAP = encode_finished(7, 20, [7, 9])


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("", None),  # Kafka's tool
        (CLEAN, None),
        ("offset of another tool~77", None),
        ("L1u~77", 77),
        (f"{MAP}~77", 77),
        ("L1n6~77", 77),
        (MAP, 0),  # of a version that wrote no time
        ("L1u", 0),
        ("L1u~x", 0),
        ("L1u~" + "9" * 40, 999_999_999_999_999),
    ],
)
def test_what_a_commit_says(text, since):
    """Only laneway's own markers say that work may be under way."""
    assert since_of(text) == since


def test_an_owner_takes_over_the_time_of_one_that_was_killed():
    """By a clock that is behind it says its own time: its copies carry that."""
    assert under_way("", 100) == "L1u~100"
    assert under_way(CLEAN, 100) == "L1u~100"
    assert under_way("L1u~77", 100) == "L1u~77"
    assert under_way("L1u~177", 100) == "L1u~100"
    assert under_way("", 100, "L1n6") == "L1n6~100"


def test_the_map_and_the_size_are_read_past_the_time():
    """They stand in front of it."""
    assert decode_finished(7, f"{MAP}~77").missing(7) == decode_finished(7, MAP).missing(7) == [7, 9]
    assert began_with("L1n6~77") == began_with("L1n6") == 6


def test_a_command_that_moves_an_offset_keeps_what_was_under_way():
    """The map belongs to the old offset, the time to what lies past the new one."""
    assert moved_on(f"{MAP}~77") == f"{UNDER_WAY}~77"
    assert moved_on("") == moved_on(CLEAN) == CLEAN
    assert moved_on(f"{MAP}~77@more") == f"{UNDER_WAY}~77@more"
    assert moved_on(f"{CLEAN}@more") == f"{CLEAN}@more"
