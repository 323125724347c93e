"""Secrets of the Kafka clients and what Spark shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

SECRET = "planted-4b1d9c7e"  # noqa: S105 - it is looked for
CONFIG = """\
default:
  clusters:
    main:
      client:
        client.rack: planted-4b1d9c7e
  spark:
    conf:
      spark.eventLog.enabled: "true"
      spark.eventLog.dir: %s
      spark.sql.streaming.numRecentProgressUpdates: "10"
"""


def test_neither_plans_nor_logs_nor_the_checkpoint_hold_them(scene: Scene) -> None:
    """A secret in the client's options is in no output, event log or checkpoint, not even when debugging."""
    events, checkpoint = scene.folder / "events", scene.folder / "checkpoint"
    events.mkdir()
    scene.produce(100)
    run = scene.finish(
        "--checkpoint",
        str(checkpoint),
        config=CONFIG % events,
        LANEWAY_DEBUG=1,
        LANEWAY_SPARK_UI="true",
    )
    files = [path for folder in (events, checkpoint) for path in folder.rglob("*") if path.is_file()]
    assert any(events in path.parents and path.stat().st_size > 10_000 for path in files)
    assert SECRET not in run.output
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert scene.verdict().is_clean
