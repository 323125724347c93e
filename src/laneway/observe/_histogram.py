"""Histogram: percentiles of milliseconds in a few small integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Histogram"]

_EXACT = 64  # values below this have a bucket each; above, 32 buckets for each doubling (3 % wide)


class Histogram:
    """Counts non-negative integers in buckets whose width grows with the value; the error is at most 3 %.

    Example:
        >>> histogram = Histogram()
        >>> histogram.add_all([1, 2, 3, 1000])
        >>> histogram.percentile(50)
        2
    """

    __slots__ = ("counts",)

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        self.counts = counts if counts is not None else {}

    def add_all(self, values: Iterable[int]) -> None:
        """Count values; negative ones, from clocks that differ, count as 0."""
        counts = self.counts
        for value in values:
            if value < _EXACT:
                bucket = value if value > 0 else 0  # noqa: FURB136 - max() takes as long as all the rest
            else:
                shift = value.bit_length() - 6
                bucket = (shift << 5) + (value >> shift)
            counts[bucket] = counts.get(bucket, 0) + 1

    def add(self, value: int) -> None:
        """Count one value."""
        if value >= _EXACT:
            shift = value.bit_length() - 6
            value = (shift << 5) + (value >> shift)
        elif value < 0:
            value = 0
        self.counts[value] = self.counts.get(value, 0) + 1

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        for bucket, number in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + number

    @property
    def total(self) -> int:
        """How many values were counted."""
        return sum(self.counts.values())

    def percentile(self, percent: float) -> int | None:
        """The value that *percent* of the values do not exceed, or None when there are none."""
        need = self.total * percent / 100
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= need:
                return self._value(bucket)
        return None

    @staticmethod
    def _value(bucket: int) -> int:
        if bucket < _EXACT:
            return bucket
        shift = (bucket >> 5) - 1
        return (bucket - (shift << 5)) << shift
