"""EngineControls: stop, pause, start and health of an engine, by method and by signal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from laneway._declare.state import State
from laneway._declare.units import as_duration
from laneway._runtime.health.monitor import HealthMonitor
from laneway._runtime.health.pause import PauseControl
from laneway._runtime.lifecycle import Lifecycle
from laneway.errors import EngineError

if TYPE_CHECKING:
    from laneway._declare.health import Health, Stall
    from laneway._declare.units import Duration
    from laneway.observe import Listener

__all__ = ["EngineControls"]


class EngineControls:
    """What users ask of an engine, and how it is doing.

    Args:
        listener: hears of its states.
    """

    def __init__(self, listener: Listener) -> None:
        self.life = Lifecycle(listener)
        self._health = HealthMonitor(self.life)
        self._pause = PauseControl(self.life)
        self._stops = self._known_stops = 0
        self._is_deaf = self._is_closed = self._is_to_start = self._is_running = False
        self._wake = threading.Event()
        self.was_stopped = False
        """Whether the last run ended because it was asked to stop."""

    def stop(self) -> None:
        """Ask to stop. The first time what was begun is finished and committed; the second time it is not.

        While nothing runs it ends the next run at once. Any thread may call it.
        """
        self._stops += 1
        self._wake.set()

    def stop_listening(self) -> None:
        """Ask to read nothing more. What was begun is finished and committed, however long it takes.

        When the state is ``stopped``, nothing runs any more. `start` begins again; `close` or `stop` ends the run. On
        the direct engine the process is still in its group meanwhile, and no other process reads its partitions. Any
        thread may call it.
        """
        self._is_to_start, self._is_deaf = False, True
        self._wake.set()

    def start(self) -> None:
        """Ask to read again after `stop_listening`, once everything that was begun is finished. Any thread may call it.

        Raises:
            EngineError: no run is under way.
        """
        if not self._is_running:
            raise EngineError("nothing runs that could be started again; call app.run(engine)")
        self._is_to_start = self._is_deaf
        self._wake.set()

    def close(self) -> None:
        """Ask to leave, as `stop` does, but never by force; at the end the state is ``closed``.

        Any thread may call it.
        """
        self._is_closed = True
        self._stops = max(1, self._stops)
        self._wake.set()

    def pause(self) -> None:
        """Begin nothing until `resume`. Any thread may call it.

        The state is ``pausing`` until what was begun is finished, then ``paused``.
        """
        self._pause.ask(on=True)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._pause.ask(on=False)

    def wait_for(self, state: State, timeout: float | None = None) -> bool:
        """Wait until the engine is in *state*, or was for a moment meanwhile; False when it was not in time."""
        return self.life.wait_for(state, timeout)

    def health(self) -> Health:
        """How it is doing now, and why. Any thread may call it, before, during and after a run."""
        return self._health.health()

    def why(self, after: Duration = "1s") -> list[Stall]:
        """What stands still for at least so long, and what it waits for; the longest first. Any thread may call it."""
        return self._health.why(as_duration(after).total_seconds())

    @property
    def is_interrupted(self) -> bool:
        """Whether it was asked to stop."""
        return self._stops > 0

    @property
    def is_forced(self) -> bool:
        """Whether it was asked to stop again, since it began to do so."""
        return self._stops > max(1, self._known_stops)

    def _began(self) -> None:
        self._known_stops, self._is_running = 0, True

    def _ended(self) -> None:
        state = State.CLOSED if self._is_closed else State.STOPPED
        self.was_stopped = self._stops > 0
        # What ended this run must not end the next one. Before the state: who waits for it may start the next run.
        self._stops, self._is_deaf, self._is_closed = 0, False, False
        self._is_to_start = self._is_running = False
        self._wake.clear()
        self.life.enter(state)

    def _signalled(self) -> None:
        """As `stop`, by a signal: it may have come while this very thread held the event's lock, so only a count."""
        self._stops += 1

    def _is_stopping(self) -> bool:
        return self._stops > 0 or self._is_deaf
