"""Snapshot: what health and `why` are judged by, on one cluster at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from laneway._clock import SystemClock
from laneway._core.locate import Location, locate, status_of
from laneway._declare.health import Level  # noqa: TC001 - part of a public value
from laneway._runtime.broker_monitor import BrokerView
from laneway._runtime.partition import Pause

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import timedelta

    from laneway._clock import Clock
    from laneway._core.locate import HandlerStatus, Spot
    from laneway._kafka import Place
    from laneway._runtime.broker_monitor import BrokerMonitor
    from laneway._runtime.handler_worker import HandlerWorker
    from laneway._runtime.partition import Partition
    from laneway._runtime.worker_loop import WorkerLoop

__all__ = [
    "Finding",
    "HealthSource",
    "Located",
    "LoopHealth",
    "MemberStatus",
    "PartitionStatus",
    "Snapshot",
    "located",
]


T = TypeVar("T")
_SYSTEM = SystemClock()
_PATIENCE = 0.3  # seconds that a handler's lanes may take to answer; an event loop that does not is blocked


class Finding(NamedTuple):
    level: Level
    code: str
    subject: str
    """The subject: findings with the same code and subject are the same finding over time."""
    text: str
    seconds: float | None = None


class PartitionStatus(NamedTuple):
    """A partition that is read here."""

    low: int
    """The lowest offset that some handler has not finished."""
    delivered: int
    """The offset after the last record given to the handlers."""
    committed: int
    epoch: int = 0
    """Changes when the partition was revoked and assigned again, or its log started again."""
    waits: str = ""
    """Why it is not read; empty if it may be."""
    is_full: bool = False
    """Whether the commit metadata has no room for more finished offsets."""


class MemberStatus(NamedTuple):
    """The member of a consumer group."""

    has_joined: bool
    """Whether the first assignment has arrived; it may be empty."""
    is_over: bool
    silent: float
    """Seconds since the last poll."""
    allowed: float
    """Seconds that are allowed between polls."""
    session: timedelta
    """The session timeout, after which the group reassigns a killed member's partitions."""


class Snapshot(NamedTuple):
    """One cluster of an app at one moment."""

    where: str
    brokers: BrokerView = BrokerView()
    partitions: Mapping[Place, PartitionStatus] = {}
    handlers: Sequence[HandlerStatus] = ()
    delays: Mapping[str, float] = {}
    """Delayed topics, and the delay in seconds."""
    member: MemberStatus | None = None
    owned: Collection[Place] = ()
    """The partitions of sources that are read here."""
    findings: Sequence[Finding] = ()
    """Findings that only this engine can make."""

    @property
    def lag(self) -> dict[Place, int]:
        """Unfinished records of each partition, in Kafka and here."""
        ends = self.brokers.ends
        return {place: max(0, ends[place] - found.low) for place, found in self.partitions.items() if place in ends}


class Located(NamedTuple):
    """Where the lowest unfinished record of a partition is."""

    spot: Spot
    handler: HandlerStatus
    location: Location


class HealthSource(Protocol):
    """A health source: one cluster's part of an engine. Any thread may call it."""

    def refresh(self) -> None:
        """Request the status of other processes, and wait a moment for it."""

    def look(self) -> Snapshot:
        """A snapshot, without asking a broker."""

    def locate(self, spots: Collection[Spot]) -> list[Located]:
        """The locations of unfinished records: one entry for each handler that has not finished the record."""

    def count_brokers(self) -> None:
        """Count the brokers from now on."""


class LoopHealth:
    """The health source of a loop and its handlers."""

    def __init__(
        self,
        loop: WorkerLoop,
        workers: Sequence[HandlerWorker],
        monitor: BrokerMonitor,
        *,
        sources: Collection[str],
        where: str = "",
        timeout: float = 30.0,
        clock: Clock = _SYSTEM,
    ) -> None:
        self._loop = loop
        self._workers = workers
        self._monitor = monitor
        self._sources = sources
        self._where = where
        self._timeout = timeout
        self._clock = clock
        self._delays = {
            step.spec.topic.name: step.spec.delay.total_seconds()
            for worker in workers
            for step in worker.processor.steps
            if step.spec.delay
        }

    def refresh(self) -> None: ...

    def look(self) -> Snapshot:
        views, owned = self._loop.status().partitions, dict(self._loop.partitions)
        return Snapshot(
            self._where,
            self._monitor.view,
            {place: _status(owned[place], view.low, view.delivered) for place, view in views.items() if place in owned},
            [self._status_of(worker) for worker in self._workers],
            self._delays,
            owned=[place for place in owned if place[0] in self._sources],
        )

    def locate(self, spots: Collection[Spot]) -> list[Located]:
        found, patience = [], _PATIENCE
        for worker in self._workers:
            own = [spot for spot in spots if spot[0] in worker.topics and _is_at(worker, spot[:2], spot[2])]
            if not own:
                continue
            locations, is_sure = located(worker, own, patience, self._clock)
            patience = patience if is_sure else 0.0
            handler = self._status_of(worker)
            found += [Located(spot, handler, location) for spot, location in locations.items()]
        return found

    def count_brokers(self) -> None:
        self._monitor.counts = True

    def _status_of(self, worker: HandlerWorker) -> HandlerStatus:
        return status_of(worker.processor, self._clock.monotonic(), self._timeout)


def located(
    worker: HandlerWorker, spots: list[Spot], patience: float, clock: Clock = _SYSTEM
) -> tuple[dict[Spot, Location], bool]:
    """The locations of records in a handler, and whether nothing changed during the lookup."""
    try:
        found, is_sure = worker.look(
            lambda: locate(worker.processor, spots, clock.monotonic(), worker.intake.table), patience
        )
    except RuntimeError:  # it changed during the lookup
        return dict.fromkeys(spots, Location(code="unknown")), True
    if not is_sure and worker.spec.is_async:
        found = {
            spot: Location(code="loop", has_key=inner.has_key, key=inner.key, inner=inner)
            for spot, inner in found.items()
        }
    return found, is_sure


def _status(partition: Partition, low: int, delivered: int) -> PartitionStatus:
    paused = partition.paused.copy()
    waits = next((reason.value for reason in Pause if reason in paused), "")
    return PartitionStatus(low, delivered, partition.committed, partition.epoch, waits, Pause.METADATA in paused)


def _is_at(worker: HandlerWorker, place: Place, offset: int) -> bool:
    """Whether this handler has not finished the offset; another handler of the topic may not have."""
    end, unfinished = worker.progress(place, offset)
    return end <= offset or offset in unfinished
