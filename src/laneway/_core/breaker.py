"""The breaker of a handler at work: whether its calls may begin."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from laneway._declare.breaker import is_failure
from laneway._declare.units import in_words
from laneway.errors import text_of
from laneway.observe import BreakerClosed, BreakerOpened

if TYPE_CHECKING:
    from laneway._clock import Clock
    from laneway._core.events import EventEmitter
    from laneway._core.scheduler import KeyQueue
    from laneway._core.turn import TurnReport
    from laneway._declare.breaker import Breaker
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway.observe import Tally

__all__ = ["BreakerState", "CircuitBreaker", "uncalled"]

_LONGEST = 300  # characters of an error's text
_NOTICE_EVERY = 10.0  # seconds between two notices of probes that fail


class BreakerState:
    """Whether a breaker is open, and when the next probe is due. Times are those of a monotonic clock.

    It may outlive the processor that uses it: a task that ends takes neither the count nor an open breaker with it.
    """

    __slots__ = ("error", "failures", "is_open", "opened_at", "probe_at", "probes")

    def __init__(self) -> None:
        self.failures = 0
        """Calls that failed one after the other."""
        self.is_open = False
        self.opened_at = 0.0
        self.probe_at = 0.0
        self.probes = 0
        """Probes that have failed since it opened."""
        self.error = ""
        """What the call failed with that opened it."""

    def failed(self, breaker: Breaker, now: float) -> bool:
        """A call failed while it was closed; True when that opens it."""
        self.failures += 1
        if self.failures < breaker.failures:
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


class CircuitBreaker:
    """Lets the calls of a handler begin while it is closed, and one at a time, as a probe, while it is open.

    The processor owns it and says what begins and ends.

    Args:
        spec: whose calls these are.
        breaker: what was declared for it.
        state: of the breaker, which another processor may have left.
        tally: where openings and open time are counted.
        events: makes the events.
        clock: the time.
    """

    def __init__(
        self,
        spec: HandlerSpec,
        breaker: Breaker,
        state: BreakerState,
        *,
        tally: Tally,
        events: EventEmitter,
        clock: Clock,
    ) -> None:
        self._name = spec.name
        self._retry = spec.retry
        self._breaker = breaker
        self._state = state
        self._tally = tally
        self._events = events
        self._clock = clock
        self._noticed = 0.0
        self._counted = clock.monotonic()
        """Until when open time is in the tally."""
        self._running: set[int] = set()
        self._stale: set[int] = set()
        """Those of them that ran when the breaker opened: what fails of them is kept whenever they end."""
        self._probe: int | None = None
        self._is_seen = False
        """A due probe was asked for and there was nothing to do: what comes next wakes the runner, not the clock."""

    @classmethod
    def of(cls, spec: HandlerSpec, state: BreakerState | None, **rest: Any) -> CircuitBreaker | None:
        """For a handler that has a breaker; None for another."""
        return None if spec.breaker is None else cls(spec, spec.breaker, state or BreakerState(), **rest)

    @property
    def state(self) -> BreakerState:
        """The state now. Any thread may read it."""
        return self._state

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
        """A turn runs: a probe when the breaker is open."""
        self._running.add(id(turn))
        if self._state.is_open:
            self._probe = id(turn)

    def ended(self, turn: list[KeyQueue[Record[Any]]], report: TurnReport, *, was_good: bool = False) -> bool:
        """A turn is over; True in an outage: failures of the handler are not judged, and their records called again.

        Args:
            turn: what `began`.
            report: what happened.
            was_good: whether a part of it that was settled before has succeeded.
        """
        failures = [error for _, error in report.failures.values()] + [error for *_, error in report.members]
        error = next((error for error in failures if is_failure(error, self._retry)), None)
        if report.members and report.has_success and not report.is_halted:
            error = None  # a call that returned has succeeded, whatever members it marked
        # In a batch, those that were dropped before a call that failed do not make it a success.
        is_good = report.has_success or (bool(report.skipped) and not (report.members and error))
        return self.saw(turn, error, is_good=is_good or was_good)

    def saw(self, turn: object, error: Exception | None, *, is_good: bool) -> bool:
        """Count the outcome of a turn or table; True when its failure is not judged, and it is called again.

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
            if error is None or not state.failed(self._breaker, now):
                return False
            self._stale = set(self._running)
            self._is_seen = False
            self._counted = now
            self._tally.breaker_opened += 1
            self._announce(error, now)
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
        self._announce(error, now)

    def _announce(self, error: Exception | None, now: float) -> None:
        """Say that the breaker opened, that a probe failed, or that it closed."""
        state, open_for = self._state, timedelta(seconds=now - self._state.opened_at)
        if error is None:
            self._events.emit(BreakerClosed(handler=self._name, open_for=open_for))
            self._say(f"closed after {in_words(open_for)}; calls begin again", now)
            return
        pause = self._breaker.pause_after(state.probes)
        text = f"{type(error).__name__}: {text_of(error)}"[:_LONGEST]
        rest = f"{text}; its records wait, nothing more is read, and the next probe is in {in_words(pause)}"
        if not state.probes:
            state.error = text
            self._events.emit(BreakerOpened(handler=self._name, failures=state.failures, error=text, pause=pause))
            self._say(f"opened after {state.failures} failures in a row, the last one {rest}", now)
        elif now - self._noticed >= _NOTICE_EVERY:
            self._say(f"is still open, since probe {state.probes} failed with {rest}", now)

    def _say(self, words: str, now: float) -> None:
        self._noticed = now
        self._events.note(f"the breaker of handler {self._name!r} {words}")


def uncalled(turn: list[KeyQueue[Record[Any]]], report: TurnReport) -> set[int]:
    """Ids of the records of a batch that have no outcome."""
    ended = [*report.handled, *report.skipped]
    ended += [record for records, _ in report.outputs for record in records]
    ended += [record for _, record, _ in report.members]
    ended += [record for records in report.superseded.values() for record in records]
    return {id(record) for queue in turn for record in queue.work()} - set(map(id, ended))
