"""Member: the thread of a loop that is a member of a consumer group."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from laneway._runtime.worker_loop import Request

if TYPE_CHECKING:
    from laneway._runtime.worker_loop import WorkerLoop

__all__ = ["Member"]


class Member:
    """Runs a `WorkerLoop` on its own thread until it is asked to leave the group."""

    def __init__(self, loop: WorkerLoop) -> None:
        self._loop = loop
        self._thread = threading.Thread(target=self._work, name="laneway-member", daemon=True)
        self._error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    @property
    def is_committed(self) -> bool:
        """Whether everything finished was committed at the end. Any thread may ask."""
        return self._loop.status().is_committed or self._thread.ident is None  # never started: nothing to commit

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        """Commit, leave the group and end the thread, without waiting for that. Any thread may call it."""
        self._loop.request(Request.LEAVE)

    def raise_if_failed(self) -> None:
        """Raise the error that ended the thread."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            try:
                self._loop.run(lambda: self._loop.is_leaving)
                self._loop.drain()
            finally:
                self._loop.close()
        except BaseException as error:  # noqa: BLE001 - raised by the engine, on its own thread
            self._error = error
