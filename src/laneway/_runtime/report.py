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

_MOST_EVENTS = 10_000  # events kept until `flush`; they are only examples


@dataclass(slots=True)
class RunReport:
    """What a run did."""

    app: str
    tally: Tally = field(default_factory=Tally)
    batches: int = 0
    was_forced: bool = False
    """Stopped before the running batch was finished: by a second signal, or because ``drain`` ran out."""
    errors: ErrorRuns = field(default_factory=ErrorRuns)
    """The error runs that started on their schedule during this run."""


class Reporter:
    """Counts the work, and passes events to the app's subscribers and to the engine's listener.

    Any thread may call `keep` and `batch`. Subscribers are user code, so events of the handlers' threads are kept until
    the engine's thread calls `flush`.

    Args:
        app: has the subscribers.
        report: the report of the run.
        total: the tally to add to: the report's own, or that of the error runs.
        listener: receives the same events.
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

    def keep(self, event: Event) -> None:
        """Keep an event until `flush`; only a few record events of each kind."""
        if isinstance(event, RecordEvent):
            self._kept[type(event)] += 1
            if self._kept[type(event)] > event.most:
                return
        self._events.append(event)

    def flush(self, *, is_new: bool = False) -> None:
        """Pass on the kept events.

        Args:
            is_new: whether a few events of each kind are kept again.
        """
        if self._events:
            self.events([self._events.popleft() for _ in range(len(self._events))])
        if is_new:
            self._kept.clear()

    def events(self, events: Iterable[Event]) -> None:
        """Pass on events now."""
        events = list(events)
        self._app.tell(*events)
        if self._listener is not None:
            for event in events:
                self._listener.event(event)

    def count(self, tally: Tally) -> None:
        """Add to the tally without a report."""
        with self.lock:
            self._total.add(tally)

    def batch(self, topic: str, tally: Tally, events: Iterable[Event] = (), number: int | None = None) -> None:
        """Add the work on a topic to the tally, and report it.

        Args:
            topic: the source topic.
            tally: the counts.
            events: the events to pass on.
            number: the batch number; counted here by default.
        """
        with self.lock:
            self._report.batches += 1
            self._number += 1
            self._total.add(tally)
            number = self._number if number is None else number
        self.events([*events, BatchHandled(topic, number, tally)])
