"""Planner: decides which offsets each batch takes. It lives in a process beside the driver, as long as the query."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from laneway.engines.spark._plan import BatchSize, Share, pack, spread
from laneway.engines.spark._worker import load_app
from laneway.errors import DataLossError
from laneway.kafka import Admin, BrokerAbsentError, GroupOffsets, Range

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway.engines.spark._stream import Stream

__all__ = ["DRAINED", "PAUSE", "STOP", "Planner"]

T = TypeVar("T")
Offsets = dict[str, dict[str, int]]

STOP, DRAINED, PAUSE = "stop", "drained", "pause"
"""Files of the control folder: asked to stop; every batch is committed and none will come; asked to plan nothing."""

_REFRESH = 5.0  # seconds between looks for new partitions
_WAIT = 0.1  # seconds a call waits for records before it says that there are none; Spark then asks again at once
_LOOK = 0.01  # seconds between looks at the ends of the logs while waiting: half of it is added to the latency
_LAST_COMMIT = 10.0  # seconds for the commit before a stop; without a checkpoint what it misses is read again
_ABSENT = 1.0  # seconds to wait after the brokers did not answer


class Planner:
    """Plans the batches of one topic, and commits the group's offsets after Spark's commit log has them.

    Spark calls it from one thread. When the brokers do not answer it plans nothing, and the query waits.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._app = load_app(stream)
        self._routes = [route for route in self._app.routes if route.name in stream.routes]
        self._admin = Admin(stream.client)
        self._group = GroupOffsets(stream.client, stream.app)
        self._size = BatchSize(stream.batch_target, stream.max_batch_records, stream.first_batch)
        self._partitions: list[int] = []
        self._refreshed = 0.0
        self._committed: dict[int, int] = {}
        self._running: tuple[Offsets, int, float] | None = None
        self._target: dict[int, int] | None = None

    def initial(self) -> Offsets:
        """Where a query without a checkpoint begins: the group's offsets, else the start policy."""
        return _patiently(self._begin)

    def freeze(self) -> None:
        """From now on plan nothing past the ends the logs have at this moment."""
        self._target = _patiently(self._ends)

    def latest(self, start: Offsets) -> Offsets:
        """Where the next batch ends; the start itself when there is nothing to do.

        Spark asks only when the batch before is in its commit log, so what it asks with may be committed.
        """
        begin = self._as_numbers(start)
        self._completed(start)
        self._commit(begin)
        if self._is_asked_to(STOP):
            self._commit_for_good(begin)
            (Path(self._stream.control) / DRAINED).touch()
            time.sleep(_LOOK)
            return start
        deadline = time.monotonic() + _WAIT
        while True:
            if self._is_asked_to(PAUSE):
                time.sleep(_LOOK)
                return start
            try:
                end = self._end_of_next(begin)
            except BrokerAbsentError:
                time.sleep(_ABSENT)
                return start
            if end != begin:
                return self._as_offsets(end)
            if self._target is not None or time.monotonic() >= deadline or self._is_asked_to(STOP):
                return start
            time.sleep(_LOOK)

    def shares(self, start: Offsets, end: Offsets) -> list[Share]:
        """The tasks of a batch."""
        begin, until = self._as_numbers(start), self._as_numbers(end)
        ranges = [
            Range(self._stream.topic, partition, first, stop)
            for partition, first, stop in _patiently(lambda: self._spans(begin, until))
        ]
        pool = max(len(self._partitions), len(until))
        self._running = (end, sum(part.length for part in ranges), time.monotonic())
        return [
            share
            for route in self._routes
            for share in pack(
                route.name,
                ranges,
                lanes=max(1, route.lanes) * (1 if route.strict else pool),
                tasks=self._stream.tasks,
                is_strict=route.strict,
            )
        ]

    def _begin(self) -> Offsets:
        partitions = self._known_partitions()
        begin = self._admin.starts if self._stream.start == "earliest" else self._admin.ends
        offsets = begin(self._stream.topic, partitions)
        return self._as_offsets(offsets | self._group.committed(self._stream.topic, partitions))

    def _end_of_next(self, begin: dict[int, int]) -> dict[int, int]:
        """Where the next batch would end; *begin* itself when nothing waits."""
        ends = self._target if self._target is not None else self._ends()
        firsts = {partition: self._first(partition, begin, ends) for partition in ends}
        waiting = {partition: ends[partition] - first for partition, first in firsts.items()}
        waiting = {partition: count for partition, count in waiting.items() if count > 0}
        if waiting:
            self._check_starts(begin, waiting)
        taken = spread(waiting, self._size.limit)
        # A log that was made anew and is still empty: its old offset must go before as many records come again.
        renewed = {partition: first for partition, first in firsts.items() if first < begin.get(partition, first)}
        return begin | renewed | {partition: firsts[partition] + count for partition, count in taken.items()}

    def _spans(self, begin: dict[int, int], until: dict[int, int]) -> list[tuple[int, int, int]]:
        """Partition, first offset and end of each part of a batch."""
        return [
            (partition, self._first(partition, begin, until), stop)
            for partition, stop in until.items()
            if stop != begin.get(partition)
        ]

    def _completed(self, start: Offsets) -> None:
        """Learn from the batch that ended at *start*."""
        if self._running is not None and self._running[0] == start:
            self._size.measured(self._running[1], time.monotonic() - self._running[2])
        self._running = None

    def _commit(self, offsets: dict[int, int]) -> None:
        """Commit what is new, and wait for it: a kill right after must not repeat a batch that is done."""
        new = {partition: offset for partition, offset in offsets.items() if self._committed.get(partition) != offset}
        try:
            self._group.commit(self._stream.topic, new, wait=True)
        except BrokerAbsentError:
            return  # the next call tries again
        self._committed |= new

    def _commit_for_good(self, offsets: dict[int, int]) -> None:
        """Commit and see it done; a coordinator that is away is waited for, but not for ever."""
        deadline = time.monotonic() + _LAST_COMMIT
        while True:
            try:
                return self._group.commit(self._stream.topic, offsets, wait=True)
            except BrokerAbsentError:
                if time.monotonic() > deadline:
                    return None
                time.sleep(_LOOK)

    def _is_asked_to(self, what: str) -> bool:
        return bool(self._stream.control) and (Path(self._stream.control) / what).exists()

    def _first(self, partition: int, begin: dict[int, int], ends: dict[int, int]) -> int:
        """The first offset to read: where the last batch ended, or the start of a partition that is new."""
        known = begin.get(partition)
        if known is None or known > ends.get(partition, known):
            if known is not None and not self._stream.skip_lost:
                raise DataLossError(
                    f"{self._stream.topic}[{partition}] ends at {ends[partition]}, before offset {known} which was "
                    "already read: the topic was deleted and made anew, or its log was cut. To read it from its "
                    "start set on_data_loss: continue"
                )
            return self._admin.starts(self._stream.topic, [partition])[partition]
        return known

    def _check_starts(self, begin: dict[int, int], waiting: dict[int, int]) -> None:
        """Notice deleted records here, before any handler runs; a task would run again for each of its attempts."""
        if self._stream.skip_lost:
            return
        for partition, low in self._admin.starts(self._stream.topic, list(waiting)).items():
            known = begin.get(partition, low)
            if known < low:
                raise DataLossError(
                    f"{self._stream.topic}[{partition}]: offsets {known} to {low - 1} are gone (the log begins at "
                    f"{low} now). They were deleted before they were read. To go on without them set on_data_loss: "
                    "continue"
                )

    def _ends(self) -> dict[int, int]:
        partitions = self._known_partitions()
        return self._admin.ends(self._stream.topic, partitions) if partitions else {}

    def _known_partitions(self) -> list[int]:
        if time.monotonic() - self._refreshed >= _REFRESH or not self._partitions:
            self._partitions = self._admin.partitions(self._stream.topic)
            self._refreshed = time.monotonic()
        return self._partitions

    def _as_offsets(self, offsets: dict[int, int]) -> Offsets:
        return {self._stream.topic: {str(partition): offsets[partition] for partition in sorted(offsets)}}

    def _as_numbers(self, offsets: Offsets) -> dict[int, int]:
        return {int(partition): offset for partition, offset in offsets.get(self._stream.topic, {}).items()}


def _patiently(ask: Callable[[], T]) -> T:
    """Ask until the brokers answer; soon again at first: a group's coordinator is often ready a moment later."""
    pause = _LOOK
    while True:
        try:
            return ask()
        except BrokerAbsentError:
            time.sleep(pause)
            pause = min(pause * 2, _ABSENT)
