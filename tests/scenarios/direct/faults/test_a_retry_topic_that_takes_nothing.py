"""A retry topic that cannot be written to, in a mode in which later records overtake a failed one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from laneway import Retry
from support.direct_faults import DirectFaultScene, EngineThread
from support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from laneway import Record
    from laneway.devkit.broker import Running

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_a_late_copy_holds_its_key_and_no_other(three_nodes: Running, tmp_path: Path) -> None:
    """Its key goes on at first; then it waits, and when a third replica is back each record ends once."""
    calls: list[tuple[bytes, bool]] = []

    def call(record: Record[bytes]) -> None:
        calls.append((record.value, record.origin is not None))
        if record.value == b"bad" and record.origin is None:
            raise ConnectionError("planted")

    scene = DirectFaultScene(three_nodes.bootstrap, tmp_path, "takes nothing")
    scene.create(scene.topic)
    scene.create(scene.retry(), min_insync_replicas=3)
    three_nodes.nodes[2].stop()
    retry = Retry.steps("1s", mode="unordered")
    worker = EngineThread(scene, call, lambda app, topic: app.handler(topic, lanes=4, retry=retry))
    try:
        scene.produce_rows([(b"a", b"bad"), (b"a", b"beside")])
        eventually(lambda: len(calls) == 2, why=worker.told)
        assert calls == [(b"bad", False), (b"beside", False)]
        time.sleep(1)
        scene.produce_rows([(b"a", b"behind"), (b"b", b"elsewhere")])
        eventually(lambda: len(calls) == 3, why=worker.told)
        time.sleep(1.5)
        assert calls[2:] == [(b"elsewhere", False)]
        assert not scene.is_read()

        three_nodes.nodes[2].start()
        eventually(lambda: len(calls) == 5, why=worker.told)
        assert sorted(calls[3:]) == [(b"bad", True), (b"behind", False)]
        eventually(scene.is_finished, why=worker.told)
    finally:
        worker.end()
        scene.close()
    tally = worker.ended().tally
    assert (tally.deferred, tally.handled, tally.parked) == (1, 4, 0)
