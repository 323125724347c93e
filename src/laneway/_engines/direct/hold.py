"""Hold: whether anything is read now, as was asked for and as the check says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway._runtime.lifecycle import State
from laneway._runtime.worker_loop import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._engines.direct.check import HealthCheck
    from laneway._engines.direct.crew import Crew
    from laneway._engines.direct.errors import DirectErrorSchedule
    from laneway._runtime.lifecycle import Lifecycle

__all__ = ["Hold"]


class Hold:
    """Pauses and resumes what runs. Any thread may call `apply`; the engine's own does so all the time.

    There is no lock: whoever is told of a state may pause the engine again. So two threads may get in each other's way,
    and the next time that the engine's own thread looks it is put right.

    Args:
        life: the engine's state.
    """

    def __init__(self, life: Lifecycle) -> None:
        self._life = life
        self._crews: Sequence[Crew] = ()
        self._errors: DirectErrorSchedule | None = None
        self._check: HealthCheck | None = None
        self._is_on = False
        self.is_asked = False
        """Whether the user wants a pause."""

    def attend(self, crews: Sequence[Crew], errors: DirectErrorSchedule | None, check: HealthCheck | None) -> None:
        """These are to be paused and resumed."""
        self._crews, self._errors, self._check = crews, errors, check
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
            for crew in self._crews:
                crew.worker_loop.request(Request.PAUSE if on else Request.RESUME)
            if self._errors is not None:
                self._errors.pause(on=on)
        if not on:
            self._life.move((State.PAUSING, State.PAUSED), State.CONSUMING)
            return
        words = "" if self.is_asked or trouble is None else trouble
        self._life.move((State.CONSUMING,), State.PAUSING, words)
        if self._life.state is State.PAUSING and all(crew.is_quiet for crew in self._crews):
            self._life.move((State.PAUSING,), State.PAUSED, words)
