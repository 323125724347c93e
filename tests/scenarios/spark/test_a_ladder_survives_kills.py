"""One record in ten fails, and the driver is killed on the way."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from laneway.devkit.history import check, read_history
from support.ladder_app import fate
from support.waiting import eventually

if TYPE_CHECKING:
    from laneway.devkit.history import Event
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

KEYS = 5_000
KILLS = (0.15, 0.4, 0.65)  # parts of the records that are handled when the driver is killed


def calls_of(scene: Scene, kind: str) -> list[Event]:
    return list(read_history(scene.folder / "history" / kind))


@pytest.mark.parametrize(
    ("mode", "records", "kills"),
    [
        ("ordered", 20_000, KILLS[:2]),
        *(pytest.param(mode, 100_000, KILLS, marks=pytest.mark.soak) for mode in ("blocking", "unordered", "ordered")),
    ],
)
def test_every_record_reaches_its_end_in_the_order_that_the_mode_keeps(
    scene: Scene, mode: str, records: int, kills: tuple[float, ...]
) -> None:
    """Nothing is lost; a failed record is parked once or handled later; blocking and ordered keep the key's order."""
    scene.produce_rows((f"k{number % KEYS}".encode(), str(number).encode()) for number in range(records))
    for kind in ("done", "failed"):
        (scene.folder / "history" / kind).mkdir(parents=True)
    # In place every batch waits for the whole ladder.
    steps = "200ms,400ms" if mode == "blocking" else "1s,2s"
    rest = {"mode": mode, "steps": steps, "seconds": 0.005, "lanes": 40, "LANEWAY_SPARK_BATCH_TIME": "400ms"}
    for limit in (*(int(part * records) for part in kills), None):
        run = scene.run(target="support.ladder_app:app", **rest)
        if limit is not None:
            scene.until(lambda limit=limit: len(calls_of(scene, "done")) >= limit, timeout=120)
            run.kill()
            eventually(lambda run=run: not run.family(), timeout=30, why="the end of the workers")
    topics = [scene.topic, *([] if mode == "blocking" else [f"{scene.topic}.{scene.group}.retry.{n}" for n in (1, 2)])]
    scene.until(lambda: all(scene.committed(topic) == scene.ends(topic) for topic in topics), timeout=240)
    run.send(signal.SIGTERM)
    assert run.ended() == 0, run.output

    done, failed, parked = calls_of(scene, "done"), calls_of(scene, "failed"), scene.parked()
    calls = [*done, *failed]
    verdict = check(done, scene.ends(), failed=failed, parked=parked)
    values = {(record.partition, record.offset): record.raw for record in scene.read(scene.topic)}
    ends = Counter([(event.partition, event.offset) for event in done] + parked)
    copies = Counter(parked)
    print(
        f"{mode}: {len(calls):,} calls, {len(parked):,} parked, lost {verdict.lost}, overlaps {verdict.overlaps}, "
        f"inversions {verdict.inversions}, ends that came twice {sum(ends.values()) - len(ends):,}, of failing records "
        f"{sum(count - 1 for place, count in ends.items() if fate(values[place]) != 'handled'):,}"
    )
    assert verdict.lost == 0
    assert {place for place, value in values.items() if fate(value) == "parked"} <= set(copies)
    # None that should have been handled. One that queued on the last step has its first call there, and no second one.
    assert {fate(values[place]) for place in copies} <= ({"parked", "recovers"} if mode == "ordered" else {"parked"})
    assert max(copies.values()) == 1
    if mode == "unordered":
        # A retry runs beside other records of its key; first calls keep order.
        verdict = check([event for event in calls if event.attempt == 1])
    assert (verdict.inversions, verdict.overlaps) == (0, 0)
    # One kind of end for each: nothing is parked here and handled there.
    handled = {(event.partition, event.offset) for event in done}
    assert handled.isdisjoint(copies)
    # Handled again is only what a kill caught between its end and the commit: no more often than there were kills.
    assert all(count <= 1 + len(kills) for count in ends.values())
