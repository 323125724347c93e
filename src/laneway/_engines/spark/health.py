"""QueriesHealth: what health is judged by on Spark, from what tasks and planners say and what the brokers answer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from laneway._core.locate import HandlerStatus, Location
from laneway._declare.health import Level, lasting
from laneway._kafka import Admin
from laneway._runtime.health.snapshot import Finding, Located, PartitionStatus, Snapshot
from laneway._runtime.monitor import BrokerMonitor
from laneway.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from laneway._core.locate import Spot
    from laneway._engines.spark.control import TaskStatus
    from laneway._engines.spark.control_server import Channel, ControlServer
    from laneway._engines.spark.query_spec import QuerySpec
    from laneway._kafka import Place
    from laneway._runtime.partition import Partition

__all__ = ["QueriesHealth"]

_SILENT = 10.0  # seconds; a task sends its status once a second
_PATIENCE = 0.5  # seconds for tasks to answer; the previous status is about a second old
_NOT_READ = "the running micro-batch does not read them, and the next one starts after it"
_NO_BATCH = "no micro-batch is running"


class QueriesHealth:
    """The health source of an app's queries on one Kafka cluster.

    Args:
        queries: the specification and the channel of each query.
        control: has the open breakers.
    """

    def __init__(self, queries: Sequence[tuple[QuerySpec, Channel]], control: ControlServer) -> None:
        self._queries = queries
        self._control = control
        first = queries[0][0]
        self._app = first.app
        self._where = str(first.client.get("bootstrap.servers", ""))
        self._delays = {feed.topic: feed.delay for stream, _ in queries for feed in stream.feeds if feed.delay}
        self._lows: dict[Place, dict[str, int]] = {}
        """The first unfinished offset of a partition, for each handler that reads it."""
        self._places: dict[Place, Partition | None] = {}
        """The partitions whose ends are requested."""
        self.admin = Admin(first.client)
        self._monitor = BrokerMonitor(
            self, self._places, sources=[stream.topic for stream, _ in queries], errors={}, may_create=False,
            where=self._where,
        )  # fmt: skip

    @classmethod
    def of(cls, queries: Sequence[tuple[QuerySpec, Channel]], control: ControlServer) -> list[QueriesHealth]:
        """One for each cluster."""
        by_cluster: dict[str, list[tuple[QuerySpec, Channel]]] = {}
        for query in queries:
            by_cluster.setdefault(query[0].cluster, []).append(query)
        return [cls(found, control) for found in by_cluster.values()]

    def start(self) -> None:
        """Start the broker monitor, so that a deleted source is noticed before the first batch."""
        with suppress(AdminError):
            for stream, _ in self._queries:
                for partition in self.admin.partitions(stream.topic):
                    self._places.setdefault((stream.topic, partition), None)
        self._monitor.start()

    def end(self) -> None:
        self._monitor.end()

    def count_brokers(self) -> None:
        self._monitor.counts = True

    def refresh(self) -> None:
        for _, channel in self._queries:
            channel.ask(_PATIENCE)

    def look(self) -> Snapshot:
        statuses = [found for _, channel in self._queries for found in channel.statuses()]
        self._learn(status for _, status in statuses)
        delivered: dict[Place, int] = {}
        for _, status in statuses:
            for topic, partition, _, end in status.partitions:
                delivered[topic, partition] = max(end, delivered.get((topic, partition), 0))
        partitions = {}
        for place, lows in tuple(self._lows.items()):
            low = min(lows.values())
            waits = "" if place in delivered else _NOT_READ if delivered else _NO_BATCH
            partitions[place] = PartitionStatus(low, max(low, delivered.get(place, low)), low, waits=waits)
        sources = {stream.topic for stream, _ in self._queries}
        return Snapshot(
            self._where,
            self._monitor.view,
            partitions,
            self._handlers([status.handler for _, status in statuses]),
            self._delays,
            owned=[place for place in partitions if place[0] in sources],
            findings=list(_silent(statuses)),
        )

    def locate(self, spots: Collection[Spot]) -> list[Located]:
        statuses = [status for _, channel in self._queries for _, status in channel.statuses()]
        handlers = {found.handler: found for found in self._handlers([status.handler for status in statuses])}
        wanted, found = set(spots), []
        for status in statuses:
            for spot, location in status.locations:
                if spot in wanted:
                    found.append(Located(spot, handlers[status.handler.handler], location))
        known = {each.spot for each in found}
        for status in statuses:
            for topic, partition, low, _ in status.partitions:
                spot = (topic, partition, low)
                if spot in wanted and spot not in known:
                    found.append(Located(spot, handlers[status.handler.handler], Location(code="unknown")))
        return found

    def _learn(self, statuses: Iterable[TaskStatus]) -> None:
        """Take the positions of finished batches and running tasks."""
        for _, channel in self._queries:
            progress = channel.progress
            for handler, topic, partition, position in () if progress is None else progress.positions:
                self._lows.setdefault((topic, partition), {})[handler] = position.begin
        for status in statuses:
            for topic, partition, low, _ in status.partitions:
                self._lows.setdefault((topic, partition), {})[status.handler.handler] = low
        for place in self._lows:
            if place not in self._places:
                self._places[place] = None

    def _handlers(self, statuses: Sequence[HandlerStatus]) -> list[HandlerStatus]:
        """One status for each handler, summed over the processes that run it."""
        found: dict[str, HandlerStatus] = {}
        for status in statuses:
            known = found.get(status.handler)
            found[status.handler] = status if known is None else _merged(known, status)
        for handler, breaker in self._control.breakers(self._app).items():
            known = found.get(handler, HandlerStatus(handler))
            if known.breaker is None:
                found[handler] = msgspec.structs.replace(known, breaker=breaker)
        return list(found.values())


def _merged(one: HandlerStatus, other: HandlerStatus) -> HandlerStatus:
    late = {found.topic: found for found in sorted((*one.late, *other.late), key=lambda found: found.seconds)}
    troubles = {found.topic: found for found in sorted((*one.troubles, *other.troubles), key=lambda each: each.seconds)}
    return msgspec.structs.replace(
        one,
        busy=one.busy + other.busy,
        lanes=one.lanes + other.lanes,
        breaker=one.breaker or other.breaker,
        late=tuple(late.values()),
        troubles=tuple(troubles.values()),
        trouble=one.trouble or other.trouble,
    )


def _silent(statuses: Iterable[tuple[float, TaskStatus]]) -> Iterator[Finding]:
    for age, status in statuses:
        if age > _SILENT:
            topic = status.partitions[0][0] if status.partitions else "?"
            words = (
                f"a task of handler {status.handler.handler!r} that reads {topic} has sent no status for "
                f"{lasting(age)}: its process hangs, was suspended, or cannot reach the driver"
            )
            yield Finding(Level.CRITICAL, "silent", f"{topic}/{status.task}", words, age)
