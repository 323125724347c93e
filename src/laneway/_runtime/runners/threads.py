"""ThreadRunner: a reader and lanes on threads, around one locked processor."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laneway._clock import Clock
    from laneway._core.call import Call
    from laneway._core.processor import Processor
    from laneway._core.scheduler import KeyQueue
    from laneway._declare.record import Record
    from laneway.typing import Source

    Turn = list[KeyQueue[Record[Any]]]

__all__ = ["LaneRunner", "ThreadRunner"]

_FETCH = 2_000  # records a fetch; while they are converted no lane gets the interpreter
_IDLE = 0.005  # seconds the reader waits for a source that does not wake it
_LOOK = 0.02  # seconds at most between looks at what lanes left: postponed keys, copies, keys for lanes that are free
_LONG_LOOK = 1.0  # seconds at most between looks while a breaker is open: lanes and the clock tell, this is to be sure
_BLOCKED = 0.02  # seconds without a finished turn after which lanes are known to wait for more than the interpreter
_SOON = 0.002  # seconds after which the reader looks again whether a further lane is useful
_HAND_OVER = 50e-6  # seconds of the interpreter's time that a turn on a thread costs at least
_FADES = 0.8  # what earlier turns count when one is finished
_STACK = 512 * 1024  # bytes a lane's stack; the default of 8 MiB makes two thousand lanes look like a leak

_STARTING = threading.Lock()
"""Held while the size of stacks is changed, which is that of all threads of the process."""


class LaneRunner(ABC):
    """A reader that waits until something changes, and lanes that wait for work; one lock for all.

    The thread of `run` owns the source and the sender. The lock guards the processor; no thread holds it while the
    user's function runs.

    Args:
        processor: gives turns and settles them.
        clock: the time.
        lock: guards the processor; it is the runner's.
        most: how many lanes may be started; by default as many as the processor has at that moment.
    """

    def __init__(
        self, processor: Processor, clock: Clock, lock: threading.Lock | None, most: int | None = None
    ) -> None:
        self._processor = processor
        self._clock = clock
        self._most = most
        self._lock = lock or threading.Lock()
        self._work = threading.Condition(self._lock)
        self._changed = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []
        self._idle = 0
        """Lanes that were started and have no turn."""
        self._announces = False
        """Whether the source wakes this runner when records arrive."""
        self._broken: BaseException | None = None
        """What ended a lane, and so ends the run."""
        self._over = threading.Event()
        self._ended = 0.0
        self._calls = self._seconds = 0.0
        """Of the last turns, the newest counting most; one alone may have waited for the interpreter."""

    @property
    def lock(self) -> threading.Lock:
        """Guards the processor."""
        return self._lock

    def wake(self) -> None:
        """Look again at source and processor. Any thread may call it."""
        with self._lock:
            self._changed.notify()

    def _read(self, source: Source) -> None:
        """Read, let time pass and wake lanes until all is done."""
        self._announces = getattr(source, "announces", False)
        self._processor.wake = self.wake
        while not self._look(source):
            pass

    def _look(self, source: Source) -> bool:
        """Read, let time pass, wake lanes, wait a little; whether all is done."""
        processor, records = self._processor, []
        if not source.is_exhausted and processor.room:
            records = source.fetch(
                min(processor.room, _FETCH), 0.0 if processor.can_start or self._announces else _IDLE
            )
        with self._lock:
            if records:
                processor.admit(records)
            processor.is_closing = source.is_exhausted
            processor.tick()
            if self._broken is not None:
                raise self._broken
            if source.is_exhausted and processor.is_done:
                return True
            self._wake_lanes()
            if not records and not self._has_news(source):
                self._changed.wait(self._pause(source))
        return False

    def _has_news(self, source: Source) -> bool:
        """Whether records have arrived since the source was asked, and there is room for them.

        What is left in a source that was ended is not read.
        """
        if not self._announces or source.is_exhausted:
            return False
        return bool(source.has_news) and self._processor.room > 0  # type: ignore[attr-defined]

    def _pause(self, source: Source) -> float:
        """Seconds for which the reader may wait for a change."""
        processor = self._processor
        if not self._announces and not source.is_exhausted and processor.room:
            return 0.001
        if processor.can_start:
            return _SOON  # a lane that was woken is about to begin, or a further one is useful soon
        wake, most = processor.next_wake, _LONG_LOOK if self._is_held else _LOOK
        if processor.outbox.pending:
            most = min(most, processor.outbox.pause)
        return most if wake is None else min(most, max(0.0, wake - self._clock.monotonic()))

    @property
    def _is_held(self) -> bool:
        """Whether a breaker is open: a probe at most may begin, and nothing else happens before it is due."""
        return self._processor.breaker is not None and self._processor.breaker.is_open

    def _wake_lanes(self) -> None:
        """Called with the lock held: as many lanes as there is work for, no more than are useful."""
        processor = self._processor
        if not processor.can_start:
            return
        wanted = max(0, min(processor.ready, self._useful() - processor.lanes.busy))
        if self._is_held:
            wanted = min(wanted, 1)
        if processor.spec.is_batch:
            wanted = min(wanted, -(-processor.ready // processor.spec.size))
        most = processor.lanes.total if self._most is None else self._most
        while self._idle < wanted and len(self._threads) < most:
            self._add_lane()
        self._work.notify(wanted)

    def _useful(self) -> int:
        """How many lanes may work at once."""
        return self._processor.lanes.total

    def _add_lane(self) -> None:
        thread = threading.Thread(target=self._lane, name=f"lane-{len(self._threads)}", daemon=True)
        with _STARTING:
            before = threading.stack_size(_STACK)
            try:
                thread.start()
            finally:
                threading.stack_size(before)
        self._threads.append(thread)
        self._idle += 1

    @abstractmethod
    def _lane(self) -> None:
        """Work until the run is over."""

    def _next_turn(self, *, has_worked: bool) -> Turn | None:
        """Wait for a turn; None when the run is over."""
        with self._lock:
            while not self._over.is_set():
                useful = self._useful()
                if self._processor.lanes.busy < useful and (turn := self._processor.take(useful)) is not None:
                    self._idle -= 1
                    return turn
                if has_worked:
                    # Only once: a reader woken for nothing wakes the lanes, which would wake the reader.
                    self._changed.notify()
                    has_worked = False
                self._work.wait()
        return None

    def _settle(self, turn: Turn, report: Any) -> None:
        with self._lock:
            processor = self._processor
            processor.settle(turn, report)
            self._ended = self._clock.monotonic()
            self._calls = self._calls * _FADES + report.calls
            self._seconds = self._seconds * _FADES + report.seconds
            self._idle += 1
            self._wake_lanes()
            if processor.acks.has_news:
                self._changed.notify()

    def _break(self, error: BaseException | None) -> None:
        """End the run: a handler asks for an exit, a setup has failed, or there is a bug in laneway."""
        with self._lock:
            self._broken = self._broken or error
            self._changed.notify()

    def _end_lanes(self) -> None:
        with self._lock:
            self._over.set()
            self._work.notify_all()


class ThreadRunner(LaneRunner):
    """Runs a sync handler's turns on up to as many threads as there are lanes."""

    def __init__(self, processor: Processor, call: Call, clock: Clock, lock: threading.Lock | None = None) -> None:
        super().__init__(processor, clock, lock)
        self._execute = call.batch if processor.spec.is_batch else call.single
        processor.call = call

    def run(self, source: Source) -> None:
        """Work until the source is exhausted and every record has reached its end."""
        try:
            self._read(source)
        finally:
            self._end_lanes()
            if self._broken is None:
                for thread in self._threads:
                    thread.join()

    def _useful(self) -> int:
        """How many lanes may work at once.

        The interpreter runs one thread at a time, so calls that take 1 ms keep it busy with twenty threads. More would
        only wait for it, and their waiting would be taken for slow calls.
        """
        processor = self._processor
        now = self._clock.monotonic()
        if not processor.lanes.busy:
            self._ended = now  # nothing is under way that could be late
        elif now - self._ended > _BLOCKED:
            return processor.lanes.total  # the threads that work wait for something else than the interpreter
        pace = self._seconds / self._calls if self._calls else processor.pace
        return min(processor.lanes.total, 1 + int(pace / _HAND_OVER))

    def _lane(self) -> None:
        has_worked = False
        try:
            while (turn := self._next_turn(has_worked=has_worked)) is not None:
                self._settle(turn, self._execute(turn))
                has_worked = True
        except BaseException as error:  # noqa: BLE001 - raised by the reader
            self._break(error)
