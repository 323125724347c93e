"""Committer: commits offsets one request after the other, on a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from laneway.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laneway.kafka import Committed, Place

__all__ = ["Committer"]


class Committer:
    """Sends a commit and waits for the broker's answer before it takes the next.

    With two under way a connection that breaks could let the first be repeated behind the second, and the group's
    offsets would go backwards.

    Args:
        commit: commits, and returns when the broker has it.
    """

    def __init__(self, commit: Callable[[Mapping[Place, Committed]], None]) -> None:
        self._commit = commit
        self._job: Mapping[Place, Committed] | None = None
        self._changed = threading.Condition()
        self._is_over = False
        self._thread: threading.Thread | None = None
        self._answers: deque[tuple[Mapping[Place, Committed], AdminError | None]] = deque()

    def offer(self, offsets: Mapping[Place, Committed]) -> bool:
        """Commit these; False, and nothing happens, while an earlier commit is under way."""
        with self._changed:
            if self._job is not None or self._is_over:
                return False
            self._job = offsets
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="laneway-committer", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return True

    def answers(self) -> list[tuple[Mapping[Place, Committed], AdminError | None]]:
        """What became of commits since this was last asked, in their order: None, or why the broker has it not."""
        return [self._answers.popleft() for _ in range(len(self._answers))]

    def wait(self, timeout: float) -> bool:
        """Wait until nothing is under way; False when that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._job is None, max(0.0, timeout))

    def end(self) -> None:
        """Take nothing more."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._job is not None or self._is_over)
                job = self._job
            if job is None:
                return
            error: AdminError | None = None
            try:
                self._commit(job)
            except AdminError as found:
                error = found
            self._answers.append((job, error))
            with self._changed:
                self._job = None
                self._changed.notify_all()
