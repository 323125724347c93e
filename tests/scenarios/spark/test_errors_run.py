"""Parked records are run again: on request with a kill on the way, and by the schedule of a running app."""

from __future__ import annotations

import signal
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from laneway.devkit.history import check
from support.waiting import eventually

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

APP = "support.errors_app:app"
RECORDS, KEYS = 2_400, 60


def parked_times(scene: Scene, since: dict[int, int]) -> dict[tuple[int, int], list[int]]:
    """Partition and offset of each record to how often its copies say that it was parked, those from offsets on."""
    found = defaultdict(list)
    for record in scene.read(scene.error_topic):
        if record.offset >= since.get(record.partition, 0):
            told = dict(record.headers)
            place = int(told["laneway-origin-partition"]), int(told["laneway-origin-offset"])
            found[place].append(int(told["laneway-errors"]))
    return found


def settled(scene: Scene) -> dict[int, int]:
    """Offsets of the group that runs over the error topic."""
    group = Consumer({"bootstrap.servers": scene.bootstrap, "group.id": f"{scene.group}.errors"})
    asked = [TopicPartition(scene.error_topic, partition) for partition in scene.ends(scene.error_topic)]
    places = group.committed(asked, 30)
    group.close()
    return {place.partition: max(0, place.offset) for place in places}


def test_nothing_is_lost_when_a_run_is_killed(scene: Scene) -> None:
    """Killed in mid-run and started again: each record succeeds, or is parked once more and never twice."""
    rows = [(f"k{n % KEYS}".encode(), f"{n}{'bad' if n % 10 == 3 else ''}".encode()) for n in range(RECORDS)]
    scene.produce_rows(rows)
    scene.finish_on_direct(target=APP, life="-0")
    assert sum(scene.ends(scene.error_topic).values()) == RECORDS
    before = scene.ends(scene.error_topic)
    rest = {"target": APP, "command": "errors run"}
    run = scene.run("--stop-when-new", "0s", life="-1", seconds=0.02, LANEWAY_SPARK_BATCH_TIME="400ms", **rest)
    scene.after_calls(700, life="-1")
    run.kill()
    eventually(lambda: not run.family(), timeout=30, why="the end of the workers")
    # In one batch: records whose copies the killed run has written are read together with these copies.
    last = scene.run("--stop-when-new", "0s", life="-2", **rest)
    assert last.ended() == 0, last.output
    assert f"of {scene.error_topic}" in last.output

    lives = [scene.calls(life) for life in ("-1", "-2")]
    done = Counter((call.partition, call.offset) for calls in lives for call in calls)
    values = {(record.partition, record.offset): record.raw for record in scene.read(scene.topic)}
    bad = {place for place, value in values.items() if value.endswith(b"bad")}
    times, open_ = parked_times(scene, {}), parked_times(scene, settled(scene))
    twice = sum(count - 1 for count in done.values())
    copies = Counter(len(times[place]) for place in bad)
    print(f"{len(done):,} of {len(values):,} succeeded, {twice} of them twice; copies of those that fail: {copies}")
    assert set(done) == set(values) - bad
    assert twice <= 600
    # Parked in each run that got to it, and each time once: the numbers go up one by one.
    for place in values:
        assert sorted(times[place]) == list(range(1, len(times[place]) + 1))
        assert (len(times[place]) > 1) == (place in bad)
    # And one copy of each waits for the next run.
    assert {place: len(found) for place, found in open_.items()} == dict.fromkeys(bad, 1)
    for calls in lives:
        verdict = check(calls)
        assert (verdict.inversions, verdict.overlaps, verdict.duplicates) == (0, 0, 0)
    assert all(settled(scene)[partition] >= end for partition, end in before.items())


def test_a_running_app_runs_its_parked_records_on_schedule(scene: Scene) -> None:
    """Every minute as the configuration says; a stop signal ends all cleanly, and the summary says so."""
    config = 'default:\n  errors: {cron: "* * * * *", stop_when_new: 1s, max_errors: 2}\n'
    scene.produce_rows([(b"k%d" % n, b"%d%s" % (n, b"bad" if n == 3 else b"")) for n in range(10)])
    run = scene.run(target=APP, config=config)
    scene.until(lambda: len(scene.calls()) == 9, timeout=150)
    assert Counter((call.partition, call.offset) for call in scene.calls()).most_common(1)[0][1] == 1
    scene.until(lambda: sum(settled(scene).values()) == 10)
    time.sleep(2)  # the run's own processes end now, and whatever they have to say is said
    run.send(signal.SIGTERM)
    assert run.ended() == 0, run.output
    assert "over the error topics" in run.output
    assert "10 read: 9 handled, 0 skipped, 1 parked" in run.output
    assert "Traceback" not in run.output
