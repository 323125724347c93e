"""Everything that an app tells of itself: one frozen list of events, for logs, views, alarms and metrics.

A function subscribes with ``@app.on(RecordParked)`` and is called with each such event in the process that runs the
app: on Spark the driver, after each batch; on the direct engine soon after it happened. Events are examples, a few of
each kind per task and batch on Spark; what is to be counted is in the tally of `BatchHandled`, which is exact.

Example:
    >>> from laneway import App
    >>> from laneway.events import RecordParked
    >>> app = App("billing")
    >>> @app.on(RecordParked)
    ... def alarm(event: RecordParked) -> None:
    ...     print(f"{event.handler} gave up on {event.topic}@{event.offset}: {event.error}")
"""

from __future__ import annotations

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
    "RecordDeferred",
    "RecordDropped",
    "RecordEvent",
    "RecordHandled",
    "RecordParked",
    "RecordRetried",
    "RecordSkipped",
    "StateChanged",
]

EVENTS: tuple[type[Event], ...] = (
    RecordHandled,
    RecordSkipped,
    RecordRetried,
    RecordDeferred,
    RecordParked,
    RecordDropped,
    CopyFailed,
    InterceptorFailed,
    BatchHandled,
    BreakerOpened,
    BreakerClosed,
    StateChanged,
    PartitionsAssigned,
    PartitionsRevoked,
    OffsetsCommitted,
)
"""All of them. The list and the fields are a contract: they grow, but what is there stays."""
