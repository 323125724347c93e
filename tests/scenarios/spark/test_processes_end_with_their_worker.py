"""Processes that a handler has of its own below a Spark worker."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import pytest

from support.waiting import eventually

if TYPE_CHECKING:
    from support.processes import LanewayRun
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def children(run: LanewayRun) -> list[psutil.Process]:
    """The handler's own processes below a run."""
    found = []
    for process in psutil.Process(run.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if any(part.startswith("handler=") for part in process.cmdline()):
                found.append(process)
    return found


def test_a_killed_worker_takes_them_along_and_a_stop_ends_them(scene: Scene) -> None:
    """The records of a killed worker run again in processes of another one; at the end cleanup hooks run in all."""
    gate, hooks = scene.folder / "gate", scene.folder / "hooks.txt"
    scene.produce(20, keys=5)
    run = scene.run(processes=2, gate=gate, hooks=hooks, target="support.spark_apps:app")
    eventually(lambda: len(children(run)) >= 2, why=lambda: run.output)
    first = children(run)
    first[0].parent().send_signal(signal.SIGKILL)
    eventually(lambda: not any(process.is_running() for process in first), timeout=10, why="their end")
    gate.touch()
    scene.until(lambda: scene.lag() == 0)
    assert scene.verdict().is_clean
    last = children(run)
    assert last
    run.send(signal.SIGTERM)
    assert run.ended(60) == 0, run.output
    assert not any(process.is_running() for process in last)
    cleaned = {line.split()[0] for line in hooks.read_text().splitlines() if line.endswith(" cleanup")}
    assert {str(process.pid) for process in last} <= cleaned
