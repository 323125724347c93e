"""EngineControls: stop, pause, start and health of an engine, by method, signal and health check."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from laneway._declare.state import State
from laneway._declare.units import as_duration
from laneway._runtime.health.monitor import HealthMonitor
from laneway._runtime.lifecycle import Lifecycle
from laneway.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._declare.health import Health, Stall
    from laneway._declare.units import Duration
    from laneway._runtime.health.check import CheckAnswer
    from laneway.observe import Listener

__all__ = ["EngineControls", "Pausable", "PauseControl"]


class EngineControls:
    """Stop, pause, start and health of an engine."""

    def __init__(self, listener: Listener) -> None:
        self.life = Lifecycle(listener)
        self._health = HealthMonitor(self.life)
        self._pause = PauseControl(self.life)
        self._stops = self._seen_stops = 0
        self._is_not_listening = self._is_closed = self._start_requested = self._is_running = False
        self._wake = threading.Event()
        self.was_stopped = False
        """Whether the last run ended because of a stop request."""

    def stop(self) -> None:
        """Request a stop. The first request finishes and commits what is in flight; the second one stops at once.

        While nothing runs, it ends the next run at once. Any thread may call it.
        """
        self._stops += 1
        self._wake.set()

    def stop_listening(self) -> None:
        """Stop reading, and stay in the run. Records in flight are finished and committed without a time limit.

        The state becomes ``stopped`` when nothing runs any more. `start` reads again; `close` or `stop` ends the run.
        On the direct engine the process stays in its group and keeps its partitions. Any thread may call it.
        """
        self._start_requested, self._is_not_listening = False, True
        self._wake.set()

    def start(self) -> None:
        """Read again after `stop_listening`, as soon as the records in flight are finished. Any thread may call it.

        Raises:
            EngineError: no run is active.
        """
        if not self._is_running:
            raise EngineError("no run is active; call app.run(engine)")
        self._start_requested = self._is_not_listening
        self._wake.set()

    def close(self) -> None:
        """Stop as `stop` does, but never by force; the final state is ``closed``. Any thread may call it."""
        self._is_closed = True
        self._stops = max(1, self._stops)
        self._wake.set()

    def pause(self) -> None:
        """Start no call until `resume`. Any thread may call it.

        The state is ``pausing`` until the calls in flight are finished, then ``paused``.
        """
        self._pause.request(on=True)

    def resume(self) -> None:
        """Continue after `pause`."""
        self._pause.request(on=False)

    def wait_for(self, state: State, timeout: float | None = None) -> bool:
        """Wait until the engine enters *state*, or is in it; False after the timeout."""
        return self.life.wait_for(state, timeout)

    def health(self) -> Health:
        """The health now. Any thread may call it, before, during and after a run."""
        return self._health.health()

    def why(self, after: Duration = "1s") -> list[Stall]:
        """The partitions without progress for this long, and the cause; the longest first. Any thread may call it."""
        return self._health.why(as_duration(after).total_seconds())

    @property
    def is_interrupted(self) -> bool:
        """Whether a stop was requested."""
        return self._stops > 0

    @property
    def is_forced(self) -> bool:
        """Whether a second stop was requested."""
        return self._stops > max(1, self._seen_stops)

    def _began(self) -> None:
        self._seen_stops, self._is_running = 0, True

    def _ended(self) -> None:
        state = State.CLOSED if self._is_closed else State.STOPPED
        self.was_stopped = self._stops > 0
        # Before the state changes: a thread that waits for it may start the next run, which these must not stop.
        self._stops, self._is_not_listening, self._is_closed = 0, False, False
        self._start_requested = self._is_running = False
        self._wake.clear()
        self.life.enter(state)

    def _signalled(self) -> None:
        """Stop because of a signal. It takes no lock: the signal may interrupt the thread that holds it."""
        self._stops += 1

    def _is_stopping(self) -> bool:
        return self._stops > 0 or self._is_not_listening


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
    """

    def __init__(self, life: Lifecycle) -> None:
        self._life = life
        self._targets: Sequence[Pausable] = ()
        self._check: CheckAnswer | None = None
        self._is_on = False
        self.is_requested = False
        """Whether the user requested a pause."""

    def watch(self, targets: Sequence[Pausable], check: CheckAnswer | None) -> None:
        """Set what is paused and resumed."""
        self._targets, self._check = targets, check
        self._is_on = False  # these are not paused yet

    def request(self, *, on: bool) -> None:
        self.is_requested = on
        self.apply()

    def apply(self) -> None:
        """Pause or resume if necessary, and update the state."""
        trouble = None if self._check is None else self._check.trouble
        on = self.is_requested or trouble is not None
        if on != self._is_on:
            self._is_on = on
            for each in self._targets:
                each.pause(on=on)
        if not on:
            self._life.move((State.PAUSING, State.PAUSED), State.CONSUMING)
            return
        text = "" if self.is_requested or trouble is None else trouble
        self._life.move((State.CONSUMING,), State.PAUSING, text)
        if self._life.state is State.PAUSING and all(each.is_quiet for each in self._targets):
            self._life.move((State.PAUSING,), State.PAUSED, text)
