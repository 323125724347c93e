"""Whether a failed record is tried again, when, or parked."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from laneway._declare.units import Duration, as_duration
from laneway.errors import CodecError, DeclarationError, Reject, RetryAfter

__all__ = ["Defer", "Mode", "Park", "Retriable", "Retry", "TryAgain", "Verdict", "judge"]

Mode = Literal["blocking", "unordered", "ordered"]
Retriable = type[BaseException] | tuple[type[BaseException], ...] | Callable[[Any], bool]
"""Which errors are tried again: of these types, or those of which a function says so."""

_MOST_STEPS = 20  # each is a topic with as many partitions as its source
_MOST_ASKED = 10  # retries that `RetryAfter` gets from a policy that gives none, so that no record is retried for ever


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how fast a failed record is tried again.

    `Retry` alone tries again in place, while the record's key waits and other keys go on. `Retry.steps` adds a ladder
    of longer delays.

    Args:
        attempts: calls of the handler in all, the first included; with steps, calls on each step. 1 by default: a
            failed record is parked at once, because a handler that is not idempotent must not be repeated unasked. If
            its handler asks, by `RetryAfter`, it is tried again, up to ten times.
        backoff: pause before the first retry; doubles with each further one.
        backoff_max: the pause never grows beyond this.
        jitter: part of each pause that is random, 0 to 1, so that keys that failed together do not return together.
        delays: the delays of the steps; see `steps`.
        mode: where a record waits for its step; see `steps`.
        retriable: which errors are tried again: an exception type, several, or a function of the error that travels to
            other processes. Any other error parks its record at once, as `Reject` does. By default all are, and
            `RetryAfter` always is. A function that raises counts as a yes. A call past its ``timeout`` raises
            `HandlerTimeoutError`, so name that type where it is to be tried again.

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
    """Calls that a record has where it is read, before it goes to another topic."""

    def __post_init__(self) -> None:
        """Check and keep the parsed durations."""
        if self.attempts < 1:
            raise DeclarationError(
                f"Retry(attempts={self.attempts}): attempts counts the first call, so it is 1 or more"
            )
        if not 0 <= self.jitter <= 1:
            raise DeclarationError(f"Retry(jitter={self.jitter}): jitter is between 0 and 1")
        if self.mode not in ("blocking", "unordered", "ordered"):
            raise DeclarationError(f"Retry(mode={self.mode!r}): use 'blocking', 'unordered' or 'ordered'")
        try:
            object.__setattr__(self, "first", as_duration(self.backoff))
            object.__setattr__(self, "most", as_duration(self.backoff_max))
            object.__setattr__(self, "delays", tuple(as_duration(delay) for delay in self.delays))
        except ValueError as error:
            raise DeclarationError(f"Retry: {error}") from error
        if not _says_what_is_retriable(self.retriable):
            raise DeclarationError(
                f"Retry(retriable={self.retriable!r}): give an exception type, several, or a function of the error"
            )
        if len(self.delays) > _MOST_STEPS:
            raise DeclarationError(f"Retry: {len(self.delays)} steps; {_MOST_STEPS} are the most")
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
        """A ladder: a record that failed is tried again after the first delay, then after the second, then parked.

        Args:
            delays: one for each step, such as ``"5s", "1m", "10m"``.
            mode: where the record waits. ``unordered``: on a retry topic for each step, while its key goes on, so only
                first attempts keep the order. ``ordered``: on the same topics, and the key's later records queue behind
                it, so the key's order holds. ``blocking``: in place, its key waiting; the order holds, nothing is
                written, and the records that are read wait in memory.
            attempts: calls on each step before the next one.
            backoff: pause between the calls of one step, as for `Retry`.
            backoff_max: its longest.
            jitter: its random part.
            retriable: which errors are tried again, as for `Retry`.

        Example:
            >>> Retry.steps("5s", "1m", mode="ordered").hops
            2
        """
        if not delays:
            raise DeclarationError('Retry.steps(): give at least one delay, such as Retry.steps("5s", "1m")')
        return cls(attempts, backoff, backoff_max, jitter, delays, mode, retriable)  # type: ignore[arg-type]  # parsed

    def pause(self, attempt: int, rng: Callable[[], float] = random.random) -> timedelta:
        """How long to wait after the given attempt has failed."""
        # In seconds, because a timedelta overflows; the cap keeps a large attempt count from overflowing a float.
        full = min(self.first.total_seconds() * 2.0 ** min(attempt - 1, 62), self.most.total_seconds())
        return timedelta(seconds=full * (1 - self.jitter * rng()))

    def is_retriable(self, error: BaseException) -> bool:
        """Whether trying again may help. If not, it is the record that is at fault."""
        if isinstance(error, (Reject, CodecError)):
            return False
        chosen = self.retriable
        if chosen is None or isinstance(error, RetryAfter):
            return True
        if isinstance(chosen, (type, tuple)):
            return isinstance(error, chosen)
        try:
            return bool(chosen(error))
        except Exception:  # noqa: BLE001 - a user's function, which must not end the run
            return True


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

    A rejected or undecodable record, and an error that is not retriable, is parked at once: trying again cannot help.

    `RetryAfter` is kept to: in place for as long as it says, on the ladder for at least as long. It takes the next step
    whose delay is long enough; when no step is left that waits so long, the record waits in place, and that wait takes
    the place of the next step. A policy without retries gives it `_MOST_ASKED`.

    Args:
        error: what its handler raised.
        attempt: how many calls it had on this step.
        retry: the handler's policy.
        step: where on the ladder it failed; 0 is the source topic.
    """
    if not retry.is_retriable(error):
        return _PARK
    asked = _asked(error)
    if attempt < retry.in_place:
        step_calls = attempt % retry.attempts
        usual = retry.pause(step_calls) if step_calls else retry.delays[attempt // retry.attempts - 1]
        return TryAgain(usual if asked is None else asked)
    if isinstance(error, RetryAfter) and retry.in_place == 1 and attempt <= _MOST_ASKED and not retry.hops:
        return TryAgain(retry.pause(attempt) if asked is None else asked)
    following = step + 1 + attempt - retry.in_place  # a wait in place on the ladder counts as a step
    if following > retry.hops:
        return _PARK
    if asked is None:
        return _DEFERS[following - 1]
    found = next((at for at in range(following, retry.hops + 1) if retry.delays[at - 1] >= asked), None)
    return TryAgain(asked) if found is None else _DEFERS[found - 1]


def _asked(error: BaseException) -> timedelta | None:
    """The delay that the handler asked for, if it asked for one."""
    delay = error.delay if isinstance(error, RetryAfter) else None
    if delay is None:
        return None
    try:
        asked = timedelta(seconds=delay) if isinstance(delay, (int, float)) else as_duration(delay)
    except (ValueError, OverflowError):
        return None  # a delay that is none must not end the run: the record would fail the same way after each restart
    return max(asked, timedelta(0))


def _says_what_is_retriable(chosen: Any) -> bool:
    if isinstance(chosen, tuple):
        return all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in chosen)
    if isinstance(chosen, type):
        return issubclass(chosen, BaseException)
    return chosen is None or callable(chosen)
