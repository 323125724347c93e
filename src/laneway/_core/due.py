"""DueEnds: how far a delay topic may be read."""

from __future__ import annotations

from collections import deque

__all__ = ["DueEnds"]

_SAMPLES = 200  # looks that are remembered over the length of the delay: a record waits half a percent of it longer
_SHORTEST = 0.25  # seconds between two of them


class DueEnds:
    """Remembers when each end of the logs was first seen.

    Kafka's index of timestamps says which records are old enough, also after a restart. But one record whose timestamp
    lies in the future, or a clock that was set back, would hold up everything behind it. What has been in the log for
    the whole delay by this process's own steady clock is due whatever its timestamp says.

    Args:
        delay: seconds that a record must wait.
        gap: seconds between two looks that are remembered.
    """

    def __init__(self, delay: float, gap: float | None = None) -> None:
        self._delay = delay
        self._gap = max(_SHORTEST, delay / _SAMPLES) if gap is None else gap
        self._seen: deque[tuple[float, dict[int, int]]] = deque()

    def saw(self, ends: dict[int, int], now: float) -> None:
        """The logs end here at this time of the steady clock."""
        if not self._seen or (ends != self._seen[-1][1] and now - self._seen[-1][0] >= self._gap):
            self._seen.append((now, dict(ends)))

    def waited(self, now: float) -> dict[int, int]:
        """The ends of what has waited long enough, as far as it was seen."""
        while len(self._seen) > 1 and self._seen[1][0] <= now - self._delay:
            self._seen.popleft()
        return self._seen[0][1] if self._seen and self._seen[0][0] <= now - self._delay else {}
