"""Station: one handler on one step of its ladder, with its desk, its lanes and the thread or loop they run on."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from laneway._clock import SystemClock
from laneway._core.call import Call
from laneway._engines.direct.desk import OwnedDesk
from laneway._engines.direct.intake import Intake
from laneway._runtime.lease import Lease
from laneway._runtime.runners import EventLoopRunner, ProcessRunner, TableRunner, ThreadRunner
from laneway.observe import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from laneway._core.breaker import BreakerState
    from laneway._core.deferred_keys import DeferredKeys
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway._kafka import Place
    from laneway.observe import Event
    from laneway.typing import Sender

    Hooks = tuple[Sequence[Callable[[], Any]], Sequence[Callable[[], Any]]]

__all__ = ["Station"]

T = TypeVar("T")


class Station:
    """Runs a route until its intake ends.

    Args:
        route: the handler, as it runs on its step.
        app: the app's name.
        lanes: how many lanes it has until it is known how many partitions are ours.
        sender: where messages and copies go; stations share it, and each is answered by way of its own outbox.
        loop: gives the loop that async handlers run on.
        lock: guards the desk of a handler that runs on threads; stations of one handler share it.
        backlog: what waits on the retry topics of the handler; its stations share it.
        breaker: state of the handler's breaker; its stations share it.
        notice: told in words when something must wait.
        listener: told of each event.
        hooks: setups and cleanups, for processes that the handler has of its own.
        lease: whether the partitions are surely ours; without one they are.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        route: HandlerSpec,
        app: str,
        *,
        lanes: int,
        sender: Sender,
        loop: Callable[[], asyncio.AbstractEventLoop],
        lock: threading.Lock,
        backlog: DeferredKeys,
        breaker: BreakerState,
        notice: Callable[[str], None],
        listener: Callable[[Event], None],
        hooks: Hooks = ((), ()),
        lease: Lease | None = None,
    ) -> None:
        self.route = route
        self.breaker = breaker
        self._hooks = hooks
        self.intake = Intake()
        self.desk = OwnedDesk(
            route,
            app,
            lanes=lanes,
            sender=sender,
            clock=SystemClock(),
            per_partition=max(1, route.lanes) if route.strict else None,
            notice=notice,
            backlog=backlog,
            listener=listener,
            breaker=breaker,
            lease=lease,
        )
        self._loop = loop
        self._lock = lock
        self._runner: Any = None
        self._thread: threading.Thread | None = None
        self._future: Future[None] | None = None
        self._error: BaseException | None = None
        self._told = Tally()
        self._asked = time.time()
        self._looked, self._worked = time.monotonic(), 0.0
        self._opening: dict[int, object] = {}
        """Partitions that are ours, which the runner does not know yet."""

    @property
    def capacity(self) -> int:
        """How many records it may hold."""
        return self.route.buffer.records

    @property
    def room(self) -> int:
        """How many more records may be put into the intake. A count that other threads change: nearly right."""
        desk, intake, buffer = self.desk, self.intake, self.route.buffer
        if intake.size + desk.scheduler.size + desk.outbox.size >= int(buffer.size):
            return 0
        return buffer.records - intake.records - desk.scheduler.records - desk.outbox.pending

    @property
    def is_half_free(self) -> bool:
        """Whether half of what it may hold is worked off, in records and in bytes. Nearly right, as `room` is."""
        desk, intake, buffer = self.desk, self.intake, self.route.buffer
        size = intake.size + desk.scheduler.size + desk.outbox.size
        return 2 * self.room >= buffer.records and 2 * size <= int(buffer.size)

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
        return not (self.intake.records or self.intake.table) and self.desk.is_done

    @property
    def is_quiet(self) -> bool:
        """Whether no call runs and none can begin now. Any thread may ask."""
        desk = self.desk
        is_held = desk.gate is not None and desk.gate.is_shut
        is_at_work = desk.scheduler.lanes_busy or desk.can_start or self.intake.table
        is_at_work = is_at_work or not desk.lease.is_valid  # what is ready begins when that is known
        return self.is_over or not (is_at_work or (self.intake.has_news and not is_held))

    def look(self, question: Callable[[], T], timeout: float) -> tuple[T, bool]:
        """Ask something of the desk while nobody changes it; and whether that was so. Any thread may call it.

        A loop that a handler blocks does not answer; then it is asked all the same, since nothing changes either.
        """
        if self._future is not None and not self._future.done():
            return self._look_on_loop(question, timeout)
        if self.route.kind == "columnar" or self.is_over:
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

        loop = self._loop()
        if asyncio._get_running_loop() is loop or loop.is_closed():  # noqa: SLF001 - the one that does not raise
            return question(), True
        loop.call_soon_threadsafe(ask)
        if is_done.wait(timeout) and found:
            return found[0], True
        return question(), False

    def start(self) -> None:
        """Begin to work."""
        call, clock = Call(self.route, SystemClock()), SystemClock()
        if self.route.is_async:
            self._runner = EventLoopRunner(self.desk, call, clock)
            self.intake.arrived = self._runner.wake
            self._future = asyncio.run_coroutine_threadsafe(self._runner.run(self.intake), self._loop())
            return
        if self.route.kind == "columnar":
            runner: Any = TableRunner(self.desk, clock, may_begin=lambda: self.desk.lease.is_valid)
            self.intake.sift = self.desk.ours
        else:
            runner = self._runner = self._runner_of(call, clock)
            self.intake.arrived = runner.wake
        self._thread = threading.Thread(
            target=self._work, args=(runner,), name=f"laneway-{self.route.name}-{self.route.step}", daemon=True
        )
        self._thread.start()

    def _runner_of(self, call: Call, clock: SystemClock) -> ThreadRunner | ProcessRunner:
        if not self.route.processes:
            return ThreadRunner(self.desk, call, clock, self._lock)
        setups, cleanups = self._hooks
        return ProcessRunner(
            self.desk,
            self.route,
            clock,
            self._lock,
            processes=self.route.processes,
            setups=setups,
            cleanups=cleanups,
        )

    def order(self, deed: Callable[[], None]) -> None:
        """Let the runner's own thread do something to the desk, soon."""
        if self.is_over:
            deed()
            return
        self.desk.order(deed)
        if self._runner is not None:
            self._runner.wake()

    def share(self, partitions: int) -> None:
        """So many partitions are ours: have lanes for each. Processes stay as many as the handler says."""
        if not self.route.processes:
            self.order(partial(self.desk.set_lanes, max(1, self.route.lanes) * max(1, partitions)))

    def put(self, records: list[Record[Any]]) -> None:
        """Take records, those of each partition in offset order."""
        self.intake.put(records)

    def open(self, place: Place) -> None:
        """Take records of a partition from now on; what was read of it before counts no more, and at once."""
        mark, partition = object(), place[1]
        self._opening[partition] = mark
        self.order(lambda: self._opened(partition, mark))

    def _opened(self, partition: int, mark: object) -> None:
        self.desk.open(partition)
        self.intake.settled.pop(partition, None)
        self.intake.table.pop(partition, None)
        if self._opening.get(partition) is mark:
            del self._opening[partition]

    def restart(self, place: Place, epoch: int) -> None:
        """A log begins again: what was read of it up to *epoch* counts no more."""
        self.desk.fence(place[1], epoch)
        self.open(place)

    def release(self, place: Place) -> None:
        """Begin nothing more of a partition."""
        self.order(lambda: self.desk.release(place[1]))

    def is_drained(self, place: Place) -> bool:
        """Whether a released partition has no record left that was begun."""
        # One that was told to finish has dropped what was not begun; when it is over, nothing is under way.
        return self.is_over or self.desk.is_drained(place[1])

    def fence(self, place: Place, epoch: int) -> None:
        """Let nothing count that was read of a partition up to *epoch*, and forget what is known of it."""
        self.desk.fence(place[1], epoch)
        self.order(lambda: self.desk.forget(place[1]))

    def progress(self, place: Place, start: int) -> tuple[int, list[int]]:
        """Up to where a partition was read, and what is unfinished of it. Any thread may ask."""
        partition = place[1]
        if partition in self._opening:  # the ledger may still be that of another log
            return start, []
        found = self.desk.ledger.snapshot(partition)
        if self.route.kind == "columnar":
            end = self.intake.settled.get(partition, start)
            return end, [] if found is None else found[1]
        return (start, []) if found is None else found

    def count(self, place: Place) -> int:
        """How many records of a partition are unfinished. Any thread may ask."""
        return self.desk.ledger.count(place[1])

    def has(self, place: Place) -> bool:
        """Whether something that was read of a partition may be unfinished."""
        return bool(self.intake.records or self.count(place))

    def lose(self, count: int) -> None:
        """So many records were deleted before they could be read."""
        self.desk.tally.lost += count

    def finish(self) -> None:
        """Finish what was begun, and end."""
        self.order(self.desk.wind_up)
        self.intake.end()

    def abandon(self) -> None:
        """End now. A thread that runs a call cannot be stopped: it ends with the process, or after its call."""
        self.desk.lease = Lease(math.inf)
        self.intake.end()
        if self._future is not None:
            self._future.cancel()

    def news(self) -> Tally:
        """What was done since this was last asked."""
        tally = self.desk.tally
        first, tally.first = tally.first, 0.0  # the runner's thread sets it again at the next call
        now = Tally()
        now.add(tally)
        now.latency = dict(tally.latency)
        now.already_copied += self.desk.copied.already_copied
        news = now.since(self._told)
        news.first = first or (self._asked if news.finished else 0.0)
        news.lanes_busy = self._lanes_busy()
        self._told, self._asked = now, time.time()
        return news

    def _lanes_busy(self) -> float:
        """How many lanes were busy on average since this was last asked: with calls that ended, and that still run."""
        now, desk = time.monotonic(), self.desk
        worked = desk.tally.seconds + sum(now - began for began, _ in tuple(desk.begun.values()))
        seconds, more = now - self._looked, worked - self._worked
        self._looked, self._worked = now, worked
        return min(float(desk.scheduler.lanes), max(0.0, more / seconds)) if seconds > 0 else 0.0

    def _work(self, runner: Any) -> None:
        try:
            runner.run(self.intake)
            self.intake.settle()
        except BaseException as error:  # noqa: BLE001 - raised by the engine, on its own thread
            self._error = error
