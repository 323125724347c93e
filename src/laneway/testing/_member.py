"""Member: an app that runs on a fake Kafka."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from laneway._core.copy_index import CopyIndex
from laneway._core.deferred_keys import DeferredKeys
from laneway._core.headers import parked_at, read_from
from laneway._declare.handler import check_together
from laneway.observe import Tally
from laneway.testing._ends import FakeSource, FakeSources
from laneway.testing._listener import Listener
from laneway.testing._station import Station

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from laneway._declare.app import App
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway.testing._kafka import FakeKafka
    from laneway.testing._loop import VirtualLoop

__all__ = ["Member"]


class Member:
    """One app and its stations, one for each handler. A crash replaces the stations; the member stays.

    Args:
        app: whose handlers to run.
        kafka: what they read and write.
        loop: where they run.
        rng: mixes the schedule; None for the plain order.
        skip_lost: go on when records were deleted before they were read.
    """

    def __init__(
        self, app: App, kafka: FakeKafka, loop: VirtualLoop, *, rng: random.Random | None, skip_lost: bool
    ) -> None:
        self.app = app
        self._kafka = kafka
        self._loop = loop
        self._rng = rng
        self._skip_lost = skip_lost
        self._limits: dict[str, dict[int, int]] | None = None
        """How far each topic is read, if not to its end."""
        self._past = Tally()
        self._listener = Listener(app)
        self._stations: list[Station] = []
        self._since: dict[tuple[str, int], int] = {}
        """From when on copies of what is read of each partition count, milliseconds since the epoch."""
        check_together(app.name, app.routes)
        for route in app.routes:
            source = kafka.ensure(route.topic.name)
            for name in (route.error_topic_of(app.name), *route.retry_topics_of(app.name)):
                kafka.ensure(name, len(source.logs))

    @property
    def is_busy(self) -> bool:
        """Whether a handler is at work."""
        return any(station.is_busy for station in self._stations)

    @property
    def is_done(self) -> bool:
        """Whether every record there is has reached its end."""
        return bool(self._stations) and all(station.is_done for station in self._stations)

    @property
    def tally(self) -> Tally:
        """What was done so far, before crashes too."""
        total = Tally()
        total.add(self._past)
        for station in self._stations:
            total.add(station.tally)
        return total

    def wake(self, topic: str | None = None) -> None:
        """Let the handlers of a topic, or all, look for something to do."""
        for station in self._stations:
            if topic is None or topic in station.source.by_topic:
                self._loop.call_soon(station.poke)

    def start(self) -> None:
        """Run the setup hooks and begin at the committed offsets, unless that is done."""
        if self._stations:
            return
        self._call_all(self.app.setups)
        self._since = {}
        for route in self.app.routes:
            deferred = DeferredKeys()
            steps = [route.at_step(self.app.name, step) for step in range(route.retry.hops + 1)]
            sources = {}
            for own in steps:
                self._mark(own.topic.name)
                copied = self._copied(own, steps[own.step + 1 :])
                if own.step:
                    # What is left out will never leave, so it must not be waited for.
                    waiting = [record for record in self._unfinished(own) if not copied.has(record)]
                    deferred.load(waiting, own.step, own.lane_key, own.source)
                sources[own.topic.name] = self._source(own, copied)
            self._stations.append(self._station(route, FakeSources(sources, self._rng), deferred))
        self._listener.changed("consuming")

    def _mark(self, topic: str) -> None:
        """Commit that work may be under way from now on, or still is, since a crash."""
        now, group = int(self._kafka.clock.wall() * 1000), self.app.name
        committed = self._kafka.committed(group, topic)
        for partition, log in enumerate(self._kafka.ensure(topic).logs):
            since = self._kafka.since(group, topic, partition)
            self._since[topic, partition] = now if since is None else since
            at = committed.get(partition, log.start)
            self._kafka.commit_word(group, topic, partition, at, self._since[topic, partition])

    def _copied(self, route: HandlerSpec, above: list[HandlerSpec]) -> CopyIndex:
        """What a crash has left on the topics above. What is older than the position was copied before a reset."""
        copied, source = CopyIndex.of(route), route.topic.name
        for higher in above:
            waiting = self._unfinished(higher)
            copied.add([copy for copy in waiting if copy.timestamp >= self._since.get((source, copy.partition), 0)])
        copied.add(self._newly_parked(route))
        return copied

    def _source(self, route: HandlerSpec, copied: CopyIndex) -> FakeSource:
        return FakeSource(
            self._kafka.ensure(route.topic.name),
            self._kafka.committed(self.app, route.topic),
            skip_lost=self._skip_lost,
            rng=self._rng,
            delay=route.delay.total_seconds(),
            clock=self._kafka.clock,
            copied=copied,
            limits=None if self._limits is None else self._limits[route.topic.name],
        )

    def _station(self, route: HandlerSpec, source: FakeSources, deferred: DeferredKeys) -> Station:
        return Station(
            route,
            self.app.name,
            self._kafka.ensure(route.topic.name),
            source,
            write=self._kafka.write,
            loop=self._loop,
            rng=self._rng,
            deferred=deferred,
            listener=self._listener,
        )

    def _unfinished(self, route: HandlerSpec) -> list[Record[Any]]:
        """What waits on a topic."""
        committed = self._kafka.committed(self.app, route.topic)
        records: list[Record[Any]] = self._kafka.records(route.topic.name)
        return [record for record in records if record.offset >= committed.get(record.partition, 0)]

    def _newly_parked(self, route: HandlerSpec) -> list[Record[Any]]:
        """Copies on the error topic of records that are to be read again."""
        committed = self._kafka.committed(self.app, route.topic)
        copies: list[Record[Any]] = self._kafka.records(route.error_topic_of(self.app.name))
        places = [(copy, read_from(copy)) for copy in copies if copy.header("laneway-handler") == route.name.encode()]
        return [
            copy
            for copy, place in places
            if place is not None
            and place[0] == route.topic.name
            and place[2] >= committed.get(place[1], 0)
            and (parked_at(copy) or 0) >= self._since.get(place[:2], 0)
        ]

    def begin_batch(self) -> None:
        """The test lets the app work."""
        self._listener.begin(self._stations)

    def end_batch(self) -> None:
        """The app has done what it can for now."""
        self._listener.end(self._stations)

    def commit(self, *, is_last: bool = False) -> None:
        """Commit what every handler of a topic has finished."""
        for name in {name for station in self._stations for name in station.source.by_topic}:
            own = [station for station in self._stations if name in station.source.by_topic]
            for partition in range(len(self._kafka.ensure(name).logs)):
                offset = min(station.committable(name, partition) for station in own)
                since = None if is_last else self._since.get((name, partition), 0)
                self._kafka.commit_word(self.app.name, name, partition, offset, since)

    def raise_if_failed(self) -> None:
        """Raise what ended a handler's run, if anything did."""
        for station in self._stations:
            station.raise_if_failed()

    def crash(self) -> None:
        """Lose everything that is in flight, as a killed process does; `start` begins again."""
        self._past = self.tally
        for station in self._stations:
            station.kill()
        self._stations = []

    def end(self) -> None:
        """End cleanly."""
        if self._stations:
            self.commit(is_last=all(station.is_done for station in self._stations))
            self.crash()
            self._call_all(self.app.cleanups)
            self._listener.changed("stopped")

    def _call_all(self, hooks: tuple[Callable[[], Any], ...]) -> None:
        for hook in hooks:
            result = hook()
            if inspect.isawaitable(result):
                self._loop.complete(result)
