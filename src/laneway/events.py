"""All events of an app, for logs, views, alarms and metrics.

A function subscribes with ``@app.on(RecordParked)`` and is called with each event in the process that runs the app: on
Spark in the driver after each batch, on the direct engine soon after it happened. On Spark only a few events of each
kind per task and batch are emitted; for exact counts use the tally of `BatchHandled`.

Example:
    >>> from laneway import App
    >>> from laneway.events import RecordParked
    >>> app = App("billing")
    >>> @app.on(RecordParked)
    ... def alarm(event: RecordParked) -> None:
    ...     print(f"{event.handler} gave up on {event.topic}@{event.offset}: {event.error}")
"""

from __future__ import annotations

from typing import get_args

from laneway.observe import (
    BatchHandled,
    BreakerClosed,
    BreakerOpened,
    CopyFailed,
    Event,
    InterceptorFailed,
    OffsetsCommitted,
    PartitionsAssigned,
    PartitionsRevoked,
    RecordDeduplicated,
    RecordDeferred,
    RecordDropped,
    RecordEvent,
    RecordHandled,
    RecordParked,
    RecordRetried,
    RecordSkipped,
    StateChanged,
)

__all__ = [
    "EVENTS",
    "BatchHandled",
    "BreakerClosed",
    "BreakerOpened",
    "CopyFailed",
    "Event",
    "InterceptorFailed",
    "OffsetsCommitted",
    "PartitionsAssigned",
    "PartitionsRevoked",
    "RecordDeduplicated",
    "RecordDeferred",
    "RecordDropped",
    "RecordEvent",
    "RecordHandled",
    "RecordParked",
    "RecordRetried",
    "RecordSkipped",
    "StateChanged",
]

EVENTS: tuple[type[Event], ...] = get_args(Event)
"""All events. The list and the fields are stable: they grow, but nothing is removed."""
