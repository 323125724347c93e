"""HandlerWorker: one handler with its processor, its lanes and the thread or loop they run on."""

from __future__ import annotations

import asyncio
import threading
from concurrent import futures
from typing import TYPE_CHECKING, Any, TypeVar

from laneway._clock import SystemClock
from laneway._core.call import Call
from laneway._core.processor import Processor
from laneway._core.state import Close, Command, Drain, Open, Release, SetLanes
from laneway._runtime.handler_state import HandlerState
from laneway._runtime.intake import Intake
from laneway._runtime.runners import EventLoopRunner, ProcessRunner, TableRunner, ThreadRunner
from laneway.observe import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laneway._clock import Clock
    from laneway._core.breaker import BreakerState
    from laneway._core.step import Step
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway._kafka import Place
    from laneway._runtime.host import LoopOwner
    from laneway._runtime.lease import Lease
    from laneway.observe import Notes
    from laneway.typing import Sender

    Hooks = tuple[Sequence[Callable[[], Any]], Sequence[Callable[[], Any]]]

__all__ = ["HandlerWorker"]

T = TypeVar("T")

_SYSTEM = SystemClock()
_FAST = 100e-6  # seconds a call


class HandlerWorker:
    """Runs a handler, on all of its retry steps, until its intake ends.

    Args:
        spec: the handler.
        app: the app's name.
        lanes: how many lanes it has until its partitions are known.
        sender: where messages and copies go; workers share it, and each is answered by way of its own outbox.
        host: has the loop that async handlers run on.
        listener: gets notes of what must wait; a `Listener` also gets each event at once.
        hooks: setups and cleanups, for processes that the handler has of its own.
        lease: whether this process surely owns its partitions; None for always.
        state: what an earlier worker of the handler has left in this process.
        clock: the time.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        spec: HandlerSpec,
        app: str,
        *,
        lanes: int,
        sender: Sender,
        host: LoopOwner,
        listener: Notes,
        hooks: Hooks = ((), ()),
        lease: Lease | None = None,
        state: HandlerState | None = None,
        clock: Clock = _SYSTEM,
    ) -> None:
        self.spec = spec
        self._state, self._is_state_kept = state or HandlerState(spec, app), state is not None
        self.intake = Intake()
        self.processor = Processor(
            self._state.specs,
            app,
            lanes=lanes,
            sender=sender,
            clock=clock,
            per_partition=max(1, spec.lanes) if spec.strict else None,
            listener=listener,
            breaker=self._state.breaker,
            lease=lease,
            dedup=self._state.dedup_stage(),
        )
        self.processor.pace = self._state.pace
        self._clock = clock
        self._app = app
        self._hooks = hooks
        self._host = host
        self._lock = threading.Lock()
        self._runner: Any = None
        self._thread: threading.Thread | None = None
        self._future: futures.Future[None] | None = None
        self._error: BaseException | None = None
        self._reported = Tally()
        self._asked = clock.wall()
        self._looked, self._worked = clock.monotonic(), 0.0

    @property
    def breaker(self) -> BreakerState:
        """Whether the handler is called at all."""
        return self._state.breaker

    @property
    def topics(self) -> list[str]:
        """Its source and its retry topics."""
        return [step.spec.topic.name for step in self.processor.steps]

    @property
    def capacity(self) -> int:
        """How many records it may hold."""
        return self.spec.buffer.records

    @property
    def room(self) -> int:
        """How many more records may be put into the intake. A count that other threads change: nearly right."""
        processor, intake, buffer = self.processor, self.intake, self.spec.buffer
        if intake.size + processor.size + processor.outbox.size >= int(buffer.size):
            return 0
        return buffer.records - intake.records - processor.records - processor.pending

    @property
    def is_half_free(self) -> bool:
        """Whether half of what it may hold is worked off, in records and in bytes. Nearly right, as `room` is."""
        processor, intake, buffer = self.processor, self.intake, self.spec.buffer
        size = intake.size + processor.size + processor.outbox.size
        return 2 * self.room >= buffer.records and 2 * size <= int(buffer.size)

    @property
    def is_fast(self) -> bool:
        """Whether it works records off about as quickly as they are read."""
        return 0.0 < self.processor.pace < _FAST

    @property
    def is_over(self) -> bool:
        """Whether the intake has ended and everything begun is finished, or the run has failed."""
        if self._future is not None:
            return self._future.done()
        return self._thread is not None and not self._thread.is_alive()

    @property
    def error(self) -> BaseException | None:
        """What ended the run, if it was not its intake."""
        if self._future is not None and self._future.done() and not self._future.cancelled():
            return self._future.exception()
        return self._error

    @property
    def is_idle(self) -> bool:
        """Whether it has no record. Any thread may ask."""
        return not (self.intake.records or self.intake.table) and self.processor.is_done

    @property
    def is_quiet(self) -> bool:
        """Whether no call runs and none can begin now. Any thread may ask."""
        processor = self.processor
        is_held = processor.breaker is not None and processor.breaker.is_shut
        is_at_work = processor.lanes.busy or processor.can_start or self.intake.table
        is_at_work = is_at_work or not processor.is_sure  # what is ready begins when that is known
        return self.is_over or not (is_at_work or (self.intake.has_news and not is_held))

    def look(self, question: Callable[[], T], timeout: float) -> tuple[T, bool]:
        """Call a function on the processor while it does not change; and whether that was so. Any thread may call it.

        An event loop that a handler blocks does not answer; then the call is made anyway: nothing changes either.
        """
        if self._future is not None and not self._future.done():
            return self._look_on_loop(question, timeout)
        if self.spec.kind == "columnar" or self.is_over:
            return question(), True
        is_ours = self._lock.acquire(timeout=timeout)
        try:
            return question(), is_ours
        finally:
            if is_ours:
                self._lock.release()

    def _look_on_loop(self, question: Callable[[], T], timeout: float) -> tuple[T, bool]:
        found: list[T] = []
        is_done = threading.Event()

        def ask() -> None:
            try:
                found.append(question())
            finally:
                is_done.set()

        loop = self._host.loop
        if asyncio._get_running_loop() is loop or loop.is_closed():  # noqa: SLF001 - the one that does not raise
            return question(), True
        loop.call_soon_threadsafe(ask)
        if is_done.wait(timeout) and found:
            return found[0], True
        return question(), False

    def start(self) -> None:
        """Begin to work."""
        called = self._state.called
        call, clock = Call(called, SystemClock(), dedup=self.processor.dedup), SystemClock()
        if called.is_async:
            self._runner = EventLoopRunner(self.processor, call, clock)
            self.intake.arrived = self._runner.wake
            self._future = asyncio.run_coroutine_threadsafe(self._runner.run(self.intake), self._host.loop)
            return
        if self.spec.kind == "columnar":
            runner: Any = TableRunner(self.processor, clock)
            self.intake.sift = self.processor.ours
        else:
            runner = self._runner = self._runner_of(call, clock)
            self.intake.arrived = runner.wake
        self._thread = threading.Thread(
            target=self._work, args=(runner,), name=f"laneway-{self.spec.name}", daemon=True
        )
        self._thread.start()

    def _runner_of(self, call: Call, clock: SystemClock) -> ThreadRunner | ProcessRunner:
        if not self.spec.processes:
            return ThreadRunner(self.processor, call, clock, self._lock)
        state = self._state
        if state.processes is not None:
            runner, state.processes = state.processes, None
            runner.take_on(self.processor)
            self._lock = runner.lock
            return runner
        return ProcessRunner(
            self.processor,
            state.called,
            clock,
            self._lock,
            processes=self.spec.processes,
            hooks=self._hooks,
            is_kept=state.keeps_processes,
            pickler=state.pickler,
        )

    def post(self, command: Command) -> None:
        """Post a command; the runner's thread obeys it soon."""
        self.processor.post(command)
        if self.is_over:
            self.processor.obey()
            return
        if self._runner is not None:
            self._runner.wake()

    def share(self, partitions: int) -> None:
        """Have lanes for this number of partitions. The number of processes is fixed."""
        if not self.spec.processes:
            self.post(SetLanes(max(1, self.spec.lanes) * max(1, partitions)))

    def put(self, records: list[Record[Any]]) -> None:
        """Take records, those of each partition in offset order."""
        self.intake.put(records)

    def open(self, place: Place) -> None:
        """Take records of a partition from now on; what was read of it before counts no more, and at once."""
        self.intake.forget(place)
        self.post(Open(*place))

    def restart(self, place: Place, epoch: int) -> None:
        """A log begins again: what was read of it up to *epoch* counts no more."""
        self.processor.fence(*place, epoch)
        self.open(place)

    def release(self, place: Place) -> None:
        """Begin nothing more of a partition."""
        self.post(Release(*place))

    def is_drained(self, place: Place) -> bool:
        """Whether nothing of a released partition is under way. Any thread may ask."""
        # After `finish` it has dropped what was not begun; when it is over, nothing is under way.
        return self.is_over or self._step_of(place).is_drained(place[1])

    def fence(self, place: Place, epoch: int) -> None:
        """Let nothing count that was read of a partition up to *epoch*, and forget what is known of it."""
        self.processor.fence(*place, epoch)
        self.post(Close(*place))

    def progress(self, place: Place, start: int) -> tuple[int, list[int]]:
        """Up to where a partition was read, and what is unfinished of it. Any thread may ask."""
        if self.processor.awaits(Open(*place)):  # the ledger may still be that of another log
            return start, []
        found = self._step_of(place).ledger.snapshot(place[1])
        if self.spec.kind == "columnar":
            end = self.intake.settled.get(place, start)
            return end, [] if found is None else found[1]
        return (start, []) if found is None else found

    def count(self, place: Place) -> int:
        """How many records of a partition are unfinished. Any thread may ask."""
        return self._step_of(place).ledger.count(place[1])

    def has(self, place: Place) -> bool:
        """Whether something that was read of a partition may be unfinished."""
        return bool(self.intake.records or self.count(place))

    def lose(self, count: int) -> None:
        """Count records that were deleted before they could be read."""
        self.processor.tally.lost += count

    def complete(self) -> None:
        """Nothing more comes: work off what was put in, and end."""
        self.intake.complete()

    def finish(self, *, is_last: bool = True) -> None:
        """Finish what was begun, and end.

        Args:
            is_last: see `Drain`.
        """
        self.post(Drain(is_last))
        self.intake.end()

    def wait(self, timeout: float) -> bool:
        """Wait for its end, at most *timeout* seconds; whether it has ended."""
        if self._future is not None:
            futures.wait([self._future], timeout)
        elif self._thread is not None:
            self._thread.join(timeout)
        return self.is_over or (self._future is None and self._thread is None)

    def close(self) -> Tally:
        """Check that nothing is left but what was dropped, and keep what the next worker of the handler needs.

        Raises:
            Exception: what ended the run.
        """
        self._end_dedup()
        if self.error is not None:
            raise self.error
        self._state.pace = self.processor.pace
        tally = self.processor.close()
        tally.already_copied = self.already_copied
        return tally

    def abandon(self) -> None:
        """End now. A thread that runs a call cannot be stopped: it ends with the process, or after its call."""
        self.processor.lease = None
        self.intake.end()
        if self._future is not None:
            self._future.cancel()
        self._end_dedup()

    def _end_dedup(self) -> None:
        """Release claimed ids, and close a connection that is not kept."""
        if self.processor.dedup is not None:
            self.processor.dedup.close()
            if not self._is_state_kept:
                self._state.close()

    def news(self) -> Tally:
        """What was done since this was last asked."""
        tally = self.processor.tally
        first, tally.first = tally.first, 0.0  # the runner's thread sets it again at the next call
        now = Tally()
        now.add(tally)
        now.latency = dict(tally.latency)
        now.already_copied += self.already_copied
        news = now.since(self._reported)
        news.first = first or (self._asked if news.finished else 0.0)
        news.lanes_busy = self._lanes_busy()
        self._reported, self._asked = now, self._clock.wall()
        return news

    @property
    def already_copied(self) -> int:
        """Records that were left out because a copy of them was safe."""
        return sum(step.copied.already_copied for step in self.processor.steps)

    @property
    def _unclaimed(self) -> int:
        return 0 if self.processor.dedup is None else self.processor.dedup.unclaimed

    def _lanes_busy(self) -> float:
        """How many lanes were busy on average since this was last asked: with calls that ended, and that still run."""
        now, processor = self._clock.monotonic(), self.processor
        worked = processor.tally.seconds + sum(now - began for began, _ in tuple(processor.begun.values()))
        seconds, more = now - self._looked, worked - self._worked
        self._looked, self._worked = now, worked
        return min(float(processor.lanes.total), max(0.0, more / seconds)) if seconds > 0 else 0.0

    def _step_of(self, place: Place) -> Step:
        return self.processor.step_of(place[0])

    def _work(self, runner: Any) -> None:
        try:
            runner.run(self.intake)
            self.intake.settle()
            if isinstance(runner, ProcessRunner) and self._state.keeps_processes:
                self._state.processes = runner
        except BaseException as error:  # noqa: BLE001 - raised by the engine, on its own thread
            self._error = error
