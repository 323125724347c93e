"""Records that were to be read are gone from the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def _told(output: str) -> str:
    said = [line for line in output.splitlines() if line.startswith("laneway: ")]
    lines = [line for line in said if not line.startswith("laneway: created topic ")]
    assert len(lines) == 1, output
    assert "Traceback" not in output
    return lines[0]


def test_deleted_records(scene: Scene, spark: object) -> None:
    """Records deleted before they were read fail the run by name, or are counted exactly when that is asked for."""
    scene.produce_rows([(b"k", b"v")] * 100, partition=1)
    scene.once()
    assert scene.committed()[1] == 100
    scene.commit({1: 100, 2: 0})
    scene.produce_rows([(b"k", b"v")] * 100, partition=1)
    scene.produce_rows([(b"k", b"v")] * 10, partition=2)
    places = [TopicPartition(scene.topic, 1, 137), TopicPartition(scene.topic, 2, 10)]
    for answer in scene.client.delete_records(places).values():
        answer.result()

    failed = scene.run("--once", seconds=0)
    assert failed.ended() == 1, failed.output
    for part in (f"{scene.topic}[1]", "100", "136", "137", "on_data_loss: continue"):
        assert part in _told(failed.output)
    assert len(scene.calls()) == 100
    assert scene.committed()[1] == 100

    tally = scene.once(on_data_loss="continue")
    assert (tally.lost, tally.handled, tally.gaps) == (47, 63, 0)
    assert {call.offset for call in scene.calls()} == {*range(100), *range(137, 200)}
    assert scene.lag() == 0
