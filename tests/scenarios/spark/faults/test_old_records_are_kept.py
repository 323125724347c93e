"""Records older than any retention fail."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from laneway.devkit import broker
from support.fault_scene import FaultScene
from support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_retention_does_not_delete_what_was_parked(tmp_path: Path) -> None:
    """Copies keep the old timestamps of their records and are there when the broker has deleted its old records."""
    # A broker that looks for old records every moment; by default it waits for minutes.
    configs = {"log.retention.check.interval.ms": 500, "log.initial.task.delay.ms": 500}
    with broker.ephemeral(configs=configs) as cluster:
        scene = FaultScene(cluster.bootstrap, tmp_path, "old records")
        try:
            scene.create(scene.topic, retention_ms=-1)
            control = f"{scene.topic}.control"
            scene.create(control)  # with the usual retention of a week
            old = int(time.time() * 1000) - 30 * 86_400_000
            for number in range(12):
                value = b"-1" if number % 2 else b"9"
                for topic in (scene.topic, control):
                    scene.producer.produce(topic, value, b"k%d" % number, timestamp=old + number)
            assert scene.producer.flush(20) == 0
            run = scene.begin(steps="1s")
            scene.until(lambda: scene.is_finished() and len(scene.parked()) == 12)
            scene.stop(run)
            # What is deleted elsewhere after the copies were written would be deleted here too.
            scene.producer.produce(control, b"", b"last", timestamp=old)
            assert scene.producer.flush(20) == 0
            eventually(
                lambda: scene.admin.starts(control, range(3)) == scene.ends(control), why="the end of old records"
            )
            assert sorted(copy.timestamp - old for copy in scene.read(scene.error_topic)) == list(range(12))
            for topic in (scene.error_topic, scene.retry()):
                assert scene.option(topic, "retention.ms") == "-1"
        finally:
            scene.close()
