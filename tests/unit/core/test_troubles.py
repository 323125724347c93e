"""The topics that cannot be written to."""

from __future__ import annotations

import pytest

from laneway._core.outbox import Troubles


def test_what_cannot_be_written_counts_until_something_landed():
    """Between two tries nothing is known to fail, and still it is not well; when nothing waits any more, it is."""
    troubles = Troubles()
    troubles.failed("orders.error", "ProduceError: no", 3, now=10.0)

    [found] = troubles.now(11.0, is_pending=True, timeout=30.0)
    assert (found.topic, found.error, found.tries, found.seconds) == ("orders.error", "ProduceError: no", 3, 1.0)
    troubles.landed("orders.error", 11.0)
    # Another record's copy may still fail: a single one that landed says too little yet.
    assert troubles.now(11.0, is_pending=True, timeout=30.0)
    assert troubles.now(11.0, is_pending=False, timeout=30.0) == []
    assert troubles.now(11.0, is_pending=True, timeout=30.0) == []


@pytest.mark.parametrize(("has_landed", "seconds"), [(True, 7), (False, 43)])
def test_a_topic_that_takes_copies_again_is_well(has_landed, seconds):
    """Soon after one has landed; and without one only when no try can be under way any more."""
    troubles = Troubles()
    troubles.failed("orders.error", "ProduceError: no", 1, now=10.0)
    if has_landed:
        troubles.landed("orders.error", 10.5)
    assert troubles.now(10.0 + seconds - 2, is_pending=True, timeout=30.0)
    assert troubles.now(10.0 + seconds, is_pending=True, timeout=30.0) == []
