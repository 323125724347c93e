"""Lifecycle: the state of an engine, and the signals that stop it."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from laneway._declare.state import State
from laneway.observe import StateChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from laneway.observe import Listener

__all__ = ["Lifecycle", "install_stop_signals", "stop_signals"]

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Lifecycle:
    """An engine's state. Any thread may ask or wait; the engine's thread changes it."""

    def __init__(self, listener: Listener | None = None) -> None:
        self._state = State.STOPPED
        self._detail = ""
        self._condition = threading.Condition()
        self._listener = listener
        self._entered = dict.fromkeys(State, 0)

    @property
    def state(self) -> State:
        return self._state

    @property
    def detail(self) -> str:
        """What the engine waits for; empty when nothing is unusual."""
        return self._detail

    def count(self, state: State) -> int:
        """How often it has entered a state."""
        return self._entered[state]

    def enter(self, state: State, detail: str = "") -> None:
        """Set the state, or only the detail."""
        self.move(State, state, detail)

    def move(self, before: Collection[State] | type[State], state: State, detail: str = "") -> bool:
        """Set the state, but only from one of the states *before*: another thread may have changed it.

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
        """Set only the detail. Any thread may call it.

        With *instead_of* only if that is the present detail.
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
        """Wait until the engine enters *state*, or is in it; False after the timeout."""
        with self._condition:
            before = self._entered[state]
            return self._condition.wait_for(lambda: self._state is state or self._entered[state] > before, timeout)

    def _say(self, state: State, detail: str) -> None:
        if self._listener is not None:
            self._listener.event(StateChanged(state.value, detail))


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Stop on SIGINT and SIGTERM in this block, if this is the main thread; restore the handlers afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
    install_stop_signals(stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def install_stop_signals(stop: Callable[[], None]) -> None:
    """Install our signal handlers, or restore them if other code replaced them."""
    if threading.current_thread() is threading.main_thread():
        for number in _STOP_SIGNALS:
            signal.signal(number, lambda *_: stop())
