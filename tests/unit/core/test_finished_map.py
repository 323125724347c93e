"""What a commit's metadata says of finished offsets, by example; tests/properties tries everything else."""

from __future__ import annotations

import base64
import time

import pytest

from laneway._core.finished_map import (
    CLEAN,
    MOST,
    NEW,
    FinishedMap,
    began_with,
    decode_finished,
    encode_finished,
    is_clean,
    readable_to,
    topic_id_of,
    with_topic_id,
)


def text_of_runs(*lengths: int) -> str:
    """A text as the format says it, made by other means than ours."""
    data = bytearray()
    for length in lengths:
        left = length
        while left > 127:
            data.append(left & 127 | 128)
            left >>= 7
        data.append(left)
    return "L1r" + base64.b64encode(bytes(data)).decode().rstrip("=")


def test_nothing_finished_is_no_text():
    """Where all is unfinished, or nothing was read, there is nothing to say."""
    assert encode_finished(5, 5, []) == ""
    assert encode_finished(5, 8, [5, 6, 7]) == ""


def test_the_format_of_runs_is_kept():
    """Version 1 stays readable: other versions of laneway read these texts."""
    assert encode_finished(100, 10_100, [100]) == text_of_runs(1, 9_999)
    assert decode_finished(100, text_of_runs(2, 300, 1, 5)).missing(100) == [100, 101, 402]


def test_the_format_of_bitmaps_is_kept():
    """Lowest bit first, from the committed offset on, 1 for finished."""
    text = "L1b" + base64.b64encode(bytes([0b10101010, 0b1])).decode().rstrip("=")
    assert encode_finished(7, 16, [7, 9, 11, 13]) in (text, encode_finished(7, 16, [7, 9, 11, 13]))
    finished = decode_finished(7, text)
    assert [offset for offset in range(5, 20) if finished.has(offset)] == [8, 10, 12, 14, 15]
    assert finished.end == 16


def test_a_map_that_would_be_too_long_tells_of_as_much_as_fits():
    """What is left out counts as unfinished; nothing unfinished is ever told to be finished."""
    waiting = range(0, 200_000, 2)
    text = encode_finished(0, 200_000, waiting)
    finished = decode_finished(0, text)

    assert MOST - 2 < len(text) <= MOST
    assert len(finished) == 11_988  # of every two offsets one, as far as a bitmap reaches
    assert not any(map(finished.has, waiting))


def test_the_form_that_tells_of_more_is_written():
    """Runs reach further than a bitmap where the finished ones lie far apart or in long runs."""
    scattered = encode_finished(0, 24_000, range(0, 24_000, 10))
    assert scattered.startswith("L1b")
    assert len(decode_finished(0, scattered)) == 21_578
    long_runs = encode_finished(0, 5_000_000, range(0, 5_000_000, 1_000))
    assert long_runs.startswith("L1r")
    assert len(decode_finished(0, long_runs)) == 999 * 999
    far = encode_finished(0, 100_000, range(99_990))
    assert decode_finished(0, far).missing(0) == list(range(99_990))


def test_a_partition_is_read_as_far_as_a_text_can_tell():
    """So many offsets as a bitmap holds, or further while runs are few; not past that while much is unfinished."""
    assert readable_to(5, 5, []) == 5 + 23_976
    assert readable_to(5, 20_000, range(5, 20_000)) == 5 + 23_976
    assert readable_to(0, 50_000_000, [0]) > 50_000_000 + 2_900
    assert readable_to(0, 50_000, range(40_000, 50_000)) < 50_000


def test_a_long_way_past_one_record_is_short():
    """One record that blocks while millions flow past costs a few characters."""
    assert len(encode_finished(0, 50_000_000, [0])) < 20


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "hello",
        "x" * 100_000,
        "L1",
        CLEAN,
        CLEAN + "AAAA",
        "L2r" + text_of_runs(2, 4)[3:],
        "L1x" + text_of_runs(2, 4)[3:],
        "l1r" + text_of_runs(2, 4)[3:],
        "L1rA",
        "L1r!!!!",
        "L1b====",
        "L1r" + "\u00e9" * 4,
        "L1r" + base64.b64encode(b"\x81").decode(),
        "L1r" + base64.b64encode(b"\xff" * 300).decode(),
        text_of_runs(1, 2**62),
        text_of_runs(2**61, 2**61, 2**61, 5),
        "L1b" + base64.b64encode(bytes(300)).decode(),
        "L1b" + "A" * 3 * MOST,
    ],
)
def test_what_cannot_be_read_says_nothing(text):
    """Metadata of others, of another version, or damaged: as if there were none."""
    assert decode_finished(10, text) is None


@pytest.mark.parametrize("text", [text_of_runs(0, 50), text_of_runs(0, 2**61), "L1b/w"])
def test_a_map_that_begins_with_a_finished_offset_is_not_believed(text):
    """We commit at an unfinished offset: to believe it would move the commit past records that nobody ran."""
    assert decode_finished(10, text) is None


def test_a_map_of_more_unfinished_offsets_than_anybody_holds_is_not_believed():
    """They are written down one by one: a text of ten characters must not take all memory."""
    began = time.monotonic()
    assert decode_finished(10, text_of_runs(2**60, 1)) is None
    assert decode_finished(10, text_of_runs(5_000_000, 1)) is None
    assert decode_finished(10, text_of_runs(50_000, 1)).missing(10) == list(range(10, 50_010))
    assert time.monotonic() - began < 30


def test_finished_ranges_answer_for_each_offset():
    """What lies in a range is finished; before, between and behind it is not."""
    finished = FinishedMap([(5, 7), (9, 10)])

    assert [offset for offset in range(12) if finished.has(offset)] == [5, 6, 9]
    assert len(finished) == 3
    assert finished.missing(3) == [3, 4, 7, 8]
    assert finished.missing(6) == [7, 8]
    assert finished.missing(10) == []
    assert [finished.count(0, 20), finished.count(6, 10), finished.count(7, 9), finished.count(8, 3)] == [3, 2, 0, 0]


@pytest.mark.parametrize(
    ("text", "size"),
    [(f"{NEW}6", 6), (f"{NEW}120", 120), (NEW, None), (f"{NEW}six", None), (f"{NEW}-6", None), (f"{NEW}\u0663", None),
     (f"{NEW}{10**30}", None), ("", None), ("hello", None), (CLEAN, None), (text_of_runs(2, 4), None)],
)  # fmt: skip
def test_a_new_group_tells_how_many_partitions_there_were(text, size):
    """And tells nothing of finished offsets; other texts tell nothing of partitions."""
    assert began_with(text) == size
    if text.startswith(NEW):
        assert decode_finished(10, text) is None


ID = "dr98Z7txSJy-4WjEqHvcYQ"


@pytest.mark.parametrize(
    "text", ["", CLEAN, f"{NEW}12", encode_finished(100, 10_100, [100]), encode_finished(0, 9, [0])]
)
def test_every_text_may_name_its_topic(text):
    """It says the same as without the name, and fits into what brokers take."""
    named = with_topic_id(text, ID)
    assert (topic_id_of(named), topic_id_of(text)) == (ID, "")
    assert with_topic_id(text, "") == text
    assert is_clean(named) == is_clean(text) == (text == CLEAN)
    assert began_with(named) == began_with(text)
    plain, found = decode_finished(100, text), decode_finished(100, named)
    assert (found is None) == (plain is None)
    assert found is None or (len(found), found.end) == (len(plain), plain.end)
    assert MOST + len(named) - len(text or "L1") <= 4_096


@pytest.mark.parametrize(
    "text", ["hello@" + ID, "@" + ID, "L1@" + ID[:-1], "L1@" + ID[:-1] + "!", "L1@", "L1@" + ID + " "]
)
def test_what_is_no_name_of_a_topic_says_nothing(text):
    """Others may write what they like."""
    assert topic_id_of(text) == ""
