"""A batch handler on an engine that goes on: how long it waits for more records."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from support.direct_faults import EngineThread
from support.waiting import eventually

if TYPE_CHECKING:
    from laneway import Batch
    from support.direct_faults import DirectFaultScene

pytestmark = [pytest.mark.broker, pytest.mark.slow]

Calls = list[tuple[float, int]]
"""When each call began, and how many records it had."""


def started(scene: DirectFaultScene, calls: Calls, *, size: int, within: str) -> EngineThread:
    """An engine with a batch handler that has all partitions and nothing to do."""

    def store(batch: Batch[bytes]) -> None:
        calls.append((time.monotonic(), len(batch.records)))

    worker = EngineThread(scene, store, lambda app, topic: app.batch_handler(topic, size=size, within=within, lanes=1))
    eventually(lambda: sum(len(member.assignment.topic_partitions) for member in scene.members()) == 3)
    return worker


def test_a_few_records_are_called_together_when_the_time_is_up(fault_scene: DirectFaultScene) -> None:
    """Three records and room for a hundred: one call with all three, about `within` after the first; and so again."""
    calls: Calls = []
    worker = started(fault_scene, calls, size=100, within="1s")
    try:
        for turn in range(3):
            began = time.monotonic()
            fault_scene.produce_rows([(b"k%d" % number, b"v") for number in range(3)])
            produced = time.monotonic()
            eventually(lambda turn=turn: len(calls) > turn, why=worker.told)
            at, count = calls[turn]
            print(f"{count} records {at - began:.2f} s after they were produced")
            assert count == 3
            assert at >= began + 0.9
            assert at < produced + 3
        eventually(fault_scene.is_read, why=worker.told)
    finally:
        worker.end()
    assert len(calls) == 3


def test_a_full_batch_waits_for_nothing(fault_scene: DirectFaultScene) -> None:
    """As many records as a call may have are called at once, however long `within` is."""
    calls: Calls = []
    worker = started(fault_scene, calls, size=3, within="10m")
    try:
        fault_scene.produce_rows([(b"k%d" % number, b"v") for number in range(6)])
        eventually(lambda: len(calls) == 2, why=worker.told)
        eventually(fault_scene.is_read, why=worker.told)
    finally:
        worker.end()
    assert [count for _, count in calls] == [3, 3]
