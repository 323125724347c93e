"""Records that wait on a retry topic, or for a handler with a delay: when they run, and what a stop does to them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from support.direct_faults import EngineThread
from support.waiting import eventually

if TYPE_CHECKING:
    from laneway import Record
    from support.direct_faults import DirectFaultScene

pytestmark = [pytest.mark.broker, pytest.mark.slow]


class Called(NamedTuple):
    """One call of a record."""

    offset: int
    age: float
    """Seconds, by the record's own timestamp, at its beginning."""


@pytest.fixture
def scene(fault_scene: DirectFaultScene) -> DirectFaultScene:
    """On the broker of the session."""
    return fault_scene


def test_a_delay_is_never_short_and_hardly_long(scene: DirectFaultScene) -> None:
    """On an idle app a second call begins no less than the delay after the first ended, and at most a second later."""
    run = scene.begin(steps="2s")
    # The first of all pays for the start of clients.
    scene.produce_failing([1])
    scene.until(lambda: len(scene.done()) == 1)
    for _ in range(10):
        scene.produce_failing([1] * 5)
        time.sleep(0.3)
    scene.until(lambda: len(scene.done()) == 51)
    scene.stop(run)

    ended = {(call.partition, call.offset): call.end for call in scene.failed()}
    assert len(ended) == len(scene.failed()) == len(scene.done()) == 51
    late = sorted(call.start - ended[call.partition, call.offset] - 2.0 for call in scene.done())
    print(f"late by {late[25] * 1000:.0f} ms (p50), {late[49] * 1000:.0f} ms (p99), {late[50] * 1000:.0f} ms (most)")
    assert late[0] >= 0
    assert late[49] < 1.0


def test_a_delayed_handler_is_never_early_and_hardly_late(scene: DirectFaultScene) -> None:
    """A record runs when it is as old as the handler's delay says, and at most a second later."""
    calls: list[Called] = []

    def call(record: Record[bytes]) -> None:
        calls.append(Called(record.offset, time.time() - record.timestamp / 1000))

    worker = EngineThread(scene, call, lambda app, topic: app.handler(topic, lanes=4, delay="2s"))
    try:
        scene.produce(1)
        eventually(lambda: len(calls) == 1, why=worker.told)
        for _ in range(10):
            scene.produce(5)
            time.sleep(0.3)
        eventually(lambda: len(calls) == 51, why=worker.told)
        eventually(scene.is_read, why=worker.told)
    finally:
        worker.end()
    late = sorted(call.age - 2.0 for call in calls)
    print(f"late by {late[25] * 1000:.0f} ms (p50), {late[49] * 1000:.0f} ms (p99), {late[50] * 1000:.0f} ms (most)")
    assert late[0] >= 0
    assert late[49] < 1.0


def test_a_stop_and_a_restart_leave_what_waits_in_peace(scene: DirectFaultScene) -> None:
    """A stop does not wait for records on a retry topic; a later run has them still, early for none, late for none."""
    run = scene.begin(steps="10m")
    scene.produce_failing([1] * 10)
    scene.until(lambda: sum(scene.ends(scene.retry()).values()) == 10 and scene.is_finished(scene.topic))
    asked = time.monotonic()
    scene.stop(run)
    took = time.monotonic() - asked
    print(f"stopped {took:.1f} s after the signal")
    assert took < 5

    run = scene.begin(steps="10m")
    scene.produce_failing([0])
    scene.until(lambda: len(scene.done()) == 1 and scene.is_finished(scene.topic))
    scene.stop(run)
    assert len(scene.failed()) == 10
    assert set(scene.committed(scene.retry()).values()) == {0}

    # They are due by now, as far as this run can tell.
    run = scene.begin(steps="1s")
    began = time.monotonic()
    scene.until(lambda: len(scene.done()) == 11)
    print(f"all had run {max(call.end for call in scene.done()) - began:.1f} s after the start")
    assert max(call.end for call in scene.done()) - began < 10
    eventually(scene.is_finished, why=lambda: run.output)
    assert (scene.found().lost, scene.found().duplicates) == (0, 0)
    assert scene.parked() == []


def test_a_stop_does_not_wait_for_records_that_are_too_young(scene: DirectFaultScene) -> None:
    """A delayed handler's records are left where they are, and a run with another delay takes them up, each once."""
    calls: list[int] = []

    def call(record: Record[bytes]) -> None:
        calls.append(record.offset)

    worker = EngineThread(scene, call, lambda app, topic: app.handler(topic, lanes=4, delay="10m"))
    scene.produce(10)
    eventually(lambda: sum(len(member.assignment.topic_partitions) for member in scene.members()) == 3)
    time.sleep(1)  # to be read early, if that could be
    asked = time.monotonic()
    worker.end()
    print(f"stopped {time.monotonic() - asked:.1f} s after it was asked")
    assert time.monotonic() - asked < 5
    assert (calls, sum(scene.committed().values())) == ([], 0)
    assert worker.report is not None
    assert not worker.report.was_forced

    worker = EngineThread(scene, call, lambda app, topic: app.handler(topic, lanes=4, delay="1s"))
    eventually(scene.is_read, why=worker.told)
    worker.end()
    assert len(calls) == 10
