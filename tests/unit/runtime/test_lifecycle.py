"""The states of an engine."""

from __future__ import annotations

import threading
import time

from laneway._declare.state import State
from laneway._runtime.lifecycle import Lifecycle


class Listener:
    """Keeps the states that it hears of."""

    def __init__(self, told):
        self._told = told

    def event(self, event):
        self._told.append((State(event.state), event.detail))


def test_a_new_engine_is_stopped():
    """Nothing runs before it is started."""
    life = Lifecycle()

    assert (life.state, life.detail) == (State.STOPPED, "")


def test_a_note_leaves_the_state_alone():
    """Another thread may have something to say while the engine is about to stop; told once."""
    told = []
    life = Lifecycle(Listener(told))
    life.enter(State.STOPPING, "finishing the running batch")
    life.note("an error run failed")
    life.note("an error run failed")

    assert (life.state, life.detail) == (State.STOPPING, "an error run failed")
    assert told[1:] == [(State.STOPPING, "an error run failed")]


def test_each_change_is_told_once():
    """Entering the same state with the same detail again is no change."""
    told = []
    life = Lifecycle(Listener(told))
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
    life = Lifecycle()
    seen = []
    waiter = threading.Thread(target=lambda: seen.append(life.wait_for(State.CONSUMING, 5)))
    waiter.start()
    life.enter(State.STARTING)
    life.enter(State.CONSUMING)
    waiter.join()

    assert seen == [True]
    assert life.wait_for(State.CONSUMING, 0)
    assert not life.wait_for(State.STOPPED, 0)


def test_a_state_that_is_over_again_was_still_reached():
    """Who waits for a state that lasts a moment is told, however late the waiting thread gets its turn."""
    life = Lifecycle()
    seen = []
    waiter = threading.Thread(target=lambda: seen.append(life.wait_for(State.STARTING, 20)))
    waiter.start()
    while not life._condition._waiters:
        time.sleep(0.001)
    with life._condition:  # the waiter cannot look in between
        life.enter(State.STARTING)
        life.enter(State.CONSUMING)
    waiter.join()

    assert seen == [True]


def test_a_state_that_was_left_before_does_not_count():
    """Who begins to wait later waits for the next time."""
    life = Lifecycle()
    life.enter(State.STARTING)
    life.enter(State.CONSUMING)

    assert not life.wait_for(State.STARTING, 0)


def test_a_move_happens_only_from_where_it_was_meant():
    """Another thread may have stopped the engine meanwhile; it is not taken back to work."""
    told = []
    life = Lifecycle(Listener(told))
    life.enter(State.STOPPING)

    assert not life.move((State.PAUSING, State.PAUSED), State.CONSUMING)
    assert life.state is State.STOPPING
    assert life.move((State.STOPPING,), State.STOPPED, "done")
    assert (life.state, life.detail) == (State.STOPPED, "done")
    assert told == [(State.STOPPING, ""), (State.STOPPED, "done")]


def test_a_note_may_replace_only_the_one_it_knows():
    """What is over is taken back, and not what was said since."""
    life = Lifecycle()
    life.note("cannot write to orders.error")
    life.note("waiting for topic orders")
    life.note("", instead_of="cannot write to orders.error")
    assert life.detail == "waiting for topic orders"

    life.note("", instead_of="waiting for topic orders")
    assert life.detail == ""
