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
    calling `sleep`, which hands the baton to the loop until virtual time has passed.
    """

    def __init__(self) -> None:
        self._to_thread = threading.Semaphore(0)
        self._to_loop = threading.Semaphore(0)
        self._pause: float | None = None
        self._error: BaseException | None = None
        self._is_over = False

    async def drive(self, function: Callable[[], None]) -> None:
        """Run *function* to its end."""
        thread = threading.Thread(target=self._run, args=(function,), name="laneway-columnar", daemon=True)
        thread.start()
        try:
            while True:
                self._to_thread.release()
                self._to_loop.acquire()
                if self._pause is None:
                    break
                await asyncio.sleep(self._pause)
        finally:
            if self._pause is not None:
                self._is_over = True
                self._to_thread.release()
            thread.join()
        if self._error is not None:
            raise self._error

    def sleep(self, seconds: float) -> None:
        """Wait; only the function that is driven may call it."""
        self._pause = seconds
        self._to_loop.release()
        self._to_thread.acquire()
        if self._is_over:
            raise _OverError

    def _run(self, function: Callable[[], None]) -> None:
        self._to_thread.acquire()
        try:
            function()
        except _OverError:
            return
        except BaseException as error:  # noqa: BLE001 - raised again on the loop's thread
            self._error = error
        self._pause = None
        self._to_loop.release()


class _OverError(BaseException):
    """The app has crashed or ended while the function waited; no handler may catch it as its own failure."""
