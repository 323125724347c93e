"""LockedRunner: what runners have in common whose lanes are threads around one locked processor."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laneway._clock import Clock
    from laneway._core.processor import Processor
    from laneway._declare.record import Record
    from laneway.typing import Source

__all__ = ["LockedRunner"]

_LOOK = 0.02  # seconds at most between looks at what lanes left: postponed keys, copies, keys for lanes that are free
_LONG_LOOK = 1.0  # seconds at most between looks while a breaker is open: lanes and the clock tell, this is to be sure


class LockedRunner(ABC):
    """A reader that waits until something changes, and lanes that wait for work; one lock for all.

    Args:
        processor: gives turns and settles them.
        clock: the time.
        lock: guards the processor; processors that share a backlog share it too.
        most: how many lanes may be started; by default as many as the processor has at that moment.
    """

    def __init__(
        self, processor: Processor, clock: Clock, lock: threading.Lock | None, most: int | None = None
    ) -> None:
        self._processor = processor
        self._clock = clock
        self._most = most
        self._lock = lock or threading.Lock()
        self._work = threading.Condition(self._lock)
        self._changed = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []
        self._idle = 0
        """Lanes that were started and have no turn."""
        self._announces = False
        """Whether the source wakes this runner when records arrive."""
        self._broken: BaseException | None = None
        """What ended a lane, and so ends the run."""

    @property
    def lock(self) -> threading.Lock:
        """Guards the processor."""
        return self._lock

    def wake(self) -> None:
        """Look again at source and processor. Any thread may call it."""
        with self._lock:
            self._changed.notify()

    def _has_news(self, source: Source) -> bool:
        """Whether records have arrived since the source was asked, and there is room for them.

        What is left in a source that was ended is not read.
        """
        if not self._announces or source.is_exhausted:
            return False
        return bool(source.has_news) and self._processor.room > 0  # type: ignore[attr-defined]

    def _pause(self, source: Source, ready: float | None = None) -> float:
        """Seconds for which the reader may wait for a change.

        Args:
            source: where records come from.
            ready: seconds when a further lane could begin, if that is a reason to look again soon.
        """
        processor = self._processor
        if not self._announces and not source.is_exhausted and processor.room:
            return 0.001
        if ready is not None and processor.can_start:
            return ready
        wake, most = processor.next_wake, _LONG_LOOK if self._is_held else _LOOK
        if processor.outbox.pending:
            most = min(most, processor.outbox.pause)
        return most if wake is None else min(most, max(0.0, wake - self._clock.monotonic()))

    def _take_in(self, records: list[Record[Any]], source: Source) -> bool:
        """Called with the lock held: records for the processor, and time passes; whether everything is over."""
        processor = self._processor
        if records:
            processor.admit(records)
        processor.is_closing = source.is_exhausted
        processor.tick()
        if self._broken is not None:
            raise self._broken
        return source.is_exhausted and processor.is_done

    @property
    def _is_held(self) -> bool:
        """Whether a breaker is open: a probe at most may begin, and nothing else happens before it is due."""
        return self._processor.breaker is not None and self._processor.breaker.is_open

    def _wake_lanes(self) -> None:
        """Called with the lock held: as many lanes as there is work for, no more than are useful."""
        processor = self._processor
        if not processor.can_start:
            return
        wanted = max(0, min(processor.ready, self._useful() - processor.lanes.busy))
        if self._is_held:
            wanted = min(wanted, 1)
        if processor.spec.is_batch:
            wanted = min(wanted, -(-processor.ready // processor.spec.size))
        most = processor.lanes.total if self._most is None else self._most
        while self._idle < wanted and len(self._threads) < most:
            self._add_lane()
        self._work.notify(wanted)

    def _useful(self) -> int:
        """How many lanes may work at once."""
        return self._processor.lanes.total

    @abstractmethod
    def _add_lane(self) -> None:
        """Start one more: its thread is kept, and it is idle."""
