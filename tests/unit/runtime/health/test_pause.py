"""Pauses, as they were asked for and as a check demands them."""

from __future__ import annotations

from types import SimpleNamespace

from laneway._runtime.controls import PauseControl
from laneway._runtime.lifecycle import Lifecycle, State


class Switch:
    """What can be paused, with or without calls that run."""

    def __init__(self):
        self.is_quiet, self.paused = False, []

    def pause(self, *, on):
        self.paused.append(on)


def held(check=None):
    life, crew = Lifecycle(), Switch()
    life.enter(State.CONSUMING)
    hold = PauseControl(life)
    hold.watch([crew], check)
    return hold, life, crew


def test_a_pause_is_over_when_nothing_runs():
    """Pausing while calls run, paused when they have ended, and back at once."""
    hold, life, crew = held()
    hold.is_requested = True
    hold.apply()
    assert life.state is State.PAUSING
    hold.apply()
    assert life.state is State.PAUSING

    crew.is_quiet = True
    hold.apply()
    assert life.state is State.PAUSED
    crew.is_quiet = False  # a try that had been put off
    hold.apply()
    assert life.state is State.PAUSED

    hold.is_requested = False
    hold.apply()
    assert (life.state, crew.paused) == (State.CONSUMING, [True, False])


def test_a_bad_check_pauses_with_its_words_and_resumes_by_itself():
    """What the user asked for counts besides: a good check does not end a pause."""
    check = SimpleNamespace(trouble="the check 'bank' returned false")
    hold, life, crew = held(check)
    crew.is_quiet = True
    hold.apply()
    assert (life.state, life.detail) == (State.PAUSED, "the check 'bank' returned false")

    hold.is_requested, check.trouble = True, None
    hold.apply()
    assert life.state is State.PAUSED
    hold.is_requested = False
    hold.apply()
    assert (life.state, life.detail, crew.paused) == (State.CONSUMING, "", [True, False])


def test_a_stopping_engine_is_not_paused():
    """Nothing takes it back from its end."""
    hold, life, _ = held()
    life.enter(State.STOPPING)
    hold.is_requested = True
    hold.apply()
    hold.is_requested = False
    hold.apply()

    assert life.state is State.STOPPING
