"""Which key each record of a skewed workload has; the producer and whoever computes the bound draw the same."""

from __future__ import annotations

import random
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["hottest", "skewed"]

_EXPONENT, _SEED = 1.1, 5


def skewed(records: int, keys: int = 10_000) -> Iterator[int]:
    """The number of the key of each record: key 0 is the most frequent, and so on by Zipf's law."""
    rng = random.Random(_SEED)  # noqa: S311 - a workload, not a secret
    weights = list(accumulate((number + 1) ** -_EXPONENT for number in range(keys)))
    yield from rng.choices(range(keys), cum_weights=weights, k=records)


def hottest(records: int) -> int:
    """How many records the most frequent key has."""
    return Counter(skewed(records)).most_common(1)[0][1]
