"""Commits one after the other."""

from __future__ import annotations

import threading

from laneway.engines.direct._committer import Committer
from laneway.kafka import BrokerAbsentError
from support.waiting import eventually

PLACE = ("orders", 0)


def test_the_next_commit_waits_for_the_answer_to_the_last():
    """What is offered meanwhile is refused, so that the next one says everything that is known by then."""
    goes, made = threading.Event(), []

    def commit(offsets):
        goes.wait(20)
        made.append(offsets)

    committer = Committer(commit)
    assert committer.offer({PLACE: (1, "")})
    assert not committer.offer({PLACE: (2, "")})
    assert not committer.wait(0.01)
    assert committer.answers() == []
    goes.set()
    assert committer.wait(20)
    assert committer.answers() == [({PLACE: (1, "")}, None)]
    assert committer.offer({PLACE: (3, "")})
    assert committer.wait(20)
    assert made == [{PLACE: (1, "")}, {PLACE: (3, "")}]
    committer.end()
    assert not committer.offer({PLACE: (4, "")})


def test_a_commit_that_fails_is_told():
    """And the next one is taken all the same."""
    error = BrokerAbsentError("away")

    def commit(offsets):
        if offsets[PLACE][0] == 1:
            raise error

    committer = Committer(commit)
    committer.offer({PLACE: (1, "")})
    assert eventually(committer.answers, timeout=20) == [({PLACE: (1, "")}, error)]
    eventually(lambda: committer.offer({PLACE: (2, "")}), timeout=20)
    assert eventually(committer.answers, timeout=20) == [({PLACE: (2, "")}, None)]
    committer.end()
