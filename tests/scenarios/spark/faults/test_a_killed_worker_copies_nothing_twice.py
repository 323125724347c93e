"""A Python worker dies in mid-batch, after it has copied records to the retry and error topics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from laneway.devkit.history import check

if TYPE_CHECKING:
    from support.fault_scene import FaultScene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("mode", [pytest.param("unordered", marks=pytest.mark.soak), "ordered"])
def test_every_failing_record_has_one_copy_on_each_topic(scene: FaultScene, mode: str) -> None:
    """Spark repeats the task, which leaves out the records whose copies are safe: none is copied or parked twice."""
    scene.produce_rows((b"k%d" % (number % 200), b"9" if number % 7 == 0 else b"0") for number in range(2_000))
    # Seconds of one batch, so that the kills fall into it.
    rest = {"steps": "1s", "mode": mode, "seconds": 0.05, "LANEWAY_SPARK_TASKS": 1}
    run = scene.begin(**rest)
    scene.until(lambda: sum(scene.ends(scene.retry()).values()) > 40)
    assert not any(scene.committed().values())
    victims = run.workers()
    assert victims
    for victim in victims:
        victim.kill()
    deferred = {record.header("laneway-origin-offset") for record in scene.read(scene.retry())}
    assert deferred
    # The error topic fills while the retry topic is read: once more there.
    scene.until(lambda: len(scene.parked()) > 20)
    for victim in run.workers():
        victim.kill()
    scene.until(scene.is_finished)
    scene.stop(run)

    failing = {(record.partition, record.offset) for record in scene.read(scene.topic) if record.raw == b"9"}
    copies = Counter(_origin(record) for record in scene.read(scene.retry()))
    parked = Counter(scene.parked())
    twice = sum(count > 1 for count in copies.values())
    print(
        f"{mode}: {len(copies)} deferred, {twice} of them twice; {len(parked)} parked, {max(parked.values())} at most"
    )
    assert scene.found().lost == 0
    assert max(copies.values()) == 1
    assert parked == dict.fromkeys(failing, 1)
    calls = [*scene.done(), *scene.failed()]
    verdict = check(calls if mode == "ordered" else [call for call in calls if call.attempt == 1])
    assert (verdict.inversions, verdict.overlaps) == (0, 0)


def _origin(record: object) -> tuple[int, int]:
    return tuple(int(record.header(f"laneway-origin-{name}")) for name in ("partition", "offset"))
