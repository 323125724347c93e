"""Member: the thread of a loop that is a member of a consumer group."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from laneway._runtime.worker_loop import Request

if TYPE_CHECKING:
    from laneway._runtime.worker_loop import WorkerLoop

__all__ = ["Member"]


class Member:
    """Runs a loop on a thread of its own, until it is asked to leave.

    Args:
        loop: reads, feeds the handlers, and commits.
    """

    def __init__(self, loop: WorkerLoop) -> None:
        self._loop = loop
        self._thread = threading.Thread(target=self._work, name="laneway-member", daemon=True)
        self._error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has left the group."""
        return not self._thread.is_alive()

    @property
    def is_committed(self) -> bool:
        """Whether everything finished is committed, at the end. Any thread may ask."""
        return self._loop.status().is_committed or self._thread.ident is None  # one that never began has nothing

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    def leave(self) -> None:
        """Commit, leave the group and end; `is_over` and `is_committed` say how far it is. Any thread may call it."""
        self._loop.request(Request.LEAVE)

    def raise_if_failed(self) -> None:
        """Raise what ended it, if anything did."""
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
