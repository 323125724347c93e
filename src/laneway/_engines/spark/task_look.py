"""TaskLook: how one handler of a task is doing, looked up for the driver."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from laneway._core.locate import HandlerStatus, Location, Spot, status_of
from laneway._runtime.health.watched_loop import located

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._kafka import Place
    from laneway._runtime.handler_worker import HandlerWorker
    from laneway._runtime.partition import Partition

__all__ = ["TaskLook"]

_PATIENCE = 0.3  # seconds that the lanes may take to answer; an event loop that does not is blocked
_TIMEOUT = 30.0  # seconds that a message may take, as far as it is known here

Found = tuple[HandlerStatus, list[tuple[str, int, int, int]], list[tuple[Spot, Location]]]


class TaskLook:
    """Inspects a handler of a task from another thread.

    A record's location is looked up only when the lowest unfinished offset of its partition has not changed since the
    last look.
    """

    def __init__(self, handler: HandlerWorker, partitions: Sequence[Partition]) -> None:
        self._handler = handler
        self._partitions = partitions
        self._lows: dict[Place, int] = {}

    def look(self) -> Found | None:
        """The status now; None when it changed during the look."""
        try:
            standing = [self._standing(partition) for partition in self._partitions]
            stuck = [
                (topic, number, low)
                for topic, number, low, delivered in standing
                if low < delivered and self._lows.get((topic, number)) == low
            ]
            self._lows = {(topic, number): low for topic, number, low, _ in standing}
            locations = located(self._handler, stuck, _PATIENCE)[0] if stuck else {}
            status = status_of(self._handler.processor, time.monotonic(), _TIMEOUT)
        except RuntimeError:
            return None
        return status, standing, list(locations.items())

    def _standing(self, partition: Partition) -> tuple[str, int, int, int]:
        # What was delivered comes last: a record that comes meanwhile lies before it, and so counts as under way.
        end, unfinished = partition.progress_of(self._handler)
        return *partition.place, unfinished[0] if unfinished else end, partition.delivered
