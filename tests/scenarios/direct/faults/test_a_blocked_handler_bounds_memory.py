"""A handler that does not return, before a large backlog."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psutil
import pytest

from support.waiting import eventually

if TYPE_CHECKING:
    from support.direct_faults import DirectFaultScene
    from support.processes import LanewayRun

pytestmark = [pytest.mark.broker, pytest.mark.slow]

MIB = 1 << 20
BOUND = (64 + 64 + 150) * MIB
"""The buffer, as much again that the client reads ahead, and the interpreter with its modules."""
INTERVAL = 10.0  # seconds without a poll after which the group would give this member up

CONFIG = f"""
default:
  clusters:
    main:
      brokers: [127.0.0.1:1]
      consumer:
        session_timeout: 6s
        heartbeat_interval: 1s
        max_poll_interval: {INTERVAL:g}s
"""


class _Watch:
    """Looks at the memory of a run."""

    def __init__(self, run: LanewayRun) -> None:
        self._process = psutil.Process(run.process.pid)
        self.samples: list[tuple[float, int]] = []

    @property
    def largest(self) -> int:
        return max(size for _, size in self.samples)

    def look(self) -> None:
        self.samples.append((time.monotonic(), self._process.memory_info().rss))

    def is_flat(self, seconds: float) -> bool:
        """Whether it was watched for so long and has not grown lately."""
        self.look()
        now, began = self.samples[-1][0], self.samples[0][0]
        recent = [size for at, size in self.samples if at > now - seconds / 2]
        return now - began > seconds and max(recent) - min(recent) < 4 * MIB

    def told(self) -> str:
        return f"{[size // MIB for _, size in self.samples]} MiB"


@pytest.mark.parametrize(
    ("count", "size", "kind", "lanes"),
    [(300_000, 1_000, "async", 2_000), (300_000, 1_000, "sync", 20), (200, 900 * 1024, "async", 2_000)],
    ids=["small-async", "small-sync", "large"],
)
def test_memory_stays_within_the_bound(scene: DirectFaultScene, count: int, size: int, kind: str, lanes: int) -> None:
    """Memory has a bound while calls are blocked and when they go on, and the group keeps its member all the time."""
    value = b"v" * size
    scene.produce_rows((f"key-{number % 5_000:06d}".encode(), value) for number in range(count))
    run = scene.run(seconds=0, kind=kind, lanes=lanes, gate=scene.gate, config=CONFIG)
    watch = _Watch(run)
    scene.until(scene.members)
    (member,) = scene.members()
    watch.samples.clear()
    eventually(lambda: watch.is_flat(1.6 * INTERVAL), timeout=90, every=0.25, why=watch.told)
    print(f"{count:,} records of {size:,} bytes: {watch.largest / MIB:.0f} MiB while blocked")
    assert watch.largest < BOUND
    assert scene.calls() == []
    (still,) = scene.members()
    assert still.member_id == member.member_id
    assert len(still.assignment.topic_partitions) == 3
    scene.gate.touch()
    watch.samples.clear()

    def is_done() -> bool:
        watch.look()
        return scene.lag() == 0

    scene.until(is_done, timeout=120)
    print(f"{watch.largest / MIB:.0f} MiB at work, all done after {watch.samples[-1][0] - watch.samples[0][0]:.1f} s")
    assert watch.largest < BOUND
    assert scene.verdict().is_clean
    (still,) = scene.members()
    assert still.member_id == member.member_id
    scene.stop(run)
