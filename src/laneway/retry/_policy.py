"""Whether a failed record is tried again, when, or parked."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from laneway._units import Duration, as_duration
from laneway.errors import CodecError, DeclarationError, Reject, RetryAfter

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Park", "Retry", "TryAgain", "Verdict", "judge"]


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how fast a failed record is tried again in place, while its key waits and other keys go on.

    Args:
        attempts: calls of the handler in all, the first included. 1 by default: a failed record is parked at once,
            because a handler that is not idempotent must not be repeated unasked.
        backoff: pause before the first retry; doubles with each further one.
        backoff_max: the pause never grows beyond this.
        jitter: part of each pause that is random, 0 to 1, so that keys that failed together do not return together.

    Example:
        >>> Retry(attempts=3, backoff="100ms", jitter=0).pause(attempt=2)
        datetime.timedelta(microseconds=200000)
    """

    attempts: int = 1
    backoff: Duration = "100ms"
    backoff_max: Duration = "10s"
    jitter: float = 0.2
    first: timedelta = field(init=False, repr=False, compare=False)
    most: timedelta = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check and keep the parsed durations."""
        if self.attempts < 1:
            raise DeclarationError(
                f"Retry(attempts={self.attempts}): attempts counts the first call, so it is 1 or more"
            )
        if not 0 <= self.jitter <= 1:
            raise DeclarationError(f"Retry(jitter={self.jitter}): jitter is between 0 and 1")
        try:
            object.__setattr__(self, "first", as_duration(self.backoff))
            object.__setattr__(self, "most", as_duration(self.backoff_max))
        except ValueError as error:
            raise DeclarationError(f"Retry: {error}") from error

    def pause(self, attempt: int, rng: Callable[[], float] = random.random) -> timedelta:
        """How long to wait after the given attempt has failed."""
        # In seconds, because a timedelta overflows; the cap keeps a large attempt count from overflowing a float.
        full = min(self.first.total_seconds() * 2.0 ** min(attempt - 1, 62), self.most.total_seconds())
        return timedelta(seconds=full * (1 - self.jitter * rng()))


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The verdict that a record is tried again after a pause."""

    pause: timedelta


@dataclass(frozen=True, slots=True)
class Park:
    """The verdict that a record goes to the error topic."""


Verdict = TryAgain | Park


def judge(error: BaseException, attempt: int, retry: Retry) -> Verdict:
    """Decide what becomes of a record that failed. The one place where that question is answered.

    A rejected or undecodable record is parked at once, because trying again cannot help.
    """
    if isinstance(error, (Reject, CodecError)) or attempt >= retry.attempts:
        return Park()
    if isinstance(error, RetryAfter):
        delay = error.delay
        try:
            return TryAgain(timedelta(seconds=delay) if isinstance(delay, (int, float)) else as_duration(delay))
        except (ValueError, OverflowError):
            pass  # a delay that is none must not end the run: the record would fail the same way after each restart
    return TryAgain(retry.pause(attempt))
