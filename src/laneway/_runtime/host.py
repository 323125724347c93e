"""AppHost: an app's hooks and the event loop of its async handlers, in this process."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any, Protocol

from laneway.observe import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway._declare.app import App

__all__ = ["AppHost", "LoopOwner", "new_loop"]

_log = logger("runtime")

_END = 5.0  # seconds for cancelled tasks of the user to end


class LoopOwner(Protocol):
    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of async handlers; created at the first use."""


class AppHost:
    """Runs an app's setup and cleanup hooks, and the event loop of its async handlers on a thread.

    The loop is created only when something is async. Async hooks run on it, so a connection pool that they open belongs
    to the loop of the handlers.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of async handlers; created at the first use."""
        if self._loop is None:
            self._loop = new_loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name="laneway-loop", daemon=True)
            self._thread.start()
        return self._loop

    def open(self) -> None:
        for hook in self._app.setups:
            self._call(hook)

    def close(self) -> None:
        """Run the cleanup hooks and stop the loop. If a hook fails the others still run; then its error is raised."""
        failed: list[Exception] = []
        for hook in self._app.cleanups:
            try:
                self._call(hook)
            except Exception as error:  # noqa: BLE001 - the user's own code
                failed.append(error)
        self._end_loop()
        for other in failed[1:]:
            _log.error("another cleanup hook failed", exc_info=other)
        if failed:
            raise failed[0]

    def _end_loop(self) -> None:
        if self._loop is None or self._thread is None:
            return
        loop, thread = self._loop, self._thread
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_END)

    def _call(self, hook: Callable[[], Any]) -> None:
        answer = hook()
        if inspect.isawaitable(answer):
            asyncio.run_coroutine_threadsafe(_awaited(answer), self.loop).result()

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while True:
                try:
                    loop.run_forever()
                    break
                except (SystemExit, KeyboardInterrupt):
                    continue  # from a handler, whose runner ends the run with it
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=_END))
        finally:
            loop.close()


async def _awaited(answer: Any) -> Any:
    return await answer


def new_loop() -> asyncio.AbstractEventLoop:
    """A new event loop: uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()  # type: ignore[no-any-return]
