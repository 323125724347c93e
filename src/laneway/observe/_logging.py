"""Log lines: one logger per room, and a limit on how often the same trouble is logged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from laneway._clock import Clock

__all__ = ["RateLimit", "logger"]


def logger(room: str) -> logging.Logger:
    """The logger of a room, such as ``laneway.kafka``. The CLI shows it; a library user configures it as any other."""
    return logging.getLogger(f"laneway.{room}")


class RateLimit:
    """Limits how often the same subject is logged.

    Args:
        clock: the time.
        every: seconds between two lines about the same subject.
    """

    def __init__(self, clock: Clock, every: float = 10.0) -> None:
        self._clock = clock
        self._every = every
        self._last: dict[Hashable, float] = {}

    def allows(self, subject: Hashable) -> bool:
        """Whether to log this subject now; the caller must then log it."""
        now = self._clock.monotonic()
        last = self._last.get(subject)
        if last is not None and now - last < self._every:
            return False
        self._last[subject] = now
        return True

    def forget(self, subject: Hashable) -> None:
        """Forget a subject that is over, so that it is logged at once when it returns."""
        self._last.pop(subject, None)
