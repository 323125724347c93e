"""Records that wait on a retry topic, or for a handler with a delay: when they run, and what a stop does to them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from support.delays import check_lateness, delay_is_kept, stop_and_restart_keep_what_waits
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
    """On an idle app no second call comes sooner than the delay after the first, and most less than 1 s later."""
    delay_is_kept(scene)


def test_a_delayed_handler_is_never_early_and_hardly_late(scene: DirectFaultScene) -> None:
    """A record runs when it is as old as the handler's delay says, and most less than a second later."""
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
    check_lateness([call.age - 2.0 for call in calls])


def test_a_stop_and_a_restart_leave_what_waits_in_peace(scene: DirectFaultScene) -> None:
    """A stop does not wait for records on a retry topic; a later run has them still, early for none, late for none."""
    stop_and_restart_keep_what_waits(scene, within=5)


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
