"""Which records have a copy that a killed run left, and are not run again."""

from __future__ import annotations

from laneway._core.copy_index import CopyIndex
from support.core import make_record


def copy_of(offset, raw=b"v", partition=0):
    """The copy of a record, as it lies on a retry topic."""
    headers = [
        ("laneway-origin-topic", b"orders"),
        ("laneway-origin-partition", b"%d" % partition),
        ("laneway-origin-offset", b"%d" % offset),
    ]
    return make_record(900 + offset, raw=raw, partition=partition, headers=headers, topic="orders.billing.retry.1")


def found(*copies):
    made = CopyIndex("orders")
    made.add(copies)
    return made


def test_the_copies_that_another_one_found_are_added():
    """Those of a partition that was just given; what was known stays, and the other one is left as it is."""
    copied, given = found(copy_of(1)), found(copy_of(2), copy_of(1, partition=3))
    copied.merge(given)
    records = [make_record(offset, partition=partition) for partition in (0, 3) for offset in (1, 2)]

    assert [(record.partition, record.offset) for record in copied.fresh(records)] == [(3, 2)]
    assert (len(copied), copied.already_copied, len(given), given.already_copied) == (3, 3, 2, 0)
    copied.add([copy_of(9)])
    assert not given.has(make_record(9))


def test_what_is_left_out_is_counted_where_it_was():
    """The other one may have left records out for itself."""
    copied, given = found(copy_of(1)), found(copy_of(2))
    copied.fresh([make_record(1)])
    given.fresh([make_record(2), make_record(2)])
    copied.merge(given)

    assert (copied.already_copied, given.already_copied) == (1, 2)


def test_a_copy_that_is_added_must_still_be_the_same():
    """Whoever may write to the topic cannot make a record vanish, in whichever partition it was found."""
    copied = found()
    copied.merge(found(copy_of(1, raw=b"another")))

    assert len(copied) == 1
    assert not copied.has(make_record(1))
