"""Breaker: when a handler is not called for a while, because what it depends on is down."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from laneway._declare.units import Duration, as_duration
from laneway.errors import DeclarationError, Unacknowledged

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway._declare.retry import Retry

__all__ = ["Breaker", "is_failure"]

_SHORTEST = timedelta(milliseconds=10)  # a shorter pause would keep a core busy with probes


@dataclass(frozen=True, slots=True)
class Breaker:
    """Stops calling a handler that fails again and again, and probes until it succeeds.

    Retries are for a record that fails, a breaker is for a dependency that is down: while it is open, nothing is called
    and nothing more is read, so an outage does not park the topic. After *pause* one call is made; when it succeeds
    the work goes on, else the next one is made after a pause twice as long.

    What fails because of the outage costs its record nothing: the call that opens the breaker, those under way at that
    moment, and probes use up no attempt and park nothing. So an outage parks at most ``failures - 1`` records.

    Each process counts for itself. A success, or `Skip`, begins the count anew. `Reject`, `CodecError` and what is not
    `Retry.retriable` are the record's own fault and count neither way; every other error counts, `RetryAfter` and a
    time limit too. A batch has failed when no record of it was handled.

    Args:
        failures: calls that fail one after the other before it opens. Above the attempts of a record, or a single bad
            record opens it; then it stays open until a record of another key, or a later version, succeeds.
        pause: how long nothing is called; doubles with each probe that fails. At least 10 ms.
        pause_max: the pause never grows beyond this, or beyond *pause* when that is longer.
        when: told of each error that counts; True opens the breaker at once. A quick, picklable function.

    Example:
        >>> Breaker(failures=3, pause="5s", pause_max="12s").pause_after(probes=2)
        datetime.timedelta(seconds=12)
    """

    failures: int = 10
    pause: Duration = "5s"
    pause_max: Duration = "1m"
    when: Callable[[Exception], bool] | None = None
    first: timedelta = field(init=False, repr=False, compare=False)
    most: timedelta = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check and keep the parsed durations."""
        if self.failures < 1:
            raise DeclarationError(f"Breaker(failures={self.failures}): it opens after 1 failed call or more")
        if self.when is not None and not callable(self.when):
            raise DeclarationError(f"Breaker(when={self.when!r}): give a function of the error")
        try:
            object.__setattr__(self, "first", as_duration(self.pause))
            object.__setattr__(self, "most", max(self.first, as_duration(self.pause_max)))
        except ValueError as error:
            raise DeclarationError(f"Breaker: {error}") from error
        if self.first < _SHORTEST:
            raise DeclarationError(f"Breaker(pause={self.pause!r}): use 10ms or more, or probes never rest")

    def pause_after(self, probes: int) -> timedelta:
        """How long nothing is called after so many probes have failed."""
        # The cap keeps a float from overflowing, and a timedelta with it.
        return timedelta(seconds=min(self.first.total_seconds() * 2.0 ** min(probes, 62), self.most.total_seconds()))


def is_failure(error: BaseException, retry: Retry) -> bool:
    """Whether an error counts against the handler, and not against the record: then trying again may help."""
    return not isinstance(error, Unacknowledged) and retry.is_retriable(error)
