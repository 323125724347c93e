"""Listener: calls the subscribers of an app that runs on a fake Kafka."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from laneway.events import BatchHandled, StateChanged
from laneway.observe import Tally

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laneway._declare.app import App
    from laneway.testing._station import Station

__all__ = ["Listener"]


class Listener:
    """Does for one app what the driver does on Spark, but at once: each `drain`, `advance` or `finish` is a batch.

    Args:
        app: whose subscribers to tell.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._told: Counter[tuple[Any, type]] = Counter()
        self._batches: Counter[str] = Counter()
        self._before: dict[str, Tally] = {}

    def event(self, event: Any) -> None:
        """Something happened; of each kind only as many of a batch are passed on as Spark's tasks would keep."""
        kind = (event.handler, type(event))
        self._told[kind] += 1
        if self._told[kind] <= event.most:
            self._app.tell(event)

    def note(self, words: str) -> None:
        """Notes are for engines that have a state."""

    def changed(self, state: str) -> None:
        """The app has begun or ended."""
        self._app.tell(StateChanged(state))

    def begin(self, stations: Iterable[Station]) -> None:
        """A batch begins."""
        self._told.clear()
        self._before = self._tallies(stations)

    def end(self, stations: Iterable[Station]) -> None:
        """A batch is over."""
        for topic, tally in self._tallies(stations).items():
            new = tally.since(self._before.get(topic, Tally()))
            if new.read or new.finished or new.retried:
                self._app.tell(BatchHandled(topic, self._batches[topic], new))
                self._batches[topic] += 1

    def _tallies(self, stations: Iterable[Station]) -> dict[str, Tally]:
        tallies: dict[str, Tally] = {}
        if self._app.wants(BatchHandled):
            for station in stations:
                tallies.setdefault(station.spec.topic.name, Tally()).add(station.tally)
        return tallies
