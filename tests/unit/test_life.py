"""The states of an engine."""

from __future__ import annotations

import threading

from laneway._life import Life, State


def test_a_new_engine_is_stopped():
    """Nothing runs before it is started."""
    life = Life()

    assert (life.state, life.detail) == (State.STOPPED, "")


def test_a_note_leaves_the_state_alone():
    """Another thread may have something to say while the engine is about to stop; told once."""
    told = []
    life = Life(lambda *change: told.append(change))
    life.enter(State.STOPPING, "finishing the running batch")
    life.note("an error run failed")
    life.note("an error run failed")

    assert (life.state, life.detail) == (State.STOPPING, "an error run failed")
    assert told[1:] == [(State.STOPPING, "an error run failed")]


def test_each_change_is_told_once():
    """Entering the same state with the same detail again is no change."""
    told = []
    life = Life(lambda *change: told.append(change))
    life.enter(State.INITIALISING, "waiting for brokers")
    life.enter(State.INITIALISING, "waiting for brokers")
    life.enter(State.INITIALISING, "waiting for topics")
    life.enter(State.CONSUMING)

    assert told == [
        (State.INITIALISING, "waiting for brokers"),
        (State.INITIALISING, "waiting for topics"),
        (State.CONSUMING, ""),
    ]
    assert life.detail == ""


def test_waiting_ends_when_the_state_is_reached():
    """A thread that waits is woken by the change; one that waits for something else runs out of time."""
    life = Life()
    seen = []
    waiter = threading.Thread(target=lambda: seen.append(life.wait_for(State.CONSUMING, 5)))
    waiter.start()
    life.enter(State.STARTING)
    life.enter(State.CONSUMING)
    waiter.join()

    assert seen == [True]
    assert life.wait_for(State.CONSUMING, 0)
    assert not life.wait_for(State.STOPPED, 0)
