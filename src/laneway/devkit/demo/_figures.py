"""The results of the demo, computed from the recorded calls and from the topics."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from laneway.devkit.demo._app import CALL
from laneway.devkit.history import check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laneway.devkit.demo._orders import Mix
    from laneway.devkit.history import Event

__all__ = ["Figures", "Found", "judge"]


@dataclass(frozen=True, slots=True)
class Found:
    """The state after the run."""

    mix: Mix
    """The produced records."""
    ends: Mapping[int, int]
    """How many records each partition of the orders topic has."""
    parked: Sequence[tuple[int, int]]
    """Where each copy on the error topic came from."""
    receipts: int
    """Messages on the receipts topic."""
    succeeded: Sequence[Event]
    failed: Sequence[Event]


@dataclass(frozen=True, slots=True)
class Figures:
    """The result. `problems` is empty when everything is correct."""

    records: int
    handled: int
    parked: int
    receipts: int
    retries: int
    inversions: int
    lost: int
    duplicates: int
    overlaps: int
    most_at_once: int
    partitions: int
    lanes: int
    call_ms: float
    seconds: float
    """From the first to the last call."""
    records_per_second: float
    ideal_per_second: float
    """With all lanes always busy and calls of exactly their wait."""
    one_at_a_time_per_second: float
    """With one record at a time per partition and calls of the measured duration."""
    times_faster: float
    problems: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, repeated, out of order or miscounted."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        fields = {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}
        return {"clean": self.is_clean, **fields, "problems": list(self.problems)}


def judge(found: Found, lanes: int) -> Figures:
    """Check the state after the run."""
    verdict = check(found.succeeded, found.ends, failed=found.failed, parked=found.parked)
    handled = len({(event.partition, event.offset) for event in found.succeeded})
    calls = [*found.succeeded, *found.failed]
    retries = sum(event.attempt > 1 for event in calls)
    mean = fmean(event.end - event.start for event in calls) if calls else CALL
    seconds = max(event.end for event in calls) - min(event.start for event in calls) if calls else 0.0
    rate = (handled + len(found.parked)) / seconds if seconds else 0.0
    single = len(found.ends) / mean
    records, mix = sum(found.ends.values()), found.mix
    comparisons = (
        ("records lost", verdict.lost, 0),
        ("calls or copies too many", verdict.duplicates, 0),
        ("calls out of order", verdict.inversions, 0),
        ("calls of one key at once", verdict.overlaps, 0),
        ("records in the topic", records, mix.total),
        ("records handled or parked", handled + len(found.parked), records),
        ("records parked", len(found.parked), mix.poison + mix.negative),
        ("receipts", found.receipts, handled),
        ("retries", retries, mix.unstable),
    )
    return Figures(
        records=records,
        handled=handled,
        parked=len(found.parked),
        receipts=found.receipts,
        retries=retries,
        inversions=verdict.inversions,
        lost=verdict.lost,
        duplicates=verdict.duplicates,
        overlaps=verdict.overlaps,
        most_at_once=verdict.most_at_once,
        partitions=len(found.ends),
        lanes=lanes,
        call_ms=mean * 1000,
        seconds=seconds,
        records_per_second=rate,
        ideal_per_second=len(found.ends) * lanes / CALL,
        one_at_a_time_per_second=single,
        times_faster=rate / single,
        problems=tuple(f"{name}: {is_} instead of {due}" for name, is_, due in comparisons if is_ != due),
    )
