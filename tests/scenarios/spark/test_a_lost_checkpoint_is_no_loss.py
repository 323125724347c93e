"""The checkpoint is gone, or garbage."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_the_group_offsets_take_its_place(scene: Scene) -> None:
    """After a clean stop and the loss of the checkpoint a run goes on from the group's offsets and repeats nothing."""
    checkpoint = scene.folder / "checkpoint"
    flags = ("--checkpoint", str(checkpoint))
    scene.produce(2_000)
    first = scene.run(*flags, seconds=0.02, LANEWAY_SPARK_MAX_BATCH_RECORDS=500)
    scene.after_calls(600)
    first.send(signal.SIGTERM)
    assert first.ended() == 0, first.output
    assert 0 < scene.lag() < 2_000
    shutil.rmtree(checkpoint)
    scene.finish(*flags, seconds=0)
    assert scene.verdict().is_clean
    assert scene.lag() == 0


def test_an_unreadable_checkpoint_is_reported_in_one_line(scene: Scene) -> None:
    """A checkpoint that holds garbage ends the run with exit code 1 and a line that says what to do."""
    checkpoint = scene.folder / "checkpoint"
    flags = ("--checkpoint", str(checkpoint))
    scene.produce(50)
    scene.finish(*flags, seconds=0)
    offsets = [path for path in checkpoint.glob("*/offsets/*") if path.name.isdigit()]
    newest = max(offsets, key=lambda path: int(path.name))
    newest.write_bytes(b"\x00garbage")
    for twin in newest.parent.glob(f".{newest.name}.crc"):
        twin.unlink()
    scene.produce(50)
    second = scene.run("--once", *flags, seconds=0)
    assert second.ended() == 1, second.output
    told = [line for line in second.output.splitlines() if line.startswith("laneway: ")]
    assert len(told) == 1, second.output
    assert "checkpoint" in told[0]
    assert f"Move {checkpoint}/{scene.topic}@main away" in told[0]
    assert scene.group in told[0]
    assert "Traceback" not in second.output
    assert len(scene.calls()) == 50
