"""A group whose offsets were reset runs everything behind them again, also what is on the error topic already."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from laneway.devkit.history import read_history
from support.direct_scene import QUICK
from support.fault_scene import FaultScene
from support.resets import reset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.contract import Cluster
    from support.processes import LanewayRun

pytestmark = [pytest.mark.broker, pytest.mark.slow]

ROWS = [b"0", b"-1", b"0", b"0"]
"""Of each partition; the second is rejected, and so parked."""
PLACES = {(partition, offset) for partition in range(3) for offset in range(len(ROWS))}
POISON = {(partition, 1) for partition in range(3)}
GATED = {(partition, len(ROWS)) for partition in range(3)}
TARGET = "support.fault_app:app"


class ResetScene(FaultScene):
    """Runs of one engine, and what each of them did."""

    engine = ""

    def run(self, *arguments: str, **rest: object) -> LanewayRun:
        """Start a run of the engine; it knows soon that another one was killed."""
        given = {"target": TARGET, "gate": self.gate, "mode": "blocking", "steps": "10ms", **QUICK, **rest}
        engine = () if "command" in rest else ("--engine", self.engine)
        return super().run(*engine, *arguments, **given)

    def calls(self, life: str = "") -> Counter[tuple[int, int]]:
        """How often each record was called in a life."""
        found: Counter[tuple[int, int]] = Counter()
        for kind in ("done", "failed"):
            folder = self._history(life) / kind
            if folder.exists():
                found.update((event.partition, event.offset) for event in read_history(folder))
        return found


@pytest.fixture(params=["direct", pytest.param("spark", marks=pytest.mark.spark)])
def scene(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ResetScene]:
    """Three partitions of four records each, one of which is rejected."""
    made = ResetScene(cluster.bootstrap, tmp_path, request.node.nodeid)
    made.engine = request.param
    made.create(made.topic)
    for partition in range(3):
        made.produce_rows(
            [(b"%d-%d" % (partition, number), row) for number, row in enumerate(ROWS)], partition=partition
        )
    yield made
    made.close()


def test_a_reset_is_an_order_and_a_crash_is_none(scene: ResetScene) -> None:
    """Everything behind a reset runs again, and only what a crash after that has copied is left out and counted.

    Also after the crash, and when the copies were dropped from the error topic.
    """
    scene.finish(life="-first")
    assert scene.calls("-first") == Counter(PLACES)
    assert Counter(scene.parked()) == Counter(POISON)

    reset(scene, {0: 0, 1: 0, 2: 2})
    behind = {place for place in PLACES if place[0] < 2 or place[1] >= 2}
    run = scene.finish(life="-again")
    assert scene.calls("-again") == Counter(behind)
    assert Counter(scene.parked()) == Counter([*POISON, *(POISON & behind)])
    assert f"{len(behind)} read: {len(behind) - 2} handled, 0 skipped, 2 parked" in run.output

    # Killed while one record of each partition is in work, and none of those that are finished is committed as such.
    reset(scene, dict.fromkeys(range(3), 0))
    for partition in range(3):
        scene.produce_rows([(b"gate%d" % partition, b"0 gate")], partition=partition)
    killed = scene.run(life="-killed")
    scene.until(lambda: scene.calls("-killed") == Counter(PLACES) and len(scene.parked()) == 8)
    killed.kill()
    scene.gate.touch()
    run = scene.finish(life="-after")
    assert len(scene.parked()) == 8, run.output
    assert not POISON & set(scene.calls("-after"))
    assert set(scene.calls("-killed") + scene.calls("-after")) == PLACES | GATED
    if scene.engine == "spark":  # on direct the commit says what is finished, if there was time for it
        assert "3 already copied by a process that ended before its commit" in run.output

    # Its copies are dropped from the error topic, and it is reset: nothing is lost.
    drop = scene.run("--yes", command="errors drop", target="support.fault_app:app", life="-drop")
    assert drop.ended() == 0, drop.output
    assert "8 records dropped" in drop.output
    reset(scene, dict.fromkeys(range(3), 0))
    scene.finish(life="-last")
    assert scene.calls("-last") == Counter(PLACES | GATED)
    assert len(scene.parked()) == 11
