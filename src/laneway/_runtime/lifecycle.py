"""Lifecycle: which state an engine is in, and waiting for one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from laneway._declare.state import State
from laneway.observe import StateChanged

if TYPE_CHECKING:
    from collections.abc import Collection

    from laneway.observe import Listener

__all__ = ["Lifecycle", "State"]


class Lifecycle:
    """One engine's state. Any thread may ask or wait; the engine's own thread changes it.

    Args:
        listener: hears of each change at once, on the thread that made it.
    """

    def __init__(self, listener: Listener | None = None) -> None:
        self._state = State.STOPPED
        self._detail = ""
        self._condition = threading.Condition()
        self._listener = listener
        self._entered = dict.fromkeys(State, 0)
        """How often each state was entered."""

    @property
    def state(self) -> State:
        """The state now."""
        return self._state

    @property
    def detail(self) -> str:
        """What the engine is waiting for, in words; empty when nothing is unusual."""
        return self._detail

    def enter(self, state: State, detail: str = "") -> None:
        """Change the state, or only the detail."""
        self.move(State, state, detail)

    def move(self, before: Collection[State] | type[State], state: State, detail: str = "") -> bool:
        """As `enter`, but only from one of the states *before*: another thread may have changed it meanwhile.

        Returns:
            Whether it was in one of them.
        """
        with self._condition:
            if self._state not in before:
                return False
            if (state, detail) == (self._state, self._detail):
                return True
            self._entered[state] += state is not self._state
            self._state, self._detail = state, detail
            self._condition.notify_all()
        self._say(state, detail)
        return True

    def note(self, detail: str, instead_of: str | None = None) -> None:
        """Change only the detail, whatever the state is. Any thread may call it.

        Args:
            detail: what to say.
            instead_of: only if this is what it says now.
        """
        with self._condition:
            state, before = self._state, self._detail
            if instead_of is not None and before != instead_of:
                return
            self._detail = detail
            self._condition.notify_all()
        if detail != before:
            self._say(state, detail)

    def wait_for(self, state: State, timeout: float | None = None) -> bool:
        """Wait until the engine is in *state*, or was for a moment meanwhile; False when it was not in time."""
        with self._condition:
            before = self._entered[state]
            return self._condition.wait_for(lambda: self._state is state or self._entered[state] > before, timeout)

    def _say(self, state: State, detail: str) -> None:
        if self._listener is not None:
            self._listener.event(StateChanged(state.value, detail))
