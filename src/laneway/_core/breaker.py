"""The breaker of a handler at work: whether its calls may begin."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from laneway._declare.breaker import is_failure
from laneway._declare.units import in_words
from laneway.errors import text_of
from laneway.observe import BreakerClosed, BreakerOpened

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway._clock import Clock
    from laneway._core.result import Result
    from laneway._core.scheduler import KeyQueue
    from laneway._core.telling import Telling
    from laneway._declare.breaker import Breaker
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway._declare.retry import Retry
    from laneway.observe import Tally

__all__ = ["BreakerState", "Gate", "uncalled"]

_LONGEST = 300  # characters of an error's text
_NOTICE_EVERY = 10.0  # seconds between two notices of probes that fail


class BreakerState:
    """Whether a breaker is open, and when the next probe is due. Times are those of a monotonic clock.

    It may outlive the desk that uses it: a task that ends takes neither the count nor an open breaker with it.
    """

    __slots__ = ("failures", "is_open", "opened_at", "probe_at", "probes")

    def __init__(self) -> None:
        self.failures = 0
        """Calls that failed one after the other."""
        self.is_open = False
        self.opened_at = 0.0
        self.probe_at = 0.0
        """When a probe may begin."""
        self.probes = 0
        """Probes that have failed since it opened."""

    def failed(self, breaker: Breaker, now: float, *, at_once: bool = False) -> bool:
        """A call failed while it was closed; True when that opens it."""
        self.failures += 1
        if self.failures < breaker.failures and not at_once:
            return False
        self.is_open, self.opened_at = True, now
        self.probe_at = now + breaker.pause_after(0).total_seconds()
        return True

    def probe_failed(self, breaker: Breaker, now: float) -> None:
        """It stays open, for longer."""
        self.failures += 1
        self.probes += 1
        self.probe_at = now + breaker.pause_after(self.probes).total_seconds()

    def close(self) -> None:
        """A call succeeded."""
        self.is_open = False
        self.failures = self.probes = 0


class Gate:
    """Lets the calls of one desk begin while the breaker is closed, and one at a time, as a probe, while it is open.

    The desk owns it and tells it what begins and ends; the thread that may call the desk may call it.

    Args:
        route: whose calls these are.
        breaker: what was declared for it.
        state: of the breaker, which another desk may have left.
        tally: where openings and open time are counted.
        telling: makes the events.
        clock: the time.
        notice: told in words when the breaker opens and closes.
    """

    def __init__(
        self,
        route: HandlerSpec,
        breaker: Breaker,
        state: BreakerState,
        *,
        tally: Tally,
        telling: Telling,
        clock: Clock,
        notice: Callable[[str], None] | None,
    ) -> None:
        self._name = route.name
        self._retry = route.retry
        self._breaker = breaker
        self._state = state
        self._tally = tally
        self._telling = telling
        self._clock = clock
        self._notice = notice
        self._noticed = 0.0
        self._counted = clock.monotonic()
        """Until when open time is in the tally."""
        self._running: set[int] = set()
        """Ids of the turns that are out."""
        self._stale: set[int] = set()
        """Those of them that were out when the breaker opened: what fails of them is kept whenever they end."""
        self._probe: int | None = None
        self._is_seen = False
        """A due probe was asked for and there was nothing to do: what comes next wakes the runner, not the clock."""
        self._has_complained = False

    @classmethod
    def of(cls, route: HandlerSpec, state: BreakerState | None, **rest: Any) -> Gate | None:
        """A gate for a handler that has a breaker, made as the class is."""
        return None if route.breaker is None else cls(route, route.breaker, state or BreakerState(), **rest)

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open."""
        return self._state.is_open

    @property
    def is_shut(self) -> bool:
        """Whether no call may begin now."""
        state = self._state
        return state.is_open and (self._probe is not None or self._clock.monotonic() < state.probe_at)

    @property
    def wait(self) -> float:
        """Seconds until a call may begin, when no probe is under way."""
        return max(0.0, self._state.probe_at - self._clock.monotonic()) if self._state.is_open else 0.0

    def next_wakes(self, *, can_read: bool) -> tuple[float, ...]:
        """When a probe is due, if it is time that it waits for.

        Args:
            can_read: nothing is there to probe with, but more could be read.
        """
        is_awaited = self._state.is_open and self._probe is None and (can_read or not self._is_seen)
        return (self._state.probe_at,) if is_awaited else ()

    def lets_read(self, *, has_records: bool) -> bool:
        """Whether more may be read: while it is open only when there is nothing to probe with."""
        return not self._state.is_open or not (has_records or self.is_shut)

    def lets_begin(self) -> bool:
        """Whether a call may begin; asked by those who begin one now if there is anything to do."""
        if not self._state.is_open:
            return True
        self._is_seen = not self.is_shut
        return self._is_seen

    def began(self, turn: object) -> None:
        """A turn is out: a probe when the breaker is open."""
        self._running.add(id(turn))
        if self._state.is_open:
            self._probe = id(turn)

    def ended(self, turn: list[KeyQueue[Record[Any]]], result: Result, *, was_good: bool = False) -> None:
        """A turn is over. What is not to be judged is taken out of *result*: its records stay where they are.

        Args:
            turn: what `began`.
            result: what became of it.
            was_good: whether a part of it that was settled before has succeeded.
        """
        failures = [error for _, error in result.failures.values()] + [error for *_, error in result.members]
        error = next((error for error in failures if is_failure(error, self._retry)), None)
        is_handled = bool(result.finished or result.outputs)
        if result.members and is_handled and not result.is_halted:
            error = None  # a call that returned has succeeded, whatever members it marked
        # In a batch, those that were dropped before a call that failed do not make it a success.
        is_good = is_handled or (bool(result.skipped) and not (result.members and error))
        if self.saw(turn, error, is_good=is_good or was_good):
            self._tally.retried += _give_back(result, self._retry)

    def saw(self, turn: object, error: Exception | None, *, is_good: bool) -> bool:
        """What came of a turn or table; True when its failure is not to be judged, and it is called again.

        Args:
            turn: what `began`.
            error: why the handler failed, if it did.
            is_good: whether it succeeded, before it failed.
        """
        state, now = self._state, self._clock.monotonic()
        self._running.discard(id(turn))
        is_probe, is_stale = self._probe == id(turn), id(turn) in self._stale
        self._stale.discard(id(turn))
        if is_probe:
            self._probed(error, now, is_good=is_good)
        elif not is_stale and not state.is_open:
            if is_good:
                state.failures = 0
            if error is None or not state.failed(self._breaker, now, at_once=self._is_asked(error)):
                return False
            self._stale = set(self._running)
            self._is_seen = False
            self._counted = now
            self._tally.breaker_opened += 1
            self._tell(error, now)
        return error is not None

    def _probed(self, error: Exception | None, now: float, *, is_good: bool) -> None:
        self._probe = None
        self._is_seen = False
        if error is not None:
            self._state.probe_failed(self._breaker, now)
        elif is_good:
            self._state.close()
        else:
            self._state.probe_at = now  # the record's own fault, which says nothing of the handler: the next one, now
            return
        self._tally.breaker_seconds += now - self._counted
        self._counted = now
        self._tell(error, now)

    def _tell(self, error: Exception | None, now: float) -> None:
        """The one place where it is told that the breaker opened, that a probe failed, or that it closed."""
        state, open_for = self._state, timedelta(seconds=now - self._state.opened_at)
        if error is None:
            self._telling.tell(BreakerClosed(handler=self._name, open_for=open_for))
            self._say(f"closed after {in_words(open_for)}; work goes on", now)
            return
        pause = self._breaker.pause_after(state.probes)
        text = f"{type(error).__name__}: {text_of(error)}"[:_LONGEST]
        rest = f"{text}; its records wait, nothing more is read, and the next probe is in {in_words(pause)}"
        if not state.probes:
            self._telling.tell(BreakerOpened(handler=self._name, failures=state.failures, error=text, pause=pause))
            self._say(f"opened after {state.failures} failures in a row, the last one {rest}", now)
        elif now - self._noticed >= _NOTICE_EVERY:
            self._say(f"is still open, since probe {state.probes} failed with {rest}", now)

    def _say(self, words: str, now: float) -> None:
        self._noticed = now
        if self._notice is not None:
            self._notice(f"the breaker of handler {self._name!r} {words}")

    def _is_asked(self, error: Exception) -> bool:
        """Whether the user's own function wants it open at once."""
        when = self._breaker.when
        if when is None:
            return False
        try:
            return bool(when(error))
        except Exception as problem:  # noqa: BLE001 - a user's function, which must not end the run
            if not self._has_complained:
                self._has_complained = True
                words = f"{type(problem).__name__}: {text_of(problem)}"
                self._say(f"has a when() that raised {words}; that counts as no", self._noticed)
            return False


def uncalled(turn: list[KeyQueue[Record[Any]]], result: Result) -> set[int]:
    """Ids of the records of a batch that have no outcome."""
    ended = [*result.finished, *result.skipped]
    ended += [record for records, _ in result.outputs for record in records]
    ended += [record for _, record, _ in result.members]
    ended += [record for records in result.older.values() for record in records]
    return {id(record) for queue in turn for record in queue.work()} - set(map(id, ended))


def _give_back(result: Result, retry: Retry) -> int:
    """Take the failures of the handler out of a result, so that their records wait as if not called; how many.

    They go to the end of the line of keys, each at the head of its own: the next probe is another key's, and a bad
    record alone cannot keep the breaker open.
    """
    kept = {id(record) for _, record, error in result.members if is_failure(error, retry)}
    result.members = [member for member in result.members if id(member[1]) not in kept]
    result.back |= kept
    failed = [index for index, (_, error) in result.failures.items() if is_failure(error, retry)]
    for index in failed:
        del result.failures[index]
    return len(kept) + len(failed)
