"""Member: an app that runs on a fake Kafka."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from laneway.instrumentation import Tally
from laneway.testing._ends import FakeSource
from laneway.testing._station import Station

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from laneway._app import App
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
        self._past = Tally()
        self._stations: list[Station] = []
        for route in app.routes:
            source = kafka.ensure(route.topic.name)
            kafka.ensure(route.error_topic_of(app.name), len(source.logs))

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
            if topic is None or station.route.topic.name == topic:
                self._loop.call_soon(station.poke)

    def start(self) -> None:
        """Run the setup hooks and begin at the committed offsets, unless that is done."""
        if self._stations:
            return
        self._call_all(self.app.setups)
        for route in self.app.routes:
            topic = self._kafka.ensure(route.topic.name)
            committed = self._kafka.committed(self.app, route.topic)
            self._stations.append(
                Station(
                    route,
                    self.app.name,
                    topic,
                    FakeSource(topic, committed, skip_lost=self._skip_lost, rng=self._rng),
                    write=self._kafka.write,
                    loop=self._loop,
                    rng=self._rng,
                )
            )

    def commit(self) -> None:
        """Commit what every handler of a topic has finished."""
        for name in {station.route.topic.name for station in self._stations}:
            own = [station for station in self._stations if station.route.topic.name == name]
            for partition in range(len(self._kafka.ensure(name).logs)):
                offset = min(station.committable(partition) for station in own)
                self._kafka.commit(self.app.name, name, partition, offset)

    def raise_if_failed(self) -> None:
        """Raise what ended a handler's run, if anything did."""
        for station in self._stations:
            station.raise_if_failed()

    def crash(self) -> None:
        """Lose everything that is in flight, as a killed process does; `start` begins anew."""
        self._past = self.tally
        for station in self._stations:
            station.kill()
        self._stations = []

    def end(self) -> None:
        """End in good order."""
        if self._stations:
            self.commit()
            self.crash()
            self._call_all(self.app.cleanups)

    def _call_all(self, hooks: tuple[Callable[[], Any], ...]) -> None:
        for hook in hooks:
            result = hook()
            if inspect.isawaitable(result):
                self._loop.complete(result)
