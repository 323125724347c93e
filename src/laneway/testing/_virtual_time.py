"""Virtual time: a clock that moves only when a test moves it, and an event loop that follows it."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any

from laneway._declare.units import as_duration
from laneway.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from laneway._declare.units import Duration

__all__ = ["FakeClock", "VirtualLoop"]

_EPOCH = 1_704_067_200.0  # 2024-01-01 00:00 UTC: any fixed day will do, as long as every test sees the same
_BOOT = 1_000.0  # never 0, which reads as "no time" in places


class FakeClock:
    """A clock that stands still until `advance` moves it. Not thread-safe.

    Example:
        >>> clock = FakeClock()
        >>> before = clock.wall()
        >>> clock.advance("1m30s")
        >>> clock.wall() - before
        90.0
    """

    def __init__(self) -> None:
        self._elapsed = 0.0

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        return _BOOT + self._elapsed

    def wall(self) -> float:
        """Seconds since the epoch; the first moment of 2024 at the start."""
        return _EPOCH + self._elapsed

    def advance(self, duration: Duration) -> None:
        """Move the time on. Nothing runs by that: `FakeKafka.advance` moves the same clock and runs what is due."""
        self._elapsed += as_duration(duration).total_seconds()

    def move_to(self, monotonic: float) -> None:
        """Move the time on to a moment of `monotonic`; a moment that has passed changes nothing."""
        self._elapsed = max(self._elapsed, monotonic - _BOOT)


def _never() -> bool:
    return False


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs callbacks; when none is ready it jumps to the next timer instead of waiting for it.

    Threads that the loop started (`asyncio.to_thread`) are waited for in real time, while virtual time stands.
    Sockets are looked at but not waited for: a test has no network.

    Args:
        clock: whose time it is.
    """

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self._horizon = clock.monotonic()
        self._is_busy: Callable[[], bool] = _never
        self._until: Callable[[], bool] = _never
        self._in_threads = 0
        super().__init__(_NoWait(self))

    @property
    def loop(self) -> VirtualLoop:
        """Itself: it hosts the async handlers."""
        return self

    def time(self) -> float:
        """The fake clock's time."""
        return self.clock.monotonic()

    def run_due(self, seconds: float, until: Callable[[], bool] = _never) -> None:
        """Run everything that is due within so many seconds, then let it be that much later.

        It stops when *until* says so and nothing more can run before time moves.
        """
        self._horizon, self._until = self.time() + seconds, until
        try:
            self.run_forever()
        finally:
            self._until = _never

    def run_while(self, is_busy: Callable[[], bool], most: float) -> None:
        """Run what is ready; while *is_busy* says so, let time pass too.

        Raises:
            EngineError: when it is still busy after *most* seconds.
        """
        deadline = self.time() + most
        self._horizon = self.time()

        def may_go_on() -> bool:
            if not is_busy():
                return False
            if self.time() > deadline:
                raise EngineError(f"still at work after {most:g} s of virtual time; does a handler wait forever?")
            return True

        self._is_busy = may_go_on
        try:
            self.run_forever()
        finally:
            self._is_busy = _never

    def complete(self, awaitable: Awaitable[Any]) -> Any:
        """Run until *awaitable* is done, however long that takes in virtual time."""
        self._is_busy = _always
        try:
            return self.run_until_complete(_as_coroutine(awaitable))
        finally:
            self._is_busy = _never

    def run_in_executor(  # type: ignore[override]  # typed by variadic generics there, which add nothing here
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        """As ever, and take note that a thread is at work."""
        future: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    def end(self) -> None:
        """Cancel what is left and close."""
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.complete(asyncio.wait(tasks, timeout=60))
        self.complete(self.shutdown_asyncgens())
        self._in_threads += 1  # the one that ends the others
        self.complete(self.shutdown_default_executor())
        self.close()

    def _thread_ended(self, _future: asyncio.Future[Any]) -> None:
        self._in_threads -= 1

    def idle(self, timeout: float | None) -> bool:
        """Nothing is ready for *timeout* seconds: jump there, stop, or (True) really wait for a thread."""
        if self._in_threads:
            return True
        now = self.time()
        if self._until():
            self.stop()
        elif timeout is not None and (now + timeout <= self._horizon or self._is_busy()):
            self.clock.move_to(now + timeout)
        else:
            self.clock.move_to(self._horizon)
            self.stop()
        return False


class _NoWait(selectors.DefaultSelector):
    """Looks and never waits; the loop says what to do instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout == 0:
            return found
        return super().select(None) if self._loop.idle(timeout) else []


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _always() -> bool:
    return True
