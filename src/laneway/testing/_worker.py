"""VirtualWorker: a handler at work in virtual time, with the processor and the runners of the other engines."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, TypeVar

from laneway._clock import SystemClock
from laneway._core.call import Call
from laneway._core.retry_functions import on_all_steps
from laneway._core.state import SetLanes
from laneway._runtime.handler_state import HandlerState
from laneway._runtime.handler_worker import HandlerWorker
from laneway._runtime.intake import Intake
from laneway._runtime.runners import EventLoopRunner, TableRunner
from laneway.testing._sync_bridge import SyncBridge

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    import pyarrow as pa

    from laneway._core.scheduler import KeyQueue
    from laneway._core.state import Command
    from laneway._core.turn import TurnReport
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway.observe import Notes, Tally
    from laneway.testing._clients import FakeSender
    from laneway.testing._virtual_time import FakeClock, VirtualLoop
    from laneway.typing import Source

__all__ = ["VirtualWorker"]

T = TypeVar("T")

_POLL = 0.002  # seconds: the pause of a columnar runner that only waits for acknowledgements
_TICK = 1e-6  # seconds at least between two looks: a sum of seconds may be due and, by its rounding, not be over
_LOOK = 0.5  # seconds between looks at messages that wait: copies that are late hold their keys from then on


class VirtualWorker(HandlerWorker):
    """Runs a handler on a virtual loop. Sync handlers are called there too, one at a time.

    Args:
        spec: the handler.
        app: the app's name.
        sender: where messages and copies go; of this worker alone.
        loop: where it runs.
        listener: hears of each event.
        rng: mixes the schedule; None for the plain order.
        progress: set whenever something may have been finished.
    """

    def __init__(
        self,
        spec: HandlerSpec,
        app: str,
        *,
        sender: FakeSender,
        loop: VirtualLoop,
        listener: Notes,
        rng: random.Random | None,
        progress: asyncio.Event,
    ) -> None:
        state = HandlerState(spec, app)
        self._client = state.dedup = sender.stores.client(spec)
        state.called = on_all_steps(spec, app, has_threads=False)
        lanes = max(1, spec.lanes)
        super().__init__(
            spec, app, lanes=lanes, sender=sender, host=loop, listener=listener, state=state, clock=loop.clock
        )
        self._virtual, self.clock = loop, loop.clock
        self._sender = sender
        self._rng = rng
        self._progress = progress
        self.intake: VirtualIntake = VirtualIntake(progress)

    def start(self) -> None:
        """Begin to work."""
        if self.spec.kind == "columnar":
            self.intake.sift = self.processor.ours
            run = self._run_tables()
        else:
            runner = VirtualRunner(self, self._state.called, self._virtual.clock, self._rng)
            self.intake.arrived, self._runner = runner.look, runner
            run = runner.run(self.intake)
        task = self._virtual.create_task(run)
        task.add_done_callback(lambda _: self.progressed())
        self._future = task  # type: ignore[assignment]  # what is asked of it both kinds have

    def post(self, command: Command) -> None:
        """Let the processor obey a command soon."""
        super().post(command)
        self.intake.bridge.wake()

    def share(self, partitions: int) -> None:
        """So many partitions are ours: have lanes for each; there are no processes here."""
        self.post(SetLanes(max(1, self.spec.lanes) * max(1, partitions)))

    def look(self, question: Callable[[], T], timeout: float) -> tuple[T, bool]:
        """Ask something of the processor: nothing changes it meanwhile."""
        del timeout
        return question(), True

    def dry(self, *, is_dry: bool) -> None:
        """Whether nothing more can be read now, so that no batch has to wait for more."""
        if is_dry and not self.intake.is_dry and self._runner is not None:
            self._runner.look()
        self.intake.is_dry = is_dry

    def close(self) -> Tally:
        """As of other workers; its client is not a living one any more."""
        tally = super().close()
        if self._client is not None:
            self._client.die()
        return tally

    def abandon(self) -> None:
        """End now, as a process that is killed."""
        self._sender.is_dead = True
        if self._client is not None:
            self._client.die()
        super().abandon()

    @property
    def is_busy(self) -> bool:
        """Whether a call of the handler is under way."""
        return self.processor.lanes.busy > 0

    @property
    def has_answers(self) -> bool:
        """Whether messages were answered that the processor does not know of yet."""
        return self._sender.has_answers

    def progressed(self) -> None:
        """Something may have been finished."""
        self._progress.set()

    async def _run_tables(self) -> None:
        runner = TableRunner(self.processor, _TableClock(self))
        await self.intake.bridge.drive(lambda: runner.run(self.intake))


class _TableClock:
    """The clock of a columnar handler: waiting lets the virtual loop go on."""

    def __init__(self, worker: VirtualWorker) -> None:
        self.monotonic, self.wall = worker.clock.monotonic, worker.clock.wall
        self._worker = worker

    def sleep(self, seconds: float) -> None:
        processor = self._worker.processor
        self._worker.progressed()
        if seconds <= _POLL:
            if processor.is_done:
                return
            # Nothing changes before the next try to write; looking every 2 ms would make an hour long.
            seconds = max(seconds, (processor.next_wake or 0.0) - self.monotonic())
        self._worker.intake.bridge.sleep(seconds)


class VirtualIntake(Intake):
    """An intake that waits in virtual time.

    Args:
        progress: set whenever a table may have been finished.
    """

    def __init__(self, progress: asyncio.Event) -> None:
        super().__init__()
        self._progress = progress
        self.bridge = SyncBridge()
        self.is_dry = False
        """Whether nothing more can be read now."""
        self.arrived = self.bridge.wake

    def fetch_table(self, most: int, timeout: float) -> pa.Table | None:
        """A table, or None when something else has happened."""
        self.settle()
        self._progress.set()
        if not (self.has_news or self.is_exhausted):
            self.bridge.wait()
        return super().fetch_table(most, timeout) if self.has_news else None

    def end(self) -> None:
        """Nothing more will come."""
        super().end()
        self.bridge.wake()


class VirtualRunner(EventLoopRunner):
    """The event loop's runner, which looks when there is something to do, and gives each lane one key at a time.

    A runner gives a fast handler many keys at once. In virtual time every handler is fast, and a test wants to see what
    happens when keys are in work side by side.
    """

    def __init__(self, worker: VirtualWorker, route: HandlerSpec, clock: FakeClock, rng: random.Random | None) -> None:
        # A sync handler takes real time if any, so its time limit is measured with the real clock.
        limits = clock if route.is_async else SystemClock()
        call = Call(route, limits, slice_=math.inf, dedup=worker.processor.dedup)
        super().__init__(worker.processor, call, clock)
        self._worker = worker
        self._route_is_async = route.is_async
        self._straight = self._execute
        self._plain = call.batch if route.is_batch else call.single
        self._execute, self._one = self._execute_in_turn, None
        self._rng = rng

    def look(self) -> None:
        """As `wake`, on the loop's thread."""
        self._changed.set()

    async def _execute_in_turn(self, turn: list[KeyQueue[Record[Any]]]) -> TurnReport:
        self._processor.pace = 1.0  # a slow handler's, so that a lane is given one key
        for _ in range(self._rng.randrange(4) if self._rng is not None else 0):
            await asyncio.sleep(0)
        if self._route_is_async:
            return await self._straight(turn)
        report = self._plain(turn)
        report.seconds = 0.0  # real seconds would make each run differ
        return report

    async def _pause(self, source: Source, fetched: int) -> None:
        processor, intake = self._processor, self._worker.intake
        if (fetched or (intake.has_news and not source.is_exhausted)) and processor.room:
            await asyncio.sleep(0)
            return
        if intake.is_dry and not intake.has_news:
            processor.is_closing = True  # no record comes that a batch could wait for
            processor.tick()
            while (turn := processor.take()) is not None:
                self._start(turn)
        await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        processor = self._processor
        self._worker.progressed()
        if self._worker.has_answers:
            await asyncio.sleep(0)
            return
        self._changed.clear()
        wake = processor.next_wake
        pause = None if wake is None else max(_TICK, wake - self._clock.monotonic())
        if processor.outbox.pending:
            pause = _LOOK if pause is None else min(pause, _LOOK)
        try:
            async with asyncio.timeout(pause):
                await self._changed.wait()
        except TimeoutError:
            pass
