"""Whether a failed record is tried again, when, or parked."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from laneway._units import Duration, as_duration
from laneway.errors import CodecError, DeclarationError, Reject, RetryAfter

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Defer", "Mode", "Park", "Retry", "TryAgain", "Verdict", "judge"]

Mode = Literal["blocking", "topic", "park"]

_MOST_STEPS = 20  # each is a topic with as many partitions as its source


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how fast a failed record is tried again.

    `Retry` alone tries again in place, while the record's key waits and other keys go on. `Retry.steps` adds a ladder
    of longer delays.

    Args:
        attempts: calls of the handler in all, the first included; with steps, calls on each step. 1 by default: a
            failed record is parked at once, because a handler that is not idempotent must not be repeated unasked.
        backoff: pause before the first retry; doubles with each further one.
        backoff_max: the pause never grows beyond this.
        jitter: part of each pause that is random, 0 to 1, so that keys that failed together do not return together.
        delays: the delays of the steps; see `steps`.
        mode: where a record waits for its step; see `steps`.

    Example:
        >>> Retry(attempts=3, backoff="100ms", jitter=0).pause(attempt=2)
        datetime.timedelta(microseconds=200000)
    """

    attempts: int = 1
    backoff: Duration = "100ms"
    backoff_max: Duration = "10s"
    jitter: float = 0.2
    delays: tuple[timedelta, ...] = ()
    mode: Mode = "blocking"
    first: timedelta = field(init=False, repr=False, compare=False)
    most: timedelta = field(init=False, repr=False, compare=False)
    hops: int = field(init=False, repr=False, compare=False)
    """How many retry topics there are."""
    in_place: int = field(init=False, repr=False, compare=False)
    """Calls that a record has where it is read, before it goes to another topic."""

    def __post_init__(self) -> None:
        """Check and keep the parsed durations."""
        if self.attempts < 1:
            raise DeclarationError(
                f"Retry(attempts={self.attempts}): attempts counts the first call, so it is 1 or more"
            )
        if not 0 <= self.jitter <= 1:
            raise DeclarationError(f"Retry(jitter={self.jitter}): jitter is between 0 and 1")
        if self.mode not in ("blocking", "topic", "park"):
            raise DeclarationError(f"Retry(mode={self.mode!r}): use 'blocking', 'topic' or 'park'")
        try:
            object.__setattr__(self, "first", as_duration(self.backoff))
            object.__setattr__(self, "most", as_duration(self.backoff_max))
            object.__setattr__(self, "delays", tuple(as_duration(delay) for delay in self.delays))
        except ValueError as error:
            raise DeclarationError(f"Retry: {error}") from error
        if len(self.delays) > _MOST_STEPS:
            raise DeclarationError(f"Retry: {len(self.delays)} steps; {_MOST_STEPS} are the most")
        hops = 0 if self.mode == "blocking" else len(self.delays)
        object.__setattr__(self, "hops", hops)
        object.__setattr__(self, "in_place", self.attempts * (1 if hops else 1 + len(self.delays)))

    @classmethod
    def steps(
        cls,
        *delays: Duration,
        mode: Mode = "topic",
        attempts: int = 1,
        backoff: Duration = "100ms",
        backoff_max: Duration = "10s",
        jitter: float = 0.2,
    ) -> Retry:
        """A ladder: a record that failed is tried again after the first delay, then after the second, then parked.

        Args:
            delays: one for each step, such as ``"5s", "1m", "10m"``.
            mode: where the record waits. ``topic``: on a retry topic for each step, while its key goes on, so only
                first attempts keep the order. ``park``: on the same topics, and later records of the key queue behind
                it, so the key's order holds. ``blocking``: in place, its key waiting; the order holds, nothing is
                written, and the records that are read wait in memory.
            attempts: calls on each step before the next one.
            backoff: pause between the calls of one step, as for `Retry`.
            backoff_max: its longest.
            jitter: its random part.

        Example:
            >>> Retry.steps("5s", "1m", mode="park").hops
            2
        """
        if not delays:
            raise DeclarationError('Retry.steps(): give at least one delay, such as Retry.steps("5s", "1m")')
        return cls(attempts, backoff, backoff_max, jitter, delays, mode)  # type: ignore[arg-type]  # parsed by it

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
class Defer:
    """The verdict that a record waits on the retry topic of a step."""

    step: int


@dataclass(frozen=True, slots=True)
class Park:
    """The verdict that a record goes to the error topic."""


Verdict = TryAgain | Defer | Park
_PARK, _DEFERS = Park(), tuple(Defer(step) for step in range(1, _MOST_STEPS + 1))


def judge(error: BaseException, attempt: int, retry: Retry, step: int = 0) -> Verdict:
    """Decide what becomes of a record that failed. The one place where that question is answered.

    A rejected or undecodable record is parked at once, because trying again cannot help.

    Args:
        error: what its handler raised.
        attempt: how many calls it had on this step.
        retry: the handler's policy.
        step: where on the ladder it failed; 0 is the source topic.
    """
    if isinstance(error, (Reject, CodecError)):
        return Park()
    if attempt >= retry.in_place:
        return _DEFERS[step] if step < retry.hops else _PARK
    step_calls = attempt % retry.attempts
    usual = retry.pause(step_calls) if step_calls else retry.delays[attempt // retry.attempts - 1]
    return TryAgain(_asked(error, usual))


def _asked(error: BaseException, usual: timedelta) -> timedelta:
    """The pause that the handler asked for, else the usual one."""
    delay = error.delay if isinstance(error, RetryAfter) else None
    if delay is None:
        return usual
    try:
        asked = timedelta(seconds=delay) if isinstance(delay, (int, float)) else as_duration(delay)
    except (ValueError, OverflowError):
        return usual  # a delay that is none must not end the run: the record would fail the same way after each restart
    return max(asked, timedelta(0))
