"""Tally: counts of what a task or process did, small enough for one row."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from laneway.observe._events import (
    BreakerClosed,
    BreakerOpened,
    CopyFailed,
    EventBase,
    InterceptorFailed,
    OffsetsCommitted,
    PartitionsAssigned,
    PartitionsRevoked,
    RecordDeduplicated,
    RecordDeferred,
    RecordDropped,
    RecordHandled,
    RecordParked,
    RecordRetried,
    RecordSkipped,
    StateChanged,
)
from laneway.observe._histogram import Histogram

__all__ = ["BatchHandled", "Event", "Tally"]


class Tally(msgspec.Struct):
    """Counts of one task, one batch or a whole run; tallies can be added."""

    read: int = 0
    """Records read."""
    handled: int = 0
    """Records whose handler succeeded."""
    skipped: int = 0
    """Records whose handler raised `Skip`."""
    parked: int = 0
    """Records parked on the error topic."""
    dropped: int = 0
    """Records whose last attempt failed and whose copy an error interceptor dropped."""
    rescued: int = 0
    """Records whose copy could not be written and that the last step saved."""
    deferred: int = 0
    """Records copied to a retry topic; they count as read again there."""
    reduced: int = 0
    """Copies reduced because they were too large for the error topic."""
    duplicates: int = 0
    """Records whose id was handled before (only with a dedup store)."""
    unclaimed: int = 0
    """Records handled without a claim, because the dedup store was away (only with ``on_outage="continue"``)."""
    superseded: int = 0
    """Records of a unique handler superseded by a newer one of their key."""
    retried: int = 0
    """Failed calls that were or will be repeated."""
    produced: int = 0
    """Messages acknowledged."""
    gaps: int = 0
    """Offsets without a record: compacted, aborted or control records."""
    lost: int = 0
    """Records deleted before they could be read (only with ``on_data_loss: continue``)."""
    invalid_headers: int = 0
    """Records of retry topics with control headers that laneway cannot have written."""
    early_due: int = 0
    """Records handled although their timestamp is in the future, because they waited for their whole delay."""
    already_copied: int = 0
    """Records read again after a crash whose copy was already written."""
    breaker_opened: int = 0
    """How often a breaker opened; failed probes do not count."""
    breaker_seconds: float = 0.0
    """Seconds that breakers were open, up to the last probe, summed over processes."""
    undelivered: int = 0
    """Failed attempts to write a copy or message; each is repeated."""
    size: int = 0
    """Bytes of keys and values read."""
    calls: int = 0
    """Calls of handlers."""
    seconds: float = 0.0
    """Seconds spent in calls."""
    lanes: int = 0
    """Lanes of the task."""
    lanes_busy: float = 0.0
    """Average number of busy lanes between first and last."""
    first: float = 0.0
    """When the first handler call started, in seconds since the epoch; 0 when there was none."""
    last: float = 0.0
    """When the last record was finished."""
    latency: dict[int, int] = msgspec.field(default_factory=dict)
    """Histogram of milliseconds from a record's timestamp to its end."""
    events: list[Event] = msgspec.field(default_factory=list)
    """The first few events of each kind; the counts above are exact."""

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        # A tally without a call, or without a finished record after its first call, has no duration.
        span, others = (max(0.0, one.last - one.first) if one.first else 0.0 for one in (self, other))
        busy = self.lanes_busy * span + other.lanes_busy * others
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first = min(filter(None, (self.first, other.first)), default=0.0)
        self.last = max(self.last, other.last)
        self.lanes = max(self.lanes, other.lanes)
        self.lanes_busy = busy / (self.last - self.first) if self.last > self.first else 0.0
        histogram = Histogram(self.latency)
        histogram.merge(Histogram(other.latency))
        if other.events:
            kept = Counter(map(type, self.events))
            for event in other.events:
                kept[type(event)] += 1
                if kept[type(event)] <= event.most:
                    self.events.append(event)

    def since(self, earlier: Tally) -> Tally:
        """The difference to *earlier*, an older copy of this tally."""
        latency = Counter(self.latency)
        latency.subtract(earlier.latency)
        return Tally(
            **{name: getattr(self, name) - getattr(earlier, name) for name in _SUMMED},
            lanes=self.lanes,
            lanes_busy=self.lanes_busy,
            first=earlier.last or self.first,
            last=self.last,
            latency={value: count for value, count in latency.items() if count},
            events=[event for event in self.events if not any(event is known for known in earlier.events)],
        )

    @property
    def finished(self) -> int:
        """Finished records."""
        ends = (self.handled, self.skipped, self.parked, self.dropped, self.rescued, self.deferred, self.superseded)
        return sum(ends) + self.duplicates

    def percentile(self, percent: float) -> int | None:
        """Latency in milliseconds that *percent* of the records did not exceed."""
        return Histogram(self.latency).percentile(percent)

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Tally:
        return msgspec.json.decode(data, type=cls)

    def as_dict(self) -> dict[str, Any]:
        """As plain values, for JSON output."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("latency", "events")}


class BatchHandled(EventBase, frozen=True, tag=True):
    """A batch of one topic was handled: all its records are finished. Emitted in the process that started the app."""

    topic: str
    batch: int
    """Its number."""
    tally: Tally
    """Exact counts."""

    def __str__(self) -> str:
        return f"batch {self.batch} of {self.topic}: {self.tally.read:,} read"


Event = (
    RecordHandled
    | RecordSkipped
    | RecordRetried
    | RecordDeferred
    | RecordParked
    | RecordDropped
    | CopyFailed
    | InterceptorFailed
    | BatchHandled
    | BreakerOpened
    | BreakerClosed
    | StateChanged
    | PartitionsAssigned
    | PartitionsRevoked
    | OffsetsCommitted
    | RecordDeduplicated
)
"""All events that can be subscribed to."""


_SUMMED = (
    "rescued",
    "deferred",
    "dropped",
    "invalid_headers",
    "early_due",
    "already_copied",
    "superseded",
    "duplicates",
    "unclaimed",
    "reduced",
    "read",
    "handled",
    "skipped",
    "parked",
    "retried",
    "produced",
    "gaps",
    "lost",
    "breaker_opened",
    "breaker_seconds",
    "undelivered",
    "size",
    "calls",
    "seconds",
)
