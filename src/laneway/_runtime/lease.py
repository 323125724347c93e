"""Lease: for how long calls may begin without a sign that the group still counts this process as a member."""

from __future__ import annotations

import time

__all__ = ["Lease"]

# It advances while a process is stopped and, where available, while the machine sleeps.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Lease:
    """Whether this process surely owns its partitions.

    The group reassigns them when a member is silent for its session timeout. A process that was stopped for longer
    (SIGSTOP, a paused container) does not notice: when it continues, its lanes wake up together with the polling
    thread. So nothing begins and nothing is sent when the last poll is too old. Another poll does
    not change it, since it may return before the client knows; only an answer of the group does.

    One thread renews it, any may ask.

    Args:
        seconds: how old the last poll may be: less than the session time-out, which counts from the last heartbeat.
    """

    __slots__ = ("_seconds", "_until")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = self.now() + seconds

    @staticmethod
    def now() -> float:
        """The time by which it runs out."""
        return time.clock_gettime(_CLOCK)

    @property
    def is_valid(self) -> bool:
        """Whether calls may begin and messages be sent."""
        return self.now() < self._until

    def renew(self) -> bool:
        """The consumer has polled; False, and nothing changes, when that was too late."""
        now = self.now()
        if now >= self._until:
            return False
        self._until = now + self._seconds
        return True

    def confirm(self, at: float) -> None:
        """The group has answered a question that was sent at this time, or nothing is owned."""
        self._until = at + self._seconds
