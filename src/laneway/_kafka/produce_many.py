"""Produces test records in bulk."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from laneway._kafka.client import quiet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["produce_many"]

_STEPS = 500  # slices per second in which a rate is kept: bursts would queue up and distort the measured latency


def produce_many(
    options: Mapping[str, Any],
    topic: str,
    records: Iterable[tuple[bytes | None, bytes | None]],
    *,
    rate: int | None = None,
) -> int:
    """Produce (key, value) pairs and wait until all are acknowledged; returns how many."""
    bulk = {"linger.ms": 5 if rate else 20, "partitioner": "murmur2_random", "queue.buffering.max.messages": 1_000_000}
    producer = Producer({**quiet(options), **bulk})
    began, count = time.monotonic(), 0
    for key, value in records:
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.05)
        count += 1
        if rate and count % max(1, rate // _STEPS) == 0:
            producer.poll(0)
            time.sleep(max(0.0, began + count / rate - time.monotonic()))
        elif count % 5_000 == 0:
            producer.poll(0)
    left = producer.flush(60)
    if left:
        raise TimeoutError(f"{left} of {count} records were not acknowledged in 60 s")
    return count
