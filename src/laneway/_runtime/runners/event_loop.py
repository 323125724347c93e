"""EventLoopRunner: lanes on one event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laneway._clock import Clock
    from laneway._core.call import Call
    from laneway._core.processor import Processor
    from laneway._core.scheduler import KeyQueue
    from laneway._declare.record import Record
    from laneway.typing import Source

__all__ = ["EventLoopRunner"]

_FETCH = 2_000  # records a fetch; more would keep the loop, and with it every lane, waiting for the conversion
_POLL = 0.002  # seconds between looks at the source; the loop cannot wait on a librdkafka queue


class EventLoopRunner:
    """Runs an async handler's turns on the running event loop.

    A lane is a task that exists only while there is work for it: thirty thousand idle lanes cost nothing.
    Everything happens on the loop's thread, so nothing is locked.
    """

    def __init__(self, processor: Processor, call: Call, clock: Clock) -> None:
        self._processor = processor
        self._execute = call.batch_async if processor.spec.is_batch else call.single_async
        self._one = None if processor.spec.is_batch or processor.dedup is not None else call.one_async
        processor.call = call
        self._clock = clock
        self._lanes: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._announces = False
        self._broken: BaseException | None = None

    def wake(self) -> None:
        """Look again at source and processor. Any thread may call it."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._changed.set)

    async def run(self, source: Source) -> None:
        """Work until the source is exhausted and every record has reached its end."""
        processor = self._processor
        self._announces = getattr(source, "announces", False)
        self._loop = asyncio.get_running_loop()
        processor.wake = self.wake
        try:
            while True:
                fetched = 0
                if not source.is_exhausted:
                    fetched = self._read(source)
                processor.is_closing = source.is_exhausted
                processor.tick()
                while (turn := processor.take()) is not None:
                    self._start(turn)
                if self._broken is not None:
                    raise self._broken
                if source.is_exhausted and processor.is_done:
                    return
                await self._pause(source, fetched)
        finally:
            await self._end()

    async def _end(self) -> None:
        """After a failure: end the calls, because the task is tried again elsewhere."""
        lanes = list(self._lanes)
        for lane in lanes:
            lane.cancel()
        if lanes:
            await asyncio.wait(lanes)

    def _read(self, source: Source) -> int:
        room = self._processor.room
        if not room:
            return 0
        # A look at the source comes once in a round of the loop, in which every lane may end its turn.
        most = max(_FETCH, 2 * self._processor.lanes.total) if self._announces else _FETCH
        records = source.fetch(min(room, most), 0.0)
        if records:
            self._processor.admit(records)
        return len(records)

    async def _pause(self, source: Source, fetched: int) -> None:
        # What waits in a source that announces was announced already, perhaps when there was no room for it. What is
        # left in one that was ended is not read.
        has_more = fetched or (
            self._announces and not source.is_exhausted and source.has_news  # type: ignore[attr-defined]
        )
        if has_more and self._processor.room:
            await asyncio.sleep(0)
        elif not self._announces and self._may_read(source):
            await asyncio.sleep(_POLL)
        else:
            await self._wait_for_change()

    def _may_read(self, source: Source) -> bool:
        """Whether the source is worth a look; not while a breaker is open, unless there is nothing to probe with."""
        processor = self._processor
        return not source.is_exhausted and (
            processor.breaker is None or not processor.breaker.is_open or processor.room > 0
        )

    async def _wait_for_change(self) -> None:
        """Sleep until a lane ends, a postponed key is due, or answers to copies are worth a look."""
        processor = self._processor
        wake = processor.next_wake
        self._changed.clear()
        pause = None if wake is None else max(0.0, wake - self._clock.monotonic())
        if processor.outbox.pending:
            pause = processor.outbox.pause if pause is None else min(pause, processor.outbox.pause)
        try:
            async with asyncio.timeout(pause):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _start(self, turn: list[KeyQueue[Record[Any]]]) -> None:
        lane = asyncio.get_running_loop().create_task(self._lane(turn))
        self._lanes.add(lane)
        lane.add_done_callback(self._ended)

    async def _lane(self, turn: list[KeyQueue[Record[Any]]] | None) -> None:
        processor, execute, one, now, changed = (
            self._processor,
            self._execute,
            self._one,
            self._clock.monotonic,
            self._changed,
        )
        while turn is not None:
            if one is not None and len(turn) == 1 == turn[0].taken:
                record, began = turn[0].items[turn[0].start], now()
                report = await one(record)
                processor.settle_one(turn, record, report, now() - began)
            else:
                processor.settle(turn, await execute(turn))
            # Keys may be ready for other lanes, postponed, or waiting for their copies: the reader looks again.
            changed.set()
            turn = processor.take()

    def _ended(self, lane: asyncio.Task[None]) -> None:
        self._lanes.discard(lane)
        if not lane.cancelled() and lane.exception() is not None:
            # Not a failure of the handler (that is an outcome) but a bug in laneway, or an exit request: end the run.
            self._broken = lane.exception()
            self._changed.set()
