"""RunReport: what a run did; Reporter: gives it to subscribers while it runs."""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laneway._declare.error_consumer import ErrorRuns
from laneway.events import BatchHandled, RecordEvent
from laneway.observe import Tally

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laneway._declare.app import App
    from laneway.observe import Event, Listener

__all__ = ["Reporter", "RunReport"]

_MOST_EVENTS = 10_000  # events that wait to be given; they are examples


@dataclass(slots=True)
class RunReport:
    """What a run did."""

    app: str
    tally: Tally = field(default_factory=Tally)
    batches: int = 0
    was_forced: bool = False
    """Stopped before the running batch was over, by a second signal or because `drain` ran out."""
    errors: ErrorRuns = field(default_factory=ErrorRuns)
    """What the runs over the error topics did that began meanwhile, on their schedule."""


class Reporter:
    """Counts what was done, and gives events to the app's subscribers and to the engine's listener.

    Any thread may call `keep` and `batch`. Subscribers are user code, so what comes from the threads of handlers is
    kept until the engine's own thread calls `flush`.

    Args:
        app: whose subscribers.
        report: of the run.
        total: where it is counted: in the report itself, or as the work of runs over error topics.
        listener: hears of the same events.
    """

    def __init__(self, app: App, report: RunReport, total: Tally, listener: Listener | None) -> None:
        self._app = app
        self._report = report
        self._total = total
        self._listener = listener
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self._kept: Counter[type] = Counter()
        self._number = 0
        self.lock = threading.Lock()
        """Held while something is counted."""

    def keep(self, event: Event) -> None:
        """Keep an event until `flush`; of each kind of record events a few at a time."""
        if isinstance(event, RecordEvent):
            self._kept[type(event)] += 1
            if self._kept[type(event)] > event.most:
                return
        self._events.append(event)

    def flush(self, *, is_new: bool = False) -> None:
        """Give the events that were kept.

        Args:
            is_new: from now on a few of each kind again.
        """
        if self._events:
            self.events([self._events.popleft() for _ in range(len(self._events))])
        if is_new:
            self._kept.clear()

    def events(self, events: Iterable[Event]) -> None:
        """Give these to subscribers and listener now."""
        events = list(events)
        self._app.tell(*events)
        if self._listener is not None:
            for event in events:
                self._listener.event(event)

    def count(self, tally: Tally) -> None:
        """Count something that is not worth saying."""
        with self.lock:
            self._total.add(tally)

    def batch(self, topic: str, tally: Tally, events: Iterable[Event] = (), number: int | None = None) -> None:
        """Count what was done of a topic, and say so.

        Args:
            topic: the source.
            tally: what was done.
            events: what happened in it.
            number: of the batch; counted here by default.
        """
        with self.lock:
            self._report.batches += 1
            self._number += 1
            self._total.add(tally)
            number = self._number if number is None else number
        self.events([*events, BatchHandled(topic, number, tally)])
