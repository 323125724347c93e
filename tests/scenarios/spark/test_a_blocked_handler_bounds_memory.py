"""A handler that does not return, before a large backlog."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from support.waiting import eventually

if TYPE_CHECKING:
    from support.processes import LanewayRun
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

MIB = 1 << 20
COUNT = 300_000
BOUND = (64 + 64 + 150) * MIB
"""Of one worker: the buffer, as much again that the client reads ahead, and the interpreter with its modules."""


def _largest(run: LanewayRun) -> int:
    """What the largest worker holds for itself alone; the daemon's pages are shared by all of them."""
    return max((worker.memory_info().rss for worker in run.workers()), default=0)


def test_memory_stays_within_the_bound(scene: Scene) -> None:
    """While a handler is blocked before 300,000 records of 1 KiB no worker grows past its bound or keeps growing."""
    value = b"v" * 1_000
    scene.produce_rows((f"key-{number % 5_000:06d}".encode(), value) for number in range(COUNT))
    gate = scene.folder / "gate"
    run = scene.run(seconds=0, kind="async", lanes=2_000, gate=gate)
    scene.until(run.workers)
    samples: list[tuple[float, int]] = []

    def is_flat() -> bool:
        samples.append((time.monotonic(), _largest(run)))
        recent = [size for at, size in samples if at > samples[-1][0] - 10]
        return samples[-1][0] - samples[0][0] > 15 and max(recent) - min(recent) < 4 * MIB

    eventually(is_flat, timeout=90, every=0.25, why=lambda: f"{[size // MIB for _, size in samples]} MiB")
    print(f"largest worker {max(size for _, size in samples) / MIB:.0f} MiB")
    assert max(size for _, size in samples) < BOUND
    assert scene.calls() == []
    gate.touch()
    largest = 0

    def is_done() -> bool:
        nonlocal largest
        largest = max(largest, _largest(run))
        return scene.lag() == 0

    scene.until(is_done, timeout=120)
    print(f"largest worker at work {largest / MIB:.0f} MiB")
    assert largest < BOUND
    assert scene.verdict().is_clean
