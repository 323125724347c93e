"""Overdue: keys that went on while a copy of one of their records was on its way, and wait when it takes too long."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable

    from laneway._core.scheduler import KeyQueue, Scheduler
    from laneway._declare.record import Record

__all__ = ["Overdue"]

_PATIENCE = 0.5  # seconds that a copy may take; those of a busy task are collected for a fifth of that


class _Copy(Protocol):
    """A copy on its way."""

    key: Hashable
    """What orders its record; None when nothing does."""
    due: float
    """When it is late."""
    is_late: bool
    is_over: bool


class Overdue:
    """Holds back the keys whose copies are late. The desk owns it.

    Where later records of a key overtake a failed one anyway (`Retry.steps` in mode ``unordered``), nothing is won by a
    key that waits for the acknowledgement of each copy, and much is lost: its records pile up behind it. But when the
    retry topic cannot be written to, the key waits, and does not fill the memory with copies that have nowhere to go.

    Args:
        scheduler: where the queues come from and go back to.
    """

    def __init__(self, scheduler: Scheduler[Record[Any]]) -> None:
        self._scheduler = scheduler
        self._copies: deque[_Copy] = deque()
        self._late: dict[Hashable, int] = {}
        """Key to how many of its copies are late."""
        self._aside: dict[Hashable, KeyQueue[Record[Any]]] = {}

    def __bool__(self) -> bool:
        """Whether some key must wait."""
        return bool(self._late)

    def began(self, copy: _Copy, now: float) -> None:
        """A copy is on its way."""
        if copy.key is not None:
            copy.due = now + _PATIENCE
            self._copies.append(copy)

    def look(self, now: float) -> None:
        """Find out which copies are late."""
        copies = self._copies
        while copies and (copies[0].is_over or copies[0].due <= now):
            copy = copies.popleft()
            if not copy.is_over:
                copy.is_late = True
                self._late[copy.key] = self._late.get(copy.key, 0) + 1

    def parted(self, turn: list[KeyQueue[Record[Any]]]) -> list[KeyQueue[Record[Any]]]:
        """Which queues of a turn may run; the others are taken aside."""
        may_run = []
        for queue in turn:
            if queue.key in self._late:
                queue.taken = 0  # no lane works on it: what a partition that is given away has in it may be dropped
                self._aside[queue.key] = queue
            else:
                may_run.append(queue)
        return may_run

    def ended(self, copy: _Copy) -> None:
        """A copy is safe; after the last late one of its key, the key goes on."""
        copy.is_over = True
        if copy.is_late:
            key = copy.key
            self._late[key] -= 1
            if not self._late[key]:
                del self._late[key]
                queue = self._aside.pop(key, None)
                if queue is not None:
                    self._scheduler.settle(queue, 0)
