"""How long a call takes, and how much a lane is given at once."""

from __future__ import annotations

import pytest

from laneway._core.turn import TurnSize


def test_a_slow_call_is_believed_at_once_and_fast_ones_slowly():
    """A handler that turned slow must not be given what it could do before."""
    pace = TurnSize()
    pace.saw(3, 0.003)
    pace.saw(1, 0.1)
    assert pace.seconds == pytest.approx(0.1)
    pace.saw(1, 0.001)
    assert pace.seconds == pytest.approx(0.0901)


def test_of_the_first_calls_the_last_counts():
    """The very first may open a connection, which says nothing of the others."""
    pace = TurnSize()
    pace.saw(1, 0.5)
    pace.saw(1, 0.00001)
    assert pace.seconds == pytest.approx(0.00001)


def test_what_was_told_is_believed_like_what_was_seen():
    """A task that is told the pace of the last one does not start to try again."""
    pace = TurnSize()
    pace.learn(0.02)
    assert pace.is_believed
    pace.saw(1, 0.00001)
    assert pace.seconds == pytest.approx(0.018001)
    pace.learn(0)
    assert not pace.is_believed


def test_a_turn_is_a_slice_of_time_and_leaves_work_for_the_other_lanes():
    """Where there are no others it is a whole slice: of few records, one that was held up would look slow."""
    pace = TurnSize()
    assert pace.most_a_turn(1000, 1) == 1
    pace.seconds = 0.00002
    assert pace.most_a_turn(1000, 100) == 10
    assert pace.most_a_turn(1000, 1) == 100
    pace.seconds = 0.02
    assert pace.most_a_turn(1000, 1) == 1
    pace.seconds = 1e-6
    assert pace.most_a_turn(1000, 100) == 512
