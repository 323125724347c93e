"""Tally: what a task or process did, small enough to travel in one row."""

from __future__ import annotations

from typing import Any

import msgspec

from laneway.instrumentation._histogram import Histogram

__all__ = ["ErrorSample", "Tally"]

_SAMPLES = 5  # of each tally; counts stay exact, texts are only examples


class ErrorSample(msgspec.Struct, frozen=True):
    """One failure, as an example."""

    handler: str
    topic: str
    partition: int
    offset: int
    error: str
    fate: str


class Tally(msgspec.Struct):
    """Counts of one task, of one batch, or of a whole run: tallies add up."""

    read: int = 0
    """Records read."""
    handled: int = 0
    """Records whose handler succeeded."""
    skipped: int = 0
    """Records whose handler raised `Skip`."""
    parked: int = 0
    """Records whose copy is on the error topic."""
    reduced: int = 0
    """Copies that were too large for the error topic and left something out."""
    superseded: int = 0
    """Records of a unique handler that a newer one of their key stood in for."""
    retried: int = 0
    """Calls that failed and were or will be repeated."""
    produced: int = 0
    """Messages acknowledged."""
    gaps: int = 0
    """Offsets without a record: compacted, aborted or control records."""
    lost: int = 0
    """Records gone before they could be read (only with ``on_data_loss: continue``)."""
    undelivered: int = 0
    """Tries to park a copy or produce a message that failed; each is repeated."""
    size: int = 0
    """Bytes of keys and values read."""
    calls: int = 0
    """Calls of handlers."""
    seconds: float = 0.0
    """Time spent in them."""
    lanes: int = 0
    """Lanes of the task."""
    lanes_busy: float = 0.0
    """Lanes in use, averaged over the time from first to last."""
    first: float = 0.0
    """When the first handler call began, seconds since the epoch; 0 when there was none."""
    last: float = 0.0
    """When the last record was finished."""
    latency: dict[int, int] = msgspec.field(default_factory=dict)
    """Histogram of milliseconds from a record's timestamp to its end."""
    samples: list[ErrorSample] = msgspec.field(default_factory=list)

    def sample(self, sample: ErrorSample) -> None:
        """Keep a failure as an example, while there are few."""
        if len(self.samples) < _SAMPLES:
            self.samples.append(sample)

    def note(self, handler: str, place: tuple[str, int, int], error: str, fate: str) -> None:
        """Keep a failure of the record at (topic, partition, offset) as an example."""
        self.sample(ErrorSample(handler, *place, error[:300], fate))

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        span, others = self.last - self.first, other.last - other.first
        busy = self.lanes_busy * span + other.lanes_busy * others
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first = min(filter(None, (self.first, other.first)), default=0.0)
        self.last = max(self.last, other.last)
        self.lanes = max(self.lanes, other.lanes)
        self.lanes_busy = busy / (self.last - self.first) if self.last > self.first else 0.0
        histogram = Histogram(self.latency)
        histogram.merge(Histogram(other.latency))
        for sample in other.samples:
            self.sample(sample)

    @property
    def finished(self) -> int:
        """Records that have reached their end."""
        return self.handled + self.skipped + self.parked + self.superseded

    def percentile(self, percent: float) -> int | None:
        """Latency in milliseconds that *percent* of the records did not exceed."""
        return Histogram(self.latency).percentile(percent)

    def encode(self) -> bytes:
        """As bytes."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Tally:
        """From bytes."""
        return msgspec.json.decode(data, type=cls)

    def as_dict(self) -> dict[str, Any]:
        """As plain values, for JSON output."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("latency", "samples")}


_SUMMED = (
    "superseded",
    "reduced",
    "read",
    "handled",
    "skipped",
    "parked",
    "retried",
    "produced",
    "gaps",
    "lost",
    "undelivered",
    "size",
    "calls",
    "seconds",
)
