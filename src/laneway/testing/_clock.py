"""FakeClock: time that moves only when a test moves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway._declare.units import as_duration

if TYPE_CHECKING:
    from laneway._declare.units import Duration

__all__ = ["FakeClock"]

_EPOCH = 1_704_067_200.0  # 2024-01-01 00:00 UTC: any fixed day will do, as long as every test sees the same
_BOOT = 1_000.0  # never 0, which reads as "no time" in places


class FakeClock:
    """A clock that stands still until `advance` moves it. Not thread-safe.

    Example:
        >>> clock = FakeClock()
        >>> before = clock.wall()
        >>> clock.advance("1m30s")
        >>> clock.wall() - before
        90.0
    """

    def __init__(self) -> None:
        self._elapsed = 0.0

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        return _BOOT + self._elapsed

    def wall(self) -> float:
        """Seconds since the epoch; the first moment of 2024 at the start."""
        return _EPOCH + self._elapsed

    def advance(self, duration: Duration) -> None:
        """Move the time on. Nothing runs by that: `FakeKafka.advance` moves the same clock and runs what is due."""
        self._elapsed += as_duration(duration).total_seconds()

    def move_to(self, monotonic: float) -> None:
        """Move the time on to a moment of `monotonic`; a moment that has passed changes nothing."""
        self._elapsed = max(self._elapsed, monotonic - _BOOT)
