"""Station: one handler of an app at work on a fake Kafka, with the processor and runners that Spark's tasks use."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from laneway._clock import SystemClock
from laneway._core.call import Call
from laneway._core.processor import Processor
from laneway._core.step_function import on_all_steps
from laneway._runtime.runners import EventLoopRunner, TableRunner
from laneway.testing._ends import FakeSender, FakeSources
from laneway.testing._sync_bridge import SyncBridge

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from laneway._core.deferred_keys import DeferredKeys
    from laneway._core.scheduler import KeyQueue
    from laneway._core.turn import TurnReport
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway.observe import Listener, Tally
    from laneway.testing._clock import FakeClock
    from laneway.testing._log import FakeTopic
    from laneway.testing._loop import VirtualLoop
    from laneway.typing import Source

__all__ = ["Station"]

_POLL = 0.002  # seconds: the pause of a columnar runner that only waits for acknowledgements


class Station:
    """Runs one handler on the virtual loop, on all of its retry steps, whenever a topic of it has something to read.

    Args:
        spec: the handler.
        app: the app's name.
        topic: the source.
        source: reads it and its retry topics.
        write: puts a message on a topic.
        loop: where it runs, in virtual time.
        rng: mixes the schedule; None for the plain order.
        deferred: what waits on the retry topics of the handler.
        listener: called with each event.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        spec: HandlerSpec,
        app: str,
        topic: FakeTopic,
        source: FakeSources,
        *,
        write: Callable[..., Exception | None],
        loop: VirtualLoop,
        rng: random.Random | None,
        deferred: DeferredKeys,
        listener: Listener,
    ) -> None:
        self.spec = spec
        self._called = on_all_steps(spec, app, has_threads=False)
        self.source = source
        self._topic = topic
        self._clock = clock = loop.clock
        self._loop = loop
        self._rng = rng
        self._sender = FakeSender(write, self._call)
        self._task: asyncio.Task[None] | None = None
        self._runner: _Runner | None = None
        lanes = max(1, spec.lanes)
        self._processor = _Processor(
            [spec.at_step(app, step) for step in range(spec.retry.hops + 1)],
            app,
            lanes=lanes * len(topic.logs),
            sender=self._sender,
            clock=clock,
            per_partition=lanes if spec.strict else None,
            deferred=deferred,
            listener=listener,
        )
        self._alarm: asyncio.TimerHandle | None = None
        self.ended: Callable[[], object] = lambda: None
        """Called when there is nothing left to do for now."""

    @property
    def is_busy(self) -> bool:
        """Whether a call of the handler is under way."""
        return self._processor.lanes.busy > 0

    @property
    def is_done(self) -> bool:
        """Whether every record there is has reached its end."""
        is_running = self._task is not None and not self._task.done()
        return self.source.is_empty and self._processor.is_done and not is_running

    @property
    def tally(self) -> Tally:
        """What was done so far."""
        tally = self._processor.tally
        sources = self.source.by_topic.values()
        tally.gaps = sum(source.gaps for source in sources)
        tally.lost = sum(source.lost for source in sources)
        tally.already_copied = sum(source.copied.already_copied for source in sources)
        return tally

    def poke(self) -> None:
        """Look at topic and acknowledgements again."""
        if self._sender.is_dead:
            return
        self._set_alarm()
        self._processor.lanes.total = max(1, self.spec.lanes) * len(self._topic.logs)
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

    def committable(self, topic: str, partition: int) -> int:
        """The offset that may be committed: everything before it is finished."""
        unfinished = self._processor.step_of(topic).ledger.unfinished(partition)
        source = self.source.by_topic[topic]
        read = source.settled(partition) if self.spec.kind == "columnar" else source.position(partition)
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
        self._processor.is_closing = False
        run = self._run_columnar() if self.spec.kind == "columnar" else self._run_lanes()
        self._task = self._loop.create_task(run)
        # A record written just as the run ends would wake no run.
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del task
        self.poke()
        self.ended()

    async def _run_lanes(self) -> None:
        self._runner = _Runner(self._processor, self._called, self._clock, self._rng)
        try:
            await self._runner.run(self.source)  # type: ignore[arg-type]  # what it says changes by itself
        finally:
            self._runner = None

    async def _run_columnar(self) -> None:
        baton = SyncBridge()

        def sleep(seconds: float) -> None:
            processor = self._processor
            if seconds <= _POLL:
                if processor.is_done:
                    return
                # Nothing is to be seen before the next try to write; looking every 2 ms would make an hour long.
                seconds = max(seconds, (processor.next_wake or 0.0) - self._clock.monotonic())
            baton.sleep(seconds)

        runner = TableRunner(self._processor, self._clock, sleep)
        await baton.drive(lambda: runner.run(self.source))  # type: ignore[arg-type]  # as above
        self.source.settle()


class _Processor(Processor):
    """A processor that gives each lane one key at a time.

    A real processor gives a fast handler many keys at once. In virtual time every handler is fast, and a test wants to
    see what happens when keys are in work side by side.
    """

    def take(self, lanes: int | None = None) -> list[KeyQueue[Record[Any]]] | None:
        self.pace = 1.0
        return super().take(lanes)


class _Runner(EventLoopRunner):
    """The event loop's runner, woken when there is something to do instead of looking every 2 ms."""

    def __init__(self, processor: Processor, route: HandlerSpec, clock: FakeClock, rng: random.Random | None) -> None:
        # A sync handler takes real time if any, so its time limit is measured with the real clock.
        super().__init__(processor, Call(route, clock if route.is_async else SystemClock(), slice_=math.inf), clock)
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

    async def _execute_sync(self, turn: list[KeyQueue[Record[Any]]]) -> TurnReport:
        report = self._plain(turn)
        report.seconds = 0.0  # real seconds would make each run differ
        return report

    async def _execute_shuffled(self, turn: list[KeyQueue[Record[Any]]]) -> TurnReport:
        for _ in range(self._rng.randrange(4) if self._rng is not None else 0):
            await asyncio.sleep(0)
        return await self._straight(turn)

    async def _pause(self, source: Source, fetched: int) -> None:
        if fetched and not source.is_exhausted and self._processor.room:
            await asyncio.sleep(0)
        else:
            await self._wait_for_change()
