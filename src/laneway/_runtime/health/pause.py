"""PauseControl: whether anything is read now, as was asked for and as the check says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from laneway._runtime.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._runtime.health.check import HealthCheck
    from laneway._runtime.lifecycle import Lifecycle

__all__ = ["Pausable", "PauseControl"]


class Pausable(Protocol):
    """What a pause applies to."""

    def pause(self, *, on: bool) -> None:
        """Start no call for now, or continue."""

    @property
    def is_quiet(self) -> bool:
        """Whether a requested pause is in effect and nothing runs."""


class PauseControl:
    """Pauses and resumes processing, as the user and the health check require.

    Any thread may call `apply`; the engine's thread calls it all the time. It has no lock, because a listener of a
    state may pause the engine again. If two threads interfere, the next call on the engine's thread corrects it.

    Args:
        life: the engine's state.
    """

    def __init__(self, life: Lifecycle) -> None:
        self._life = life
        self._held: Sequence[Pausable] = ()
        self._check: HealthCheck | None = None
        self._is_on = False
        self.is_asked = False
        """Whether the user requested a pause."""

    def attend(self, held: Sequence[Pausable], check: HealthCheck | None) -> None:
        """Set what is paused and resumed."""
        self._held, self._check = held, check
        self._is_on = False  # these are not paused yet

    def ask(self, *, on: bool) -> None:
        self.is_asked = on
        self.apply()

    def apply(self) -> None:
        """Pause or resume if necessary, and update the state."""
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
