"""RateLimit: at most so many records per second, evenly spread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from laneway._clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway._clock import Clock

__all__ = ["RateLimit"]

_NAP = 0.1  # seconds of one sleep; a stop is checked in between


class RateLimit:
    """Makes the caller wait for its turn. Unused time does not allow a burst later.

    Args:
        rate: turns per second; None for no limit.
        clock: the time.
        sleep: what waits.
    """

    def __init__(
        self, rate: float | None = None, clock: Clock | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._interval = 1 / rate if rate else 0.0
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._next = self._clock.monotonic()

    def await_turn(self, is_stopping: Callable[[], bool]) -> bool:
        """Wait for the next turn; False when a stop comes first."""
        while (left := self._next - self._clock.monotonic()) > 0:
            if is_stopping():
                return False
            self._sleep(min(left, _NAP))
        self._next = max(self._next, self._clock.monotonic() - self._interval) + self._interval
        return not is_stopping()
