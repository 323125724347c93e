"""Hooks of worker processes at the end of a run."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from support.waiting import eventually

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_cleanup_runs_in_every_process(scene: Scene) -> None:
    """Each worker process that was set up is cleaned up once when the run is stopped; Spark only hangs up on it."""
    hooks = scene.folder / "hooks"
    scene.produce(600)
    run = scene.run(hooks=hooks, kind="async", seconds=0.001)
    scene.after_calls(600)
    run.send(signal.SIGTERM)
    assert run.ended() == 0, run.output
    eventually(lambda: not run.family(), timeout=20)
    notes = Counter(hooks.read_text().splitlines())
    pids = {line.split()[0] for line in notes}
    assert pids
    assert notes == {f"{pid} {word}": 1 for pid in pids for word in ("setup", "cleanup", "async cleanup")}
