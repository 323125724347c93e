"""The map of finished offsets: what is written is read, and nothing that is read can do harm."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from laneway._core.finished_map import MOST, decode_finished, encode_finished, readable_to

STARTS = st.sampled_from([0, 1, 7, 1_000_000, 2**53 + 1])


@st.composite
def spans(draw):
    """A commit's offset, the end of what was read, and what is unfinished between: the first one always is."""
    start = draw(STARTS)
    pieces = draw(st.lists(st.tuples(st.integers(1, 40), st.sampled_from([1, 2, 3, 100, 5_000])), max_size=60))
    unfinished, at = [], start
    for waiting, done in pieces:
        unfinished += range(at, at + waiting)
        at += waiting + done
    tail = draw(st.integers(0, 5))
    unfinished += range(at, at + tail)
    return start, at + tail, unfinished


@given(spans())
@settings(max_examples=300, deadline=None)
def test_what_is_written_is_read(span):
    """Each offset is finished after the round trip if it was before, and the text fits."""
    start, end, unfinished = span
    text = encode_finished(start, end, unfinished)
    assert len(text) <= MOST
    finished = decode_finished(start, text)
    waiting = set(unfinished)
    expected = [offset for offset in range(start, end) if offset not in waiting]
    if not expected:
        assert (text, finished) == ("", None)
        return
    assert [offset for offset in range(start - 3, end + 3) if finished.has(offset)] == expected
    assert finished.end == expected[-1] + 1
    assert len(finished) == len(expected)
    assert finished.missing(start) == [offset for offset in unfinished if offset < finished.end]


@given(STARTS, st.lists(st.integers(0, 60_000), max_size=6_000), st.integers(0, 60_000))
@settings(max_examples=60, deadline=None)
def test_any_pattern_fits(start, waiting, more):
    """However scattered: never longer than brokers take, never a lie, and all of it as far as a bitmap reaches."""
    unfinished = sorted({start, *(start + offset for offset in waiting)})
    end = unfinished[-1] + 1 + more
    text = encode_finished(start, end, unfinished)
    if text:
        assert len(text) <= MOST
        finished = decode_finished(start, text)
        assert not any(map(finished.has, unfinished))
        assert len(finished) > 0
        if end - start <= 23_976:
            assert len(finished) == end - start - len(unfinished)


@st.composite
def readings(draw):
    """What is unfinished of a partition, and what of that, and of what may still be read, is finished next."""
    start = draw(STARTS)
    sizes = st.sampled_from([1, 2, 3, 126, 127, 128, 5_000, 20_000])
    pieces = draw(st.lists(st.tuples(st.sampled_from([1, 2, 3, 50, 700]), sizes), min_size=1, max_size=40))
    unfinished, at = [], start
    for waits, done in pieces:
        unfinished += range(at, at + waits)
        at += waits + done
    return start, at, unfinished, draw(st.sampled_from(["odd", "even", "third", "none"]))


@given(readings())
@settings(max_examples=200, deadline=None)
def test_what_may_be_read_fits_whatever_is_finished_first(reading):
    """Up to where a partition may be read, a text holds all that is finished, in the worst order too."""
    start, end, unfinished, kept = reading
    limit = readable_to(start, end, unfinished)
    if limit < end:
        return  # it is held already
    still = [*unfinished, *range(end, limit)]
    picks = {"odd": lambda at: at % 2, "even": lambda at: not at % 2, "third": lambda at: at % 3 == 1}
    still = [start, *(at for at in still if at > start and picks.get(kept, lambda _: True)(at))]
    text = encode_finished(start, limit, still)
    finished = decode_finished(start, text)
    assert (0 if finished is None else len(finished)) == limit - start - len(still)


@given(STARTS, st.one_of(st.text(), st.binary().map(lambda data: "L1r" + data.hex()), st.text("Aa09+/=", max_size=80)))
@settings(max_examples=500, deadline=None)
def test_no_text_does_harm(start, tail):
    """Whatever stands in the metadata: it says nothing, or something about offsets after the committed one."""
    for text in (tail, f"L1r{tail}", f"L1b{tail}"):
        finished = decode_finished(start, text)
        if finished is not None:
            assert finished.end > start
            assert not finished.has(start)
            assert len(finished.missing(start)) <= 1_000_000
