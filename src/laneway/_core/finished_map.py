"""The metadata of a commit: which offsets above the committed one are finished, and whether work may be under way.

The format, version 1: ``L1`` and a letter, then base64 without padding. ``c`` and nothing behind it: everything that
was read is finished, and nothing was under way. ``r``: lengths of runs as varints, unfinished and finished by turns,
beginning at the committed offset. ``b``: a bitmap from the committed offset on, lowest bit first, 1 for finished.
``n`` and a number in digits: the group is new, and the topic had so many partitions when it began to read it.
``u``: from this offset on records may have been worked on. All but ``c`` say that, and end with ``~`` and a time, in
milliseconds since the epoch: copies made before that time have nothing to do with this position.
Behind any of these, or behind ``L1`` alone, may stand ``@`` and the id of the topic: a topic that is deleted and
recreated keeps its name and gets another id. Whatever begins differently was not written by laneway: the group was
reset, and everything from the offset on is to run.

A text may tell of less than is finished, because brokers limit its length. What it does not tell of counts as
unfinished: the next owner reads it, and runs it again.
"""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CLEAN",
    "MOST",
    "NEW",
    "UNDER_WAY",
    "FinishedMap",
    "began_with",
    "decode_finished",
    "encode_finished",
    "is_clean",
    "moved_on",
    "readable_to",
    "since_of",
    "topic_id_of",
    "under_way",
    "with_topic_id",
    "without_topic_id",
]

CLEAN = "L1c"
"""Nothing was under way when this was committed, so nothing has to be looked for."""
NEW = "L1n"
"""Behind it stands how many partitions the topic had when the group began: those that come later have no commit too."""
UNDER_WAY = "L1u"
"""Records from this offset on may have been worked on, and none of those past it is known to be finished."""
MOST = 4_000
"""Characters without the topic's id, which takes 23 more; brokers take 4,096 by default."""
_RUNS, _BITS = "L1r", "L1b"
_BYTES = (MOST - len(_RUNS)) * 3 // 4  # that fit as base64
_ID = re.compile(r"(L1.*)@([A-Za-z0-9_-]{22})", re.ASCII)
_FARTHEST = 2**62
_MOST_WAITING = 1_000_000  # unfinished offsets that are believed: each is written down, and a text can claim any number
_SINCE = re.compile(r"~(\d{1,15})")
_BEGINNINGS = (UNDER_WAY, NEW, "L1r", "L1b")


class FinishedMap:
    """Finished offsets as ranges.

    Example:
        >>> finished = FinishedMap([(5, 7), (9, 10)])
        >>> [offset for offset in range(4, 11) if finished.has(offset)]
        [5, 6, 9]
    """

    __slots__ = ("_begins", "_ends", "end")

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._begins = [begin for begin, _ in ranges]
        self._ends = [end for _, end in ranges]
        self.end = self._ends[-1] if ranges else 0
        """The offset after the last finished one; from there on nothing needs to be asked."""

    def has(self, offset: int) -> bool:
        """Whether an offset is finished."""
        at = bisect_right(self._begins, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def missing(self, start: int) -> list[int]:
        """The offsets from *start* up to the end that are not finished."""
        found: list[int] = []
        for begin, end in zip(self._begins, self._ends, strict=True):
            found += range(start, begin)
            start = max(start, end)
        return found

    def count(self, start: int, end: int) -> int:
        """How many offsets from *start* up to *end* are finished."""
        ranges = zip(self._begins, self._ends, strict=True)
        return sum(max(0, min(last, end) - max(first, start)) for first, last in ranges)

    def __len__(self) -> int:
        """How many offsets are finished."""
        return sum(end - begin for begin, end in zip(self._begins, self._ends, strict=True))


def encode_finished(start: int, end: int, unfinished: Sequence[int]) -> str:
    """What is finished from *start*, the offset to be committed, up to *end*, as text.

    Args:
        start: the offset to be committed.
        end: the offset after the last one that was read.
        unfinished: the offsets between them that are not finished, ascending.

    Returns:
        The text, empty when nothing is finished there. Where not everything fits into `MOST` characters, it names as
        much as fits and leaves out the rest.
    """
    if end - start <= len(unfinished):
        return ""
    runs, count = _as_runs(start, end, unfinished)
    if count == end - start - len(unfinished) and len(runs) <= (end - start) // 8:
        return _as_text(_RUNS, runs)
    span = min(end - start, _BYTES * 8)
    # Of what does not fit, the form that names more is written.
    if span < end - start and span - bisect_left(unfinished, start + span) <= count:
        return _as_text(_RUNS, runs)
    return _as_text(_BITS, _as_bits(start, span, unfinished))


def readable_to(start: int, end: int, unfinished: Sequence[int]) -> int:
    """Up to which offset a partition may be read so that a text can name all that is finished, whatever comes first.

    A bitmap of so many offsets always fits. Further on the runs must fit even if every second record that is
    unfinished now, and of those that are read from now on, is the next to be finished.

    Args:
        start: the offset to be committed.
        end: the offset after the last one that was read.
        unfinished: the offsets between them that are not finished, ascending.
    """
    certain = start + _BYTES * 8
    if end < certain:
        return certain
    lengths = _run_lengths(start, end, unfinished)
    # A run of n unfinished ones, cut into single ones, takes n bytes.
    most = sum(map(_bytes_of, lengths)) + len(unfinished) - len(lengths) // 2
    return max(certain, end + _BYTES - most)


def decode_finished(start: int, text: str | None) -> FinishedMap | None:
    """What the text of a commit at *start* says is finished; None when it says nothing that can be read.

    What no member would write is not believed: a commit is at an unfinished offset, or has nothing to say.
    """
    text = without_topic_id(text or "")
    if not text.isascii() or len(text) > 2 * MOST or text[:3] not in (_RUNS, _BITS):
        return None
    text = text.partition("~")[0]
    try:
        data = base64.b64decode(text[3:] + "=" * (-len(text[3:]) % 4), validate=True)
    except binascii.Error:
        return None
    ranges = _from_runs(start, data) if text[:3] == _RUNS else _from_bits(start, data)
    if not ranges or ranges[0][0] == start:
        return None
    finished = FinishedMap(ranges)
    return finished if finished.end - start - len(finished) <= _MOST_WAITING else None


def began_with(text: str) -> int | None:
    """How many partitions a topic had when its group began, if the text of a commit says so."""
    text = without_topic_id(text)
    number = text[len(NEW) :].partition("~")[0]
    return int(number) if text.startswith(NEW) and number.isascii() and number.isdigit() and len(number) < 10 else None


def is_clean(text: str) -> bool:
    """Whether nothing was under way when this was committed."""
    return without_topic_id(text) == CLEAN


def with_topic_id(text: str, topic_id: str) -> str:
    """The text of a commit that also says to which topic it belongs; the text itself when the id is not known.

    Example:
        >>> with_topic_id("", "dr98Z7txSJy-4WjEqHvcYQ")
        'L1@dr98Z7txSJy-4WjEqHvcYQ'
    """
    return f"{text or 'L1'}@{topic_id}" if topic_id else text


def topic_id_of(text: str) -> str:
    """The id of the topic that a commit belongs to; empty when its text does not say."""
    found = _ID.fullmatch(text)
    return found[2] if found else ""


def without_topic_id(text: str) -> str:
    """The text of a commit as if the topic's id were not known."""
    found = _ID.fullmatch(text)
    return found[1] if found else text


def _run_lengths(start: int, end: int, unfinished: Sequence[int]) -> list[int]:
    """Lengths of runs, unfinished and finished by turns; the last one is of finished offsets."""
    lengths: list[int] = []
    at, waits = start, 0  # waits: unfinished ones in a row so far
    for offset in unfinished:
        if offset > at:
            lengths += (waits, offset - at)
            waits = 0
        waits += 1
        at = offset + 1
        if len(lengths) > 2 * MOST:
            break  # too long, whatever follows
    if end > at:
        lengths += (waits, end - at)
    return lengths


def _as_runs(start: int, end: int, unfinished: Sequence[int]) -> tuple[bytes, int]:
    """As many runs as fit, and how many finished offsets they name."""
    lengths = iter(_run_lengths(start, end, unfinished))
    data, count = bytearray(), 0
    for waiting, done in zip(lengths, lengths, strict=True):
        more = _varint(waiting) + _varint(done)
        if len(data) + len(more) > _BYTES:
            break
        data += more
        count += done
    return bytes(data), count


def _as_bits(start: int, span: int, unfinished: Sequence[int]) -> bytes:
    data = bytearray(b"\xff") * ((span + 7) // 8)
    data[-1] >>= -span % 8
    for offset in unfinished[: bisect_left(unfinished, start + span)]:
        data[(offset - start) >> 3] ^= 1 << (offset - start & 7)
    return bytes(data)


def _as_text(kind: str, data: bytes) -> str:
    return kind + base64.b64encode(data).decode().rstrip("=")


def _from_runs(start: int, data: bytes) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    at, is_finished = start, False
    for length in _lengths(data):
        if at + length > _FARTHEST:
            return []
        if is_finished and length:
            ranges.append((at, at + length))
        at += length
        is_finished = not is_finished
    return ranges


def _from_bits(start: int, data: bytes) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    text = bin(int.from_bytes(data, "little"))[:1:-1]
    at = text.find("1")
    while at >= 0:
        after = text.find("0", at)
        after = len(text) if after < 0 else after
        ranges.append((start + at, start + after))
        at = text.find("1", after)
    return ranges


def _bytes_of(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _lengths(data: bytes) -> list[int]:
    lengths, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            lengths.append(value)
            value = shift = 0
        elif shift > 63:
            return []
    return [] if shift else lengths


def under_way(found: str, now: int, marker: str = UNDER_WAY) -> str:
    """The marker of an owner that begins at an offset.

    Args:
        found: the metadata of the commit that it begins at, empty when there is none.
        now: milliseconds since the epoch. The time of a killed owner is kept, unless this clock is behind it: copies
            that are made from now on have times of this clock.
        marker: what stands before the time.
    """
    since = since_of(found)
    return f"{marker}~{now if since is None else min(now, since)}"


def since_of(text: str) -> int | None:
    """Since when work may be under way; None when none is, and when the text is not laneway's."""
    if not text.startswith(_BEGINNINGS):
        return None
    found = _SINCE.search(without_topic_id(text))
    return int(found[1]) if found else 0


def moved_on(text: str) -> str:
    """The marker of a commit further on, by a command that dealt with the records in between while no owner ran.

    The time of a killed owner is kept: its copies may be of records past the new offset. So is what follows an ``@``.
    """
    since = since_of(text)
    marker = CLEAN if since is None else f"{UNDER_WAY}~{since}"
    return marker + "".join(text.partition("@")[1:])
