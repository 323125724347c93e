"""ErrorLog: what it commits when a command has dealt with records."""

from __future__ import annotations

import pytest

from laneway.admin import _error_log as _log
from laneway.admin._error_log import ErrorLog
from laneway.admin._error_topic import ErrorTopic
from laneway.settings import load

TOPIC = "orders.billing.error"


class Group:
    """The offsets of a group."""

    def __init__(self, *_):
        self.offsets = {}

    def known(self, places):
        return {place: said for place, said in self.offsets.items() if place in places}

    def commit_all(self, offsets, *, wait):
        assert wait
        self.offsets |= offsets


@pytest.mark.parametrize(
    ("before", "offset", "after"),
    [
        (None, 5, (5, "L1c")),  # nothing was dealt with before
        ((3, "L1c"), 5, (5, "L1c")),
        ((3, ""), 5, (5, "L1c")),  # reset, and dealt with since
        ((3, "L1u~77"), 5, (5, "L1u~77")),  # a run was killed: its copies past the offset are still its own
        ((3, "L1rAQE~77"), 5, (5, "L1u~77")),  # its map belongs to the old offset
        ((5, "L1rAQE~77"), 5, (5, "L1rAQE~77")),  # committed again before Kafka forgets it
        ((5, ""), 5, (5, "")),
    ],
)
def test_a_commit_keeps_what_was_said(monkeypatch, before, offset, after):
    """An offset alone would look like a reset, and what a killed run has copied would be copied again."""
    monkeypatch.setattr(_log, "GroupOffsets", Group)
    monkeypatch.setattr(_log, "Admin", lambda *_: None)
    log = ErrorLog(ErrorTopic("billing", TOPIC, load().cluster(), ("orders",)))
    if before is not None:
        log._offsets.offsets[TOPIC, 0] = before
    log.commit(0, offset)
    assert log._offsets.offsets == {(TOPIC, 0): after}
