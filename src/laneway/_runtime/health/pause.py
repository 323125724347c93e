"""PauseControl: whether anything is read now, as was asked for and as the check says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from laneway._declare.state import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._runtime.health.check import HealthCheck
    from laneway._runtime.lifecycle import Lifecycle

__all__ = ["Pausable", "PauseControl"]


class Pausable(Protocol):
    """What a pause holds back. Any thread may call it."""

    def pause(self, *, on: bool) -> None:
        """Begin nothing for now, or go on."""
        ...

    @property
    def is_quiet(self) -> bool:
        """Whether a pause was asked for and nothing runs any more."""
        ...


class PauseControl:
    """Pauses and resumes what runs. Any thread may call `apply`; the engine's own does so all the time.

    There is no lock: a listener that hears of a state may pause the engine again. So two threads may get in each
    other's way, and the next time that the engine's own thread looks it is put right.

    Args:
        life: the engine's state.
    """

    def __init__(self, life: Lifecycle) -> None:
        self._life = life
        self._held: Sequence[Pausable] = ()
        self._check: HealthCheck | None = None
        self._is_on = False
        self.is_asked = False
        """Whether the user wants a pause."""

    def attend(self, held: Sequence[Pausable], check: HealthCheck | None) -> None:
        """These are to be paused and resumed."""
        self._held, self._check = held, check
        self._is_on = False  # these are not paused yet

    def ask(self, *, on: bool) -> None:
        """The user wants a pause, or none any more."""
        self.is_asked = on
        self.apply()

    def apply(self) -> None:
        """Read or do not, and say so in the state."""
        trouble = None if self._check is None else self._check.trouble
        on = self.is_asked or trouble is not None
        if on != self._is_on:
            self._is_on = on
            for each in self._held:
                each.pause(on=on)
        if not on:
            self._life.move((State.PAUSING, State.PAUSED), State.CONSUMING)
            return
        words = "" if self.is_asked or trouble is None else trouble
        self._life.move((State.CONSUMING,), State.PAUSING, words)
        if self._life.state is State.PAUSING and all(each.is_quiet for each in self._held):
            self._life.move((State.PAUSING,), State.PAUSED, words)
