"""Station: one handler of an app at work on a fake Kafka, with the desk and runners that Spark's tasks use."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from laneway._clock import SystemClock
from laneway._core.call import Call
from laneway._core.desk import Desk
from laneway._runtime.runners import EventLoopRunner, TableRunner
from laneway.testing._ends import FakeSender, FakeSource
from laneway.testing._sync_bridge import SyncBridge

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from laneway._core.deferred_keys import DeferredKeys
    from laneway._core.result import Result
    from laneway._core.scheduler import KeyQueue
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway.observe import Event, Tally
    from laneway.testing._clock import FakeClock
    from laneway.testing._log import FakeTopic
    from laneway.testing._loop import VirtualLoop
    from laneway.typing import Source

__all__ = ["Station"]

_POLL = 0.002  # seconds: the pause of a columnar runner that only waits for acknowledgements


class Station:
    """Runs one route on the virtual loop, whenever its topic has something to read.

    Args:
        route: the handler.
        app: the app's name.
        topic: what it reads.
        source: from where on.
        write: puts a message on a topic.
        loop: where it runs, in virtual time.
        rng: mixes the schedule; None for the plain order.
        backlog: what waits on the retry topics of the handler; its stations share it.
        listener: told of each event.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        route: HandlerSpec,
        app: str,
        topic: FakeTopic,
        source: FakeSource,
        *,
        write: Callable[..., Exception | None],
        loop: VirtualLoop,
        rng: random.Random | None,
        backlog: DeferredKeys,
        listener: Callable[[Event], None],
    ) -> None:
        self.route = route
        self.source = source
        self._topic = topic
        self._clock = clock = loop.clock
        self._loop = loop
        self._rng = rng
        self._sender = FakeSender(write, self._call)
        self._task: asyncio.Task[None] | None = None
        self._runner: _Runner | None = None
        lanes = max(1, route.lanes)
        self._desk = _Desk(
            route,
            app,
            lanes=lanes * len(topic.logs),
            sender=self._sender,
            clock=clock,
            per_partition=lanes if route.strict else None,
            backlog=backlog,
            listener=listener,
        )
        self._alarm: asyncio.TimerHandle | None = None
        self.ended: Callable[[], object] = lambda: None
        """Called when there is nothing left to do for now."""

    @property
    def is_busy(self) -> bool:
        """Whether a call of the handler is under way."""
        return self._desk.scheduler.lanes_busy > 0

    @property
    def is_done(self) -> bool:
        """Whether every record there is has reached its end."""
        is_running = self._task is not None and not self._task.done()
        return self.source.is_empty and self._desk.is_done and not is_running

    @property
    def tally(self) -> Tally:
        """What was done so far."""
        tally = self._desk.tally
        tally.gaps, tally.lost, tally.already_copied = (
            self.source.gaps,
            self.source.lost,
            self.source.copied.already_copied,
        )
        return tally

    def poke(self) -> None:
        """Look at topic and acknowledgements again."""
        if self._sender.is_dead:
            return
        self._set_alarm()
        self._desk.scheduler.lanes = max(1, self.route.lanes) * len(self._topic.logs)
        if self._task is None:
            if not self.source.is_exhausted:
                self._start()
        elif self._task.done():
            if not self._task.cancelled() and self._task.exception() is None:
                self._task = None
                self.poke()
        elif self._runner is not None:
            self._runner.wake()

    def _set_alarm(self) -> None:
        """Look again when something may be due."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        wait = self.source.look()
        if wait is not None:
            self._alarm = self._loop.call_later(wait, self.poke)

    def committable(self, partition: int) -> int:
        """The offset that may be committed: everything before it is finished."""
        unfinished = self._desk.ledger.unfinished(partition)
        is_columnar = self.route.kind == "columnar"
        read = self.source.settled(partition) if is_columnar else self.source.position(partition)
        return min(unfinished[0], read) if unfinished else read

    def kill(self) -> None:
        """Forget everything that is under way."""
        self._sender.is_dead = True
        if self._alarm is not None:
            self._alarm.cancel()
        if self._task is not None:
            self._task.cancel()

    def raise_if_failed(self) -> None:
        """Raise what ended the run, if anything did."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    def _call(self) -> None:
        self._loop.call_soon(self.poke)

    def _start(self) -> None:
        self._desk.is_closing = False
        run = self._run_columnar() if self.route.kind == "columnar" else self._run_lanes()
        self._task = self._loop.create_task(run)
        # A record written just as the run ends would find nobody to wake.
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del task
        self.poke()
        self.ended()

    async def _run_lanes(self) -> None:
        self._runner = _Runner(self._desk, self.route, self._clock, self._rng)
        try:
            await self._runner.run(self.source)  # type: ignore[arg-type]  # what it says changes by itself
        finally:
            self._runner = None

    async def _run_columnar(self) -> None:
        baton = SyncBridge()

        def sleep(seconds: float) -> None:
            desk = self._desk
            if seconds <= _POLL:
                if desk.is_done:
                    return
                # Nothing is to be seen before the next try to write; looking every 2 ms would make an hour long.
                seconds = max(seconds, (desk.next_wake or 0.0) - self._clock.monotonic())
            baton.sleep(seconds)

        runner = TableRunner(self._desk, self._clock, sleep)
        await baton.drive(lambda: runner.run(self.source))  # type: ignore[arg-type]  # as above
        self.source.settle()


class _Desk(Desk):
    """A desk that gives each lane one key at a time.

    A real desk gives a fast handler many keys at once. In virtual time every handler is fast, and a test wants to see
    what happens when keys are in work side by side.
    """

    def take(self, lanes: int | None = None) -> list[KeyQueue[Record[Any]]] | None:
        self.pace = 1.0
        return super().take(lanes)


class _Runner(EventLoopRunner):
    """The event loop's runner, woken when there is something to do instead of looking every 2 ms."""

    def __init__(self, desk: Desk, route: HandlerSpec, clock: FakeClock, rng: random.Random | None) -> None:
        # A sync handler takes real time if any, so its time limit is measured with the real clock.
        super().__init__(desk, Call(route, clock if route.is_async else SystemClock(), slice_=math.inf), clock)
        if not route.is_async:
            call = Call(route, SystemClock(), slice_=math.inf)
            self._plain = call.batch if route.is_batch else call.single
            self._execute, self._one = self._execute_sync, None
        self._rng = rng
        if rng is not None:
            self._straight, self._execute, self._one = self._execute, self._execute_shuffled, None

    def wake(self) -> None:
        """Look again."""
        self._changed.set()

    async def _execute_sync(self, turn: list[KeyQueue[Record[Any]]]) -> Result:
        result = self._plain(turn)
        result.seconds = 0.0  # real seconds would make each run differ
        return result

    async def _execute_shuffled(self, turn: list[KeyQueue[Record[Any]]]) -> Result:
        for _ in range(self._rng.randrange(4) if self._rng is not None else 0):
            await asyncio.sleep(0)
        return await self._straight(turn)

    async def _pause(self, source: Source, fetched: int) -> None:
        if fetched and not source.is_exhausted and self._desk.room:
            await asyncio.sleep(0)
        else:
            await self._wait_for_change()
