"""Life: which state an engine is in, and waiting for one."""

from __future__ import annotations

import threading
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Life", "State"]


class State(Enum):
    """The states an engine goes through."""

    INITIALISING = "initialising"
    """Waiting for brokers and topics."""
    STARTING = "starting"
    """Clients or a Spark session are being made."""
    CONSUMING = "consuming"
    """Records are being handled."""
    PAUSED = "paused"
    """Asked to handle nothing for now."""
    STOPPING = "stopping"
    """Asked to stop: what runs is finished and committed."""
    STOPPED = "stopped"
    """Nothing runs."""


class Life:
    """One engine's state. Any thread may ask or wait; the engine's own thread changes it."""

    def __init__(self, changed: Callable[[State, str], None] | None = None) -> None:
        self._state = State.STOPPED
        self._detail = ""
        self._condition = threading.Condition()
        self._changed = changed

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
        with self._condition:
            if (state, detail) == (self._state, self._detail):
                return
            self._state, self._detail = state, detail
            self._condition.notify_all()
        if self._changed is not None:
            self._changed(state, detail)

    def note(self, detail: str) -> None:
        """Change only the detail, whatever the state is. Any thread may call it."""
        with self._condition:
            state, before = self._state, self._detail
            self._detail = detail
            self._condition.notify_all()
        if self._changed is not None and detail != before:
            self._changed(state, detail)

    def wait_for(self, state: State, timeout: float | None = None) -> bool:
        """Wait until the engine is in *state*; False when it was not in time."""
        with self._condition:
            return self._condition.wait_for(lambda: self._state is state, timeout)
