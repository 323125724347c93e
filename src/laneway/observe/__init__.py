"""Observability: events, tallies, histograms and loggers."""

from laneway.observe._events import (
    BreakerClosed,
    BreakerOpened,
    CopyFailed,
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
from laneway.observe._histogram import Histogram
from laneway.observe._listener import Listener, Notes
from laneway.observe._logging import RateLimit, logger
from laneway.observe._tally import BatchHandled, Event, Tally

__all__ = [
    "BatchHandled",
    "BreakerClosed",
    "BreakerOpened",
    "CopyFailed",
    "Event",
    "Histogram",
    "InterceptorFailed",
    "Listener",
    "Notes",
    "OffsetsCommitted",
    "PartitionsAssigned",
    "PartitionsRevoked",
    "RateLimit",
    "RecordDeduplicated",
    "RecordDeferred",
    "RecordDropped",
    "RecordEvent",
    "RecordHandled",
    "RecordParked",
    "RecordRetried",
    "RecordSkipped",
    "StateChanged",
    "Tally",
    "logger",
]
