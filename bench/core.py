"""CPU time of scheduler and ledger alone, per record: ``python bench/core.py``."""

from __future__ import annotations

import time
from dataclasses import dataclass

from laneway._core.ledger import Ledger
from laneway._core.scheduler import Scheduler

RECORDS, KEYS, PARTITIONS, FETCH = 400_000, 10_000, 8, 2_000


@dataclass(slots=True)
class Item:
    partition: int
    offset: int
    key: bytes
    size: int = 200


def items() -> list[Item]:
    return [Item(n % PARTITIONS, n // PARTITIONS, b"key-%d" % (n % KEYS)) for n in range(RECORDS)]


def measure(most: int, lanes: int) -> float:
    """Microseconds of CPU a record: see, push, take, settle, finish."""
    records, scheduler, ledger = items(), Scheduler(lanes), Ledger()
    began = time.process_time()
    for start in range(0, RECORDS, FETCH):
        part = records[start : start + FETCH]
        by_partition: dict[int, list[int]] = {}
        for item in part:
            by_partition.setdefault(item.partition, []).append(item.offset)
        for partition, offsets in by_partition.items():
            ledger.see(partition, offsets)
        scheduler.push(part, [item.key for item in part])
        while scheduler.ready:
            turn = scheduler.take(most)
            for queue in turn:
                work = queue.work()
                scheduler.settle(queue, len(work))
                ledger.finish_all([(item.partition, item.offset) for item in work])
            scheduler.end_turn(turn)
    assert scheduler.is_idle
    assert not ledger.outstanding
    return (time.process_time() - began) / RECORDS * 1e6


if __name__ == "__main__":
    for most in (1, 16, 512):
        print(f"turns of up to {most:>3}: {min(measure(most, 160) for _ in range(3)):.2f} µs a record")
