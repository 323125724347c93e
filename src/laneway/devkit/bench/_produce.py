"""Fills a topic, at full speed or at a steady rate, in a separate process so that it is not measured."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["VALUE_SIZE", "fill", "hottest"]

VALUE_SIZE = 200
_EXPONENT, _SEED = 1.1, 5


def _skewed(records: int, keys: int = 10_000) -> Iterator[int]:
    """The key number of each record: key 0 is the most frequent, the others follow Zipf's law."""
    rng = random.Random(_SEED)  # noqa: S311 - a workload, not a secret
    weights = list(accumulate((number + 1) ** -_EXPONENT for number in range(keys)))
    yield from rng.choices(range(keys), cum_weights=weights, k=records)


def hottest(records: int) -> int:
    """How many records the most frequent key has."""
    return Counter(_skewed(records)).most_common(1)[0][1]


def fill(
    brokers: str, topic: str, records: int, *, keys: int, rate: int | None = None, is_skewed: bool = False
) -> subprocess.Popen[bytes]:
    """Start a process that produces *records* records; it ends when all of them are acknowledged."""
    arguments = [brokers, topic, str(records), str(keys), str(rate or 0), str(int(is_skewed))]
    return subprocess.Popen([sys.executable, "-c", f"from {__name__} import produce; produce()", *arguments])


def produce() -> None:
    """Produce as the arguments of this process say."""
    from laneway._kafka import produce_many

    brokers, topic, records, keys, rate, is_skewed = sys.argv[1:]
    value = (b'{"payload": "' + b"x" * VALUE_SIZE)[: VALUE_SIZE - 2] + b'"}'
    numbers = _skewed(int(records), int(keys)) if int(is_skewed) else (n % int(keys) for n in range(int(records)))
    pairs = ((b"key-%d" % number, value) for number in numbers)
    produce_many({"bootstrap.servers": brokers, "acks": "all"}, topic, pairs, rate=int(rate) or None)
