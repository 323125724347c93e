"""ThreadRunner: lanes on threads, or on none at all while the handler is too fast for threads to pay."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from laneway.runners._locked import LockedRunner

if TYPE_CHECKING:
    from laneway._clock import Clock
    from laneway._record import Record
    from laneway.lanes import KeyQueue
    from laneway.pipeline import Call, Desk
    from laneway.typing import Source

__all__ = ["ThreadRunner"]

_FETCH = 5_000
_FAST = 100e-6  # seconds a call: below this a hand-over to a thread costs more than the call
_TRIAL = 16  # calls on threads before the pace is believed
_TRIAL_TIME = 0.002  # seconds without a finished turn after which calls are known to be slow
_HAND_OVER = 50e-6  # seconds of the interpreter's time that a turn on a thread costs at least
_IDLE = 0.005  # seconds the reader waits for the source while lanes are at work
_LONG_IDLE = 0.05  # seconds it waits for a source that wakes it
_STACK = 512 * 1024  # bytes a lane's stack; the default of 8 MiB makes two thousand lanes look like a leak


class ThreadRunner(LockedRunner):
    """Runs a sync handler's turns on up to as many threads as there are lanes.

    A fast handler (under 0.1 ms a call) is called on the reader's own thread: Python runs one thread at a time, so
    more threads could only take turns. As soon as a call is slower, work moves to threads.

    The reader's thread owns the source and the sender. The desk is guarded by one lock, which no thread holds while
    the user's function runs.

    Args:
        desk: gives turns and settles them.
        call: runs them.
        clock: the time.
        lock: guards the desk; desks that share a backlog share it too.
    """

    def __init__(self, desk: Desk, call: Call, clock: Clock, lock: threading.Lock | None = None) -> None:
        super().__init__(desk, clock, lock, desk.scheduler.lanes)
        self._execute = call.batch if desk.route.is_batch else call.single
        self._moved = clock.monotonic()
        """When a turn was last finished."""
        self._is_over = False

    def run(self, source: Source) -> None:
        """Work until the source is exhausted and every record has reached its end."""
        desk = self._desk
        self._announces = getattr(source, "announces", False)
        desk.acks.wake = self.wake
        try:
            while True:
                inline = self._is_fast()
                records = []
                if not source.is_exhausted and desk.room:
                    records = source.fetch(min(desk.room, _FETCH), self._wait(inline=inline))
                with self._lock:
                    if records:
                        desk.admit(records)
                    desk.is_closing = source.is_exhausted
                    desk.tick()
                    if self._broken is not None:
                        raise self._broken
                    if source.is_exhausted and desk.is_done:
                        return
                    if not inline:
                        self._wake_lanes()
                        if not records and not self._has_news(source):
                            self._changed.wait(self._pause(source, _TRIAL_TIME))
                        continue
                self._work_inline(source)
        finally:
            self._end()

    def _wait(self, *, inline: bool) -> float:
        """Seconds to wait for records. A fast handler works on this thread: only when there is nothing else to do."""
        if self._desk.scheduler.ready or (self._announces and not inline):
            return 0.0
        if inline and self._desk.outbox.pending:
            return 0.001
        return _LONG_IDLE if self._announces else _IDLE

    def _is_fast(self) -> bool:
        desk = self._desk
        return desk.tally.calls >= _TRIAL and desk.pace < _FAST and desk.route.kind == "single"

    def _work_inline(self, source: Source) -> None:
        """One turn on this thread. Lanes that still run a slow call are left alone."""
        with self._lock:
            turn = self._desk.take()
        if turn is None:
            with self._lock:
                # Something may be in work, postponed or on its way to a topic.
                if self._desk.scheduler.records or self._desk.outbox.pending:
                    self._changed.wait(self._pause(source, _TRIAL_TIME) if self._is_held else 0.001)
            return
        result = self._execute(turn)
        with self._lock:
            self._desk.settle(turn, result)

    def _useful(self) -> int:
        """How many lanes may work at once.

        The interpreter runs one thread at a time, so calls that take 1 ms keep it busy with twenty threads. More would
        only wait for it, and their waiting would be taken for slow calls.
        """
        desk = self._desk
        if self._clock.monotonic() - self._moved > _TRIAL_TIME:
            return desk.scheduler.lanes  # the threads that work wait for something else than the interpreter
        return min(desk.scheduler.lanes, 2 + int(desk.pace / _HAND_OVER)) if desk.pace else 1

    def _next_turn(self) -> list[KeyQueue[Record[Any]]] | None:
        """A turn for a lane's thread; none once the handler has shown to be fast: the reader works then."""
        if self._is_over or self._is_fast() or self._desk.scheduler.lanes_busy >= self._useful():
            return None
        return self._desk.take()

    def _add_lane(self) -> None:
        before = threading.stack_size(_STACK)
        try:
            thread = threading.Thread(target=self._lane, name=f"lane-{len(self._threads)}", daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
        self._threads.append(thread)
        self._idle += 1

    def _lane(self) -> None:
        has_worked = False
        try:
            while True:
                with self._lock:
                    while (turn := self._next_turn()) is None:
                        if self._is_over:
                            return
                        if has_worked:
                            # Only once: a reader woken for nothing wakes the lanes, which would wake the reader.
                            self._changed.notify()
                            has_worked = False
                        self._work.wait()
                    self._idle -= 1
                result = self._execute(turn)
                has_worked = True
                with self._lock:
                    self._desk.settle(turn, result)
                    self._moved = self._clock.monotonic()
                    self._idle += 1
                    if self._desk.can_start:
                        self._changed.notify()
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler, or a bug of ours: end the run
            with self._lock:
                self._broken = error
                self._changed.notify()

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            self._work.notify_all()
        if self._broken is None:
            for thread in self._threads:
                thread.join()
