"""SyncBridge: lets a blocking function wait in virtual time."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SyncBridge"]


class SyncBridge:
    """Runs a blocking function on a thread of its own, which works only while the loop's thread waits for it.

    So there is never more than one thread at work, and the order of things is always the same. The function waits by
    calling `sleep` or `wait`; the loop goes on until virtual time has passed, or until `wake`.
    """

    def __init__(self) -> None:
        self._to_thread = threading.Semaphore(0)
        self._to_loop = threading.Semaphore(0)
        self._woken = asyncio.Event()
        self._pause: float | None = None
        self._error: BaseException | None = None
        self._is_waiting = self._is_over = False

    async def drive(self, function: Callable[[], None]) -> None:
        """Run *function* to its end."""
        thread = threading.Thread(target=self._run, args=(function,), name="laneway-columnar", daemon=True)
        thread.start()
        try:
            while True:
                self._to_thread.release()
                self._to_loop.acquire()
                if not self._is_waiting:
                    break
                if self._pause is not None:
                    await asyncio.sleep(self._pause)
                else:
                    await self._woken.wait()
                    self._woken.clear()
        finally:
            if self._is_waiting:
                self._is_over = True
                self._to_thread.release()
            thread.join()
        if self._error is not None:
            raise self._error

    def wake(self) -> None:
        """Let `wait` return; one that begins later returns at once."""
        self._woken.set()

    def sleep(self, seconds: float) -> None:
        """Wait for so long; only the function that is driven may call it."""
        self._hand_over(seconds)

    def wait(self) -> None:
        """Wait for `wake`; only the function that is driven may call it."""
        self._hand_over(None)

    def _hand_over(self, pause: float | None) -> None:
        self._pause, self._is_waiting = pause, True
        self._to_loop.release()
        self._to_thread.acquire()
        if self._is_over:
            raise _OverError
        self._is_waiting = False

    def _run(self, function: Callable[[], None]) -> None:
        self._to_thread.acquire()
        try:
            function()
        except _OverError:
            return
        except BaseException as error:  # noqa: BLE001 - raised again on the loop's thread
            self._error = error
        self._to_loop.release()


class _OverError(BaseException):
    """The app has crashed or ended while the function waited; no handler may catch it as its own failure."""
