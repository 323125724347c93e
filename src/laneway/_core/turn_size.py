"""TurnSize: how long a call takes, and so how much a lane is given at once."""

from __future__ import annotations

__all__ = ["TurnSize"]

_MOST_A_TURN = 512  # records; more would not be faster, and a turn that fails late would give back more
_FIRST = 3  # calls before the pace is believed
_SLICE = 0.002  # seconds of work a lane takes at once: short enough that no other key waits noticeably


class TurnSize:
    """Seconds a call takes, smoothed; rises at once and falls slowly, so a slow handler is never given too much.

    But for the first calls, of which the last counts: the very first may open a connection or import a module.
    """

    __slots__ = ("_calls", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        """0 until the first call is over."""
        self._calls = 0

    @property
    def is_believed(self) -> bool:
        """Whether enough calls were seen, here or before."""
        return self._calls >= _FIRST

    def learn(self, seconds: float) -> None:
        """Take over what is known from before; 0 when nothing is."""
        self.seconds = seconds
        self._calls = _FIRST if seconds else 0

    def saw(self, calls: int, seconds: float) -> None:
        """So many calls took so long."""
        if calls:
            pace = seconds / calls
            counts_alone = pace > self.seconds or not self.is_believed
            self._calls += calls
            self.seconds = pace if counts_alone else self.seconds * 0.9 + pace * 0.1

    def most_a_turn(self, ready: int, lanes: int) -> int:
        """As many records as a lane can work through in one slice, but never the work that free lanes could begin."""
        if not self.seconds:
            return 1  # not known yet: several slow calls in a row would keep the other lanes idle
        if self.seconds * _MOST_A_TURN < _SLICE:
            return _MOST_A_TURN
        return max(1, min(int(_SLICE / self.seconds), ready // lanes))
