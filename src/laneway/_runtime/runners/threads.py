"""ThreadRunner: lanes on threads, or on none at all while the handler is too fast for threads to pay."""

from __future__ import annotations

import resource
import threading
import time
from typing import TYPE_CHECKING, Any

from laneway._runtime.runners.locked import LockedRunner

if TYPE_CHECKING:
    from laneway._clock import Clock
    from laneway._core.call import Call
    from laneway._core.processor import Processor
    from laneway._core.scheduler import KeyQueue
    from laneway._declare.record import Record
    from laneway.typing import Source

__all__ = ["ThreadRunner"]

_FETCH = 5_000
_FETCH_INLINE, _ENOUGH = 1_000, 512
_FAST = 100e-6  # seconds a call: below this a hand-over to a thread costs more than the call
_TRIAL_TIME = 0.002  # seconds without a finished turn after which calls are known to be slow
_HAND_OVER = 50e-6  # seconds of the interpreter's time that a turn on a thread costs at least
_IDLE = 0.005  # seconds the reader waits for the source while lanes are at work
_LONG_IDLE = 0.05  # seconds it waits for a source that wakes it
_HANGS = 0.1  # seconds after which a turn, meant to take 2 ms, keeps the reader from reading
_LEAVES = 5.0  # seconds for which the second thread is waited for when a run has failed
_STACK = 512 * 1024  # bytes a lane's stack; the default of 8 MiB makes two thousand lanes look like a leak

_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)  # Linux has it

_STARTING = threading.Lock()
"""Held while the size of stacks is changed, which is that of all threads of the process."""


class ThreadRunner(LockedRunner):
    """Runs a sync handler's turns on up to as many threads as there are lanes.

    A fast handler (under 0.1 ms a call) is called on the reader's own thread: Python runs one thread at a time, so
    more threads could only take turns. As soon as a call is slower, work moves to threads. The first calls are
    tried there, too: on a thread a call that releases the interpreter waits to get it back, and looks slow for that.

    Should such a call hang, a second thread, which does nothing but look at the time, goes on reading in its place, and
    work moves to threads; the first one stands by when its call has ended.

    The thread that reads owns the source and the sender. The processor is guarded by one lock, which no thread holds
    while the user's function runs.

    Args:
        processor: gives turns and settles them.
        call: runs them.
        clock: the time.
        lock: guards the processor; processors that share a backlog share it too.
    """

    def __init__(self, processor: Processor, call: Call, clock: Clock, lock: threading.Lock | None = None) -> None:
        super().__init__(processor, clock, lock)
        self._execute = call.batch if processor.spec.is_batch else call.single
        processor.call = call
        self._moved = clock.monotonic()
        """When a turn was last finished."""
        self._is_over = False
        self._reader = 0
        """The thread that reads."""
        self._second: threading.Thread | None = None
        self._inline_since: float | None = None
        """When the reader began the turn that it works on by itself."""
        self._inline = threading.Event()
        """Set when there is such a turn to look after."""
        self._hanging = 0
        """Threads that were readers, and whose call has not ended."""
        self._ended = threading.Event()

    def run(self, source: Source) -> None:
        """Work until the source is exhausted and every record has reached its end."""
        self._announces = getattr(source, "announces", False)
        self._processor.acks.wake = self.wake
        self._reader = threading.get_ident()
        try:
            self._serve(source)
            if self._broken is not None:
                raise self._broken
        finally:
            self._end()

    def _serve(self, source: Source) -> None:
        """Read, or stand by, until everything is over."""
        while not self._ended.is_set():
            if self._reader == threading.get_ident():
                self._read(source)
            else:
                self._stand_by()

    def _read(self, source: Source) -> None:
        """Work until everything is over, or another thread reads."""
        processor = self._processor
        while True:
            inline = self._is_fast()
            records = []
            # No further ahead than a fast handler needs: what is handled at once is still in the processor's cache.
            is_enough = inline and processor.ready >= _ENOUGH
            if not is_enough and not source.is_exhausted and processor.room:
                most = _FETCH_INLINE if inline else _FETCH
                records = source.fetch(min(processor.room, most), self._wait(inline=inline))
            with self._lock:
                if self._take_in(records, source):
                    self._ended.set()
                    self._inline.set()
                    return
                if not inline:
                    self._wake_lanes()
                    if not records and not self._has_news(source):
                        self._changed.wait(self._pause(source, _TRIAL_TIME))
                    continue
            if not self._work_inline(source):
                return

    def _stand_by(self) -> None:
        """Take the reader's place when a call that it works on by itself takes far too long."""
        self._inline.wait()
        if self._ended.wait(_HANGS):
            return
        with self._lock:
            since = self._inline_since
            if since is None:
                self._inline.clear()
            elif self._clock.monotonic() - since >= _HANGS:
                self._reader, self._inline_since = threading.get_ident(), None
                self._hanging += 1

    def _wait(self, *, inline: bool) -> float:
        """Seconds to wait for records. A fast handler works on this thread: only when there is nothing else to do."""
        if self._processor.ready or (self._announces and not inline):
            return 0.0
        if inline and self._processor.outbox.pending:
            return self._processor.outbox.pause
        return _LONG_IDLE if self._announces else _IDLE

    def _is_fast(self) -> bool:
        processor = self._processor
        if processor.spec.kind != "single" or self._hanging:
            return False
        return processor.pace < _FAST or not processor.is_pace_believed

    def _work_inline(self, source: Source) -> bool:
        """One turn on this thread; False when another one reads now. Lanes that run a slow call are left alone."""
        with self._lock:
            turn = self._processor.take(lanes=1)
            if turn is None:
                # Something may be in work, postponed, on its way to a topic, or not acknowledged yet.
                is_waiting = not self._processor.is_done or not self._processor.room
                if is_waiting and not self._has_news(source):
                    self._changed.wait(self._pause(source, _TRIAL_TIME))
                return True
            self._inline_since = self._clock.monotonic()
            if not self._inline.is_set():
                self._look_after(source)
        try:
            began = _Used()
            result = self._execute(turn)
            if result.seconds >= _FAST * max(1, result.calls) and not began.has_waited:
                result.seconds = began.seconds  # the rest is what others had of the processor
            with self._lock:
                self._processor.settle(turn, result)
                if self._reader != threading.get_ident():
                    self._hanging -= 1
                    self._changed.notify()
                    return False
                self._inline_since = None
        except BaseException as error:
            self._break(error)  # who reads by now must end, too
            raise
        return True

    def _break(self, error: BaseException) -> None:
        """End the run: a handler asks for an exit, or there is a bug of ours."""
        with self._lock:
            self._broken = self._broken or error
            self._changed.notify()

    def _look_after(self, source: Source) -> None:
        self._inline.set()
        if self._second is None:
            self._second = threading.Thread(target=self._serve_second, args=(source,), name="stand-by", daemon=True)
            self._second.start()

    def _serve_second(self, source: Source) -> None:
        try:
            self._serve(source)
        except BaseException as error:  # noqa: BLE001 - raised by `run`
            self._break(error)
            self._ended.set()
            self._inline.set()

    def _useful(self) -> int:
        """How many lanes may work at once.

        The interpreter runs one thread at a time, so calls that take 1 ms keep it busy with twenty threads. More would
        only wait for it, and their waiting would be taken for slow calls.
        """
        processor = self._processor
        now = self._clock.monotonic()
        if not processor.lanes.busy:
            self._moved = now  # nothing is under way that could be late
        elif now - self._moved > _TRIAL_TIME:
            return processor.lanes.total  # the threads that work wait for something else than the interpreter
        return min(processor.lanes.total, 2 + int(processor.pace / _HAND_OVER)) if processor.pace else 1

    def _next_turn(self) -> list[KeyQueue[Record[Any]]] | None:
        """A turn for a lane's thread; none once the handler has shown to be fast: the reader works then."""
        if self._is_over or self._is_fast() or self._processor.lanes.busy >= self._useful():
            return None
        return self._processor.take()

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
                    self._processor.settle(turn, result)
                    self._moved = self._clock.monotonic()
                    self._idle += 1
                    if self._processor.can_start or self._processor.acks.has_news:
                        self._changed.notify()
        except BaseException as error:  # noqa: BLE001 - raised by the reader
            self._break(error)

    def _end(self) -> None:
        self._ended.set()
        self._inline.set()
        with self._lock:
            self._is_over = True
            self._work.notify_all()
        if self._broken is None:
            for thread in self._threads:
                thread.join()
        if self._second is not None:
            # After a failure it may be in a call that never ends. Else the source must not be closed under its hands.
            self._second.join(None if self._broken is None else _LEAVES)


class _Used:
    """What this thread does with the processor from now on."""

    __slots__ = ("_began", "_waits")

    def __init__(self) -> None:
        self._began = time.thread_time()
        self._waits = _waits()

    @property
    def seconds(self) -> float:
        """For how long it had it."""
        return time.thread_time() - self._began

    @property
    def has_waited(self) -> bool:
        """Whether it gave it up by itself, to wait for something; else it was taken away."""
        return _THREAD is None or _waits() > self._waits


def _waits() -> int:
    """How often this thread has given up the processor; 0 where the system does not tell."""
    return 0 if _THREAD is None else resource.getrusage(_THREAD).ru_nvcsw
