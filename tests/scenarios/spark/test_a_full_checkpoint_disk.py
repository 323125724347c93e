"""The disk of Spark's private folder is full: no handler is called for what could not be written down."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.spark_scene import Scene

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system"),
]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, *, left: int = 0) -> None:
    """Leave only so many bytes."""
    with (folder / "filler").open("wb", buffering=0) as filler:
        try:
            while filler.write(b"x" * 4096):
                pass
        except OSError:
            filler.truncate(filler.tell() - left)


def told(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith("laneway: ")]
    [line] = [line for line in lines if "created topic" not in line]
    return line


def test_a_run_does_not_begin_on_it(scene: Scene, small: Path) -> None:
    """Also not when the batch itself could be written down, but not that it is done: all of it would run again."""
    fill(small, left=8192)
    scene.produce(1_000)
    run = scene.run(seconds=0, TMPDIR=small)
    assert run.ended() == 1, run.output
    assert scene.calls() == []
    assert "cannot be written: No space left on device" in told(run.output)
    assert f"temporary folder {small}/" in told(run.output)
    assert "Traceback" not in run.output


def test_a_batch_that_cannot_be_written_down_is_not_handled(scene: Scene, small: Path) -> None:
    """It gets full while the app runs: the batch that comes then ends the run before its handlers are called."""
    scene.produce(100)
    run = scene.run(seconds=0, TMPDIR=small)
    scene.after_calls(100)
    scene.until(lambda: scene.lag() == 0)
    fill(small)
    scene.produce(1_000, first=100)
    assert run.ended() == 1, run.output
    assert len(scene.calls()) == 100
    assert f"temporary folder {small}/" in told(run.output)
    assert "No space left on device" in told(run.output)
