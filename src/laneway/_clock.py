"""Clock: the time as a parameter, so that tests can control it."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock", "WaitingClock"]


class Clock(Protocol):
    """The time. `monotonic` never jumps and is for pauses; `wall` is for timestamps."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""

    def wall(self) -> float:
        """Seconds since the epoch."""


class WaitingClock(Clock, Protocol):
    """A clock that can be waited with."""

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    sleep = staticmethod(time.sleep)
