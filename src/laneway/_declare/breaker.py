"""Breaker: stops calls of a handler while its dependency is down."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from laneway._declare.units import Duration, as_duration
from laneway.errors import DeclarationError, Unacknowledged, UnavailableError

if TYPE_CHECKING:
    from laneway._declare.retry import Retry

__all__ = ["Breaker", "is_failure"]

_SHORTEST = timedelta(milliseconds=10)  # a shorter pause would keep a core busy with probes


@dataclass(frozen=True, slots=True)
class Breaker:
    """Circuit breaker: stops calling a handler that keeps failing, and probes until it succeeds.

    Retries are for a record that fails, a breaker is for a dependency that is down. While it is open, nothing is called
    and nothing more is read, so an outage does not park the topic. After *pause* one call is made. If it succeeds, the
    breaker closes; otherwise the next call comes after a pause twice as long.

    Failures caused by the outage cost a record nothing: the call that opens the breaker, calls in flight at that
    moment, and probes use no attempt and park nothing. So an outage parks at most ``failures - 1`` records.

    Each process counts for itself. A success or `Skip` resets the count. `Reject`, `CodecError` and errors that are not
    `Retry.retriable` are the record's own fault and do not count; every other error counts, also `RetryAfter` and a
    timeout. A batch has failed when no record of it was handled.

    Args:
        failures: consecutive failures that open it. Set it above the attempts of a record, or one bad record opens it;
            then it stays open until a record of another key, or a newer version of the app, succeeds.
        pause: how long nothing is called; doubles with each failed probe. At least 10 ms.
        pause_max: the longest pause; *pause* itself if that is longer.

    Example:
        >>> Breaker(failures=3, pause="5s", pause_max="12s").pause_after(probes=2)
        datetime.timedelta(seconds=12)
    """

    failures: int = 10
    pause: Duration = "5s"
    pause_max: Duration = "1m"
    first: timedelta = field(init=False, repr=False, compare=False)
    most: timedelta = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Validate, and keep the parsed durations."""
        if self.failures < 1:
            raise DeclarationError(f"Breaker(failures={self.failures}): it must be 1 or more")
        try:
            object.__setattr__(self, "first", as_duration(self.pause))
            object.__setattr__(self, "most", max(self.first, as_duration(self.pause_max)))
        except ValueError as error:
            raise DeclarationError(f"Breaker: {error}") from error
        if self.first < _SHORTEST:
            raise DeclarationError(
                f"Breaker(pause={self.pause!r}): it must be 10ms or more, or probes would keep a core busy"
            )

    def pause_after(self, probes: int) -> timedelta:
        """The pause after this many failed probes."""
        # The cap avoids an overflow of the float and of the timedelta.
        return timedelta(seconds=min(self.first.total_seconds() * 2.0 ** min(probes, 62), self.most.total_seconds()))


def is_failure(error: BaseException, retry: Retry) -> bool:
    """Whether an error counts against the handler and not against the record, so that a retry may help."""
    return not isinstance(error, (Unacknowledged, UnavailableError)) and retry.is_retriable(error)
