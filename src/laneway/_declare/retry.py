"""Retry policies: whether and when a failed record is retried, or parked."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from laneway._declare.units import Duration, as_duration
from laneway.errors import CodecError, DeclarationError, DedupError, Reject, RetryAfter

__all__ = ["MOST_STEPS", "Mode", "Retriable", "Retry"]

Mode = Literal["blocking", "unordered", "ordered"]
Retriable = type[BaseException] | tuple[type[BaseException], ...] | Callable[[Any], bool]
"""Retriable errors: exception types, or a predicate."""

MOST_STEPS = 20  # each is a topic with as many partitions as its source


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how fast a failed record is retried.

    `Retry` alone retries in place: the record's key waits, other keys continue. `Retry.steps` adds a ladder of longer
    delays.

    Args:
        attempts: calls of the handler in all, the first included; with steps, calls on each step. 1 by default: a
            failed record is parked at once, because a handler may not be idempotent. `RetryAfter` still retries it, up
            to ten times.
        backoff: pause before the first retry; doubles with each retry.
        backoff_max: the longest pause.
        jitter: part of each pause that is random, 0 to 1, so that keys that failed together do not return together.
        delays: the delays of the steps; see `steps`.
        mode: where a record waits for its step; see `steps`.
        retriable: which errors are retried: an exception type, several, or a picklable function of the error. Any other
            error parks its record at once, as `Reject` does. By default all errors are retriable; `RetryAfter` always
            is. A function that raises counts as yes. A call past its ``timeout`` raises `HandlerTimeoutError`, so name
            that type if timeouts should be retried.

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
    retriable: Retriable | None = None
    first: timedelta = field(init=False, repr=False, compare=False)
    most: timedelta = field(init=False, repr=False, compare=False)
    hops: int = field(init=False, repr=False, compare=False)
    """How many retry topics there are."""
    in_place: int = field(init=False, repr=False, compare=False)
    """Calls of a record on one topic, before it is copied to another."""

    def __post_init__(self) -> None:
        """Validate, and keep the parsed durations."""
        if self.attempts < 1:
            raise DeclarationError(
                f"Retry(attempts={self.attempts}): attempts includes the first call, so it must be 1 or more"
            )
        if not 0 <= self.jitter <= 1:
            raise DeclarationError(f"Retry(jitter={self.jitter}): jitter must be between 0 and 1")
        if self.mode not in ("blocking", "unordered", "ordered"):
            raise DeclarationError(f"Retry(mode={self.mode!r}): use 'blocking', 'unordered' or 'ordered'")
        try:
            object.__setattr__(self, "first", as_duration(self.backoff))
            object.__setattr__(self, "most", as_duration(self.backoff_max))
            object.__setattr__(self, "delays", tuple(as_duration(delay) for delay in self.delays))
        except ValueError as error:
            raise DeclarationError(f"Retry: {error}") from error
        if not _is_valid_retriable(self.retriable):
            raise DeclarationError(
                f"Retry(retriable={self.retriable!r}): give an exception type, several, or a function of the error"
            )
        if len(self.delays) > MOST_STEPS:
            raise DeclarationError(f"Retry: {len(self.delays)} steps; at most {MOST_STEPS} are allowed")
        hops = 0 if self.mode == "blocking" else len(self.delays)
        object.__setattr__(self, "hops", hops)
        object.__setattr__(self, "in_place", self.attempts * (1 if hops else 1 + len(self.delays)))

    @classmethod
    def steps(
        cls,
        *delays: Duration,
        mode: Mode = "unordered",
        attempts: int = 1,
        backoff: Duration = "100ms",
        backoff_max: Duration = "10s",
        jitter: float = 0.2,
        retriable: Retriable | None = None,
    ) -> Retry:
        """A ladder: a failed record is retried after the first delay, then after the second, then parked.

        Args:
            delays: one for each step, such as ``"5s", "1m", "10m"``.
            mode: where the record waits. ``unordered``: on a retry topic per step, while its key continues, so only
                first attempts are in order. ``ordered``: on the same topics, with the key's later records queued behind
                it, so the key's order is kept. ``blocking``: in place, while its key waits; the order is kept, nothing
                is written, and waiting records stay in memory.
            attempts: calls on each step before the next one.
            backoff: pause between the calls of one step, as for `Retry`.
            backoff_max: the longest of these pauses.
            jitter: the random part of these pauses.
            retriable: which errors are retried, as for `Retry`.

        Example:
            >>> Retry.steps("5s", "1m", mode="ordered").hops
            2
        """
        if not delays:
            raise DeclarationError('Retry.steps(): give at least one delay, such as Retry.steps("5s", "1m")')
        return cls(attempts, backoff, backoff_max, jitter, delays, mode, retriable)  # type: ignore[arg-type]  # parsed

    def pause(self, attempt: int, rng: Callable[[], float] = random.random) -> timedelta:
        """The pause after the given attempt failed."""
        # In seconds, because a timedelta overflows; the cap avoids an overflow of the float.
        full = min(self.first.total_seconds() * 2.0 ** min(attempt - 1, 62), self.most.total_seconds())
        return timedelta(seconds=full * (1 - self.jitter * rng()))

    def is_retriable(self, error: BaseException) -> bool:
        """Whether a retry may help. If not, the record itself is at fault."""
        if isinstance(error, (Reject, CodecError, DedupError)):
            return False
        chosen = self.retriable
        if chosen is None or isinstance(error, RetryAfter):
            return True
        known = error.__dict__.get("laneway_is_retriable")
        if known is not None:
            return bool(known)  # it was raised in a child process, where its attributes are
        if isinstance(chosen, (type, tuple)):
            return isinstance(error, chosen)
        try:
            return bool(chosen(error))
        except Exception:  # noqa: BLE001 - a user's function, which must not end the run
            return True


def _is_valid_retriable(chosen: Any) -> bool:
    if isinstance(chosen, tuple):
        return all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in chosen)
    if isinstance(chosen, type):
        return issubclass(chosen, BaseException)
    return chosen is None or callable(chosen)
