"""What may be committed, by example; the state machine in tests/properties tries everything else."""

from __future__ import annotations

import pytest

from laneway._core.ledger import Ledger


def test_nothing_is_committable_before_anything_was_seen():
    """A partition never seen has no committable offset."""
    assert Ledger().committable(0) is None


def test_a_gap_does_not_hold_up_the_commit():
    """Offsets that compaction or a transaction marker left out are passed over."""
    ledger = Ledger()
    ledger.see(0, [5, 6, 9])
    ledger.finish_all([(0, 5), (0, 6)])

    assert ledger.committable(0) == 9
    ledger.finish(0, 9)
    assert ledger.committable(0) == 10


def test_a_later_finish_does_not_pass_an_earlier_record():
    """However many later ones are finished, the lowest unfinished offset is the bound."""
    ledger = Ledger()
    ledger.see(3, range(1000))
    for offset in range(1, 1000):
        ledger.finish(3, offset)

    assert ledger.committable(3) == 0
    assert ledger.unfinished(3) == (0,)
    ledger.finish(3, 0)
    assert ledger.committable(3) == 1000


def test_offsets_beyond_double_precision_stay_exact():
    """Two offsets that are equal as floats are different offsets."""
    ledger = Ledger()
    ledger.see(0, [2**53, 2**53 + 1])
    ledger.finish(0, 2**53)

    assert ledger.committable(0) == 2**53 + 1


@pytest.mark.parametrize("offsets", [[5, 3], [5, 5], [1, 2, 4, 3], [1, 2, 2, 3]])
def test_offsets_that_do_not_ascend_are_refused(offsets):
    """Out of order the first unfinished would not be the lowest, and a commit would pass a record."""
    ledger = Ledger()
    with pytest.raises(ValueError, match="do not ascend"):
        ledger.see(0, offsets)

    assert ledger.outstanding == 0
    assert ledger.committable(0) is None


def test_a_refused_see_changes_nothing():
    """Offsets seen before are refused and the books stay as they were."""
    ledger = Ledger()
    ledger.see(0, [1, 2])
    with pytest.raises(ValueError, match="offset 2 was seen before"):
        ledger.see(0, [2, 3])

    assert ledger.unfinished(0) == (1, 2)


def test_a_forgotten_partition_starts_anew():
    """After a revoke, a late finish is an error and old offsets may be seen again."""
    ledger = Ledger()
    ledger.see(0, [1])
    ledger.forget(0)
    with pytest.raises(KeyError):
        ledger.finish(0, 1)
    ledger.see(0, [0])

    assert ledger.committable(0) == 0
