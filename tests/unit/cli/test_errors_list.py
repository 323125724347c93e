"""What a list keeps in mind while it reads."""

from __future__ import annotations

from laneway.cli._errors_list import Kinds, Newest
from support.parked import make_parked


def parked(offset, at=None, kind="E"):
    headers = [("laneway-error-type", kind.encode())]
    return make_parked(
        offset, headers=[*headers, ("laneway-parked-at", str(at).encode())] if at is not None else headers
    )


def test_the_newest_are_kept_in_order():
    """By the time they were parked, whatever order they are read in."""
    newest = Newest(3)
    for offset, at in enumerate([5000, 1000, 4000, 2000, 3000]):
        newest.add(parked(offset, at), lambda at=at: at)

    assert (newest.in_order(), newest.count) == ([3000, 4000, 5000], 5)


def test_only_what_is_kept_is_made():
    """Rows of records that will not be shown cost nothing."""
    made = []
    newest = Newest(2)
    for offset in range(100):
        newest.add(parked(offset, 10**6 - offset), lambda offset=offset: made.append(offset))

    assert made == [0, 1]


def test_a_record_without_a_time_does_not_push_others_out():
    """It counts as old, and is shown when there is room."""
    newest = Newest(2)
    for offset, at in ((0, None), (1, 1000), (2, 2000), (3, None)):
        newest.add(parked(offset, at), lambda offset=offset: offset)

    assert (newest.in_order(), newest.count) == ([1, 2], 4)


def test_types_are_counted_with_their_times():
    """The most frequent first."""
    kinds = Kinds()
    for offset, (kind, at) in enumerate([("B", 3000), ("A", 1000), ("B", None), ("B", 2000)]):
        kinds.add(parked(offset, at, kind))

    assert list(kinds.rows()) == [
        (3, "B", "1970-01-01T00:00:02Z", "1970-01-01T00:00:03Z"),
        (1, "A", "1970-01-01T00:00:01Z", "1970-01-01T00:00:01Z"),
    ]


def test_made_up_types_do_not_fill_the_memory():
    """Beyond a thousand they are counted together."""
    kinds = Kinds()
    for number in range(3_000):
        kinds.add(parked(number, 1, f"E{number}"))

    assert len(kinds.counts) == 1_001
    assert next(kinds.rows())[:2] == (2_000, "(others)")
