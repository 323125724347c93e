"""Stop signals: with calls under way, with calls that hang, and with copies that cannot be written."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from laneway.devkit.history import check
from support.direct_faults import EngineThread
from support.doors import State
from support.waiting import eventually

if TYPE_CHECKING:
    from laneway import Record
    from support.direct_faults import DirectFaultScene
    from support.fault_scene import Place
    from support.processes import LanewayRun

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LANES = 70  # in each of three partitions
CALLS = 200  # that are under way at once
DRAIN = 3.0  # seconds
LEAVE = 2.0  # seconds, beyond the drain or after a second signal: to commit, to leave the group and to end


def _after_all_begin(scene: DirectFaultScene, count: int = CALLS) -> None:
    scene.until(lambda: len(scene.waiting()) >= count)


@pytest.mark.parametrize(("kind", "number"), [("async", signal.SIGINT), ("sync", signal.SIGTERM)])
def test_the_first_signal_finishes_calls(scene: DirectFaultScene, kind: str, number: signal.Signals) -> None:
    """200 calls of a second are finished and committed, none is begun, the end is good; a restart repeats nothing."""
    scene.produce(1_000, keys=1_000)
    run = scene.consume(life="-1", kind=kind, seconds=1, lanes=LANES)
    scene.after_calls(1, life="-1")
    before = len(scene.calls("-1"))
    asked = time.monotonic()
    run.send(number)
    assert run.ended(40) == 0, run.output
    took = time.monotonic() - asked
    handled = len(scene.calls("-1"))
    print(f"{handled - before} calls ended in the {took:.1f} s of the stop, {handled} in all")
    assert scene.lag() == 1_000 - handled
    assert 0 < handled < 1_000
    assert scene.members() == []
    scene.finish(life="-2", kind="async", seconds=0)
    verdict = check([*scene.calls("-1"), *scene.calls("-2")], scene.ends())
    assert verdict.is_clean, verdict
    assert "stopping (finishing records in flight)" in run.output
    assert "Traceback" not in run.output


def _hang_some(scene: DirectFaultScene) -> LanewayRun:
    """Let 30 calls hang and 60 later ones of other keys end."""
    scene.produce_failing([0] * 30, b"gate", b"hang")
    run = scene.begin(LANEWAY_DRAIN=f"{DRAIN}s", lanes=100)
    _after_all_begin(scene, 30)
    scene.produce_failing([0] * 60, b"", b"end")
    scene.until(lambda: len(scene.done()) == 60)
    return run


def _goes_on(scene: DirectFaultScene, run: LanewayRun) -> None:
    """Assert that nothing was committed that had not ended, and that a restart handles that and no more."""
    assert "Traceback" not in run.output
    hanging = {(call.partition, call.offset) for call in scene.waiting()}
    lowest = {part: min((offset for place, offset in hanging if place == part), default=None) for part in range(3)}
    committed = scene.committed()
    assert all(lowest[part] is None or committed[part] == lowest[part] for part in range(3)), (lowest, committed)
    assert scene.members() == []
    scene.gate.touch()
    scene.finish(target="support.fault_app:app", gate=scene.gate)
    done = sorted((call.partition, call.offset) for call in scene.done())
    assert len(done) == len(set(done)) == 90
    assert scene.is_read()


def _ends_by_force(run: LanewayRun, after: float = 0.0) -> None:
    """Assert that a signal ends the run after so long, not sooner and hardly later, with the exit code for it."""
    asked = time.monotonic()
    run.send(signal.SIGTERM)
    assert run.ended(30) == 3, run.output
    took = time.monotonic() - asked
    print(f"ended {took:.2f} s after the signal")
    assert after <= took < after + LEAVE


def test_calls_that_hang_longer_than_the_drain(scene: DirectFaultScene) -> None:
    """They are left behind with exit code 3; what had ended is not repeated, what hung is."""
    run = _hang_some(scene)
    _ends_by_force(run, after=DRAIN)
    _goes_on(scene, run)


def test_the_second_signal_stops_now(scene: DirectFaultScene) -> None:
    """It does not wait for the drain, exits with 3, and commits only what had ended."""
    scene.produce_failing([0] * 30, b"gate", b"hang")
    run = scene.begin(LANEWAY_DRAIN="10m", lanes=100)
    _after_all_begin(scene, 30)
    scene.produce_failing([0] * 60, b"", b"end")
    scene.until(lambda: len(scene.done()) == 60)
    run.send(signal.SIGTERM)
    eventually(lambda: "stopping" in run.output, why=lambda: run.output)
    time.sleep(1)
    assert run.is_running
    _ends_by_force(run)
    _goes_on(scene, run)


def test_sync_calls_that_hang(scene: DirectFaultScene) -> None:
    """Threads cannot be stopped, but the process ends, with exit code 3, and none of their records is committed."""
    scene.produce(100)
    run = scene.consume(life="-1", gate=scene.gate, lanes=4, LANEWAY_DRAIN=f"{DRAIN}s")
    eventually(lambda: scene.members() and run.is_running, why=lambda: run.output)
    time.sleep(2)
    _ends_by_force(run, after=DRAIN)
    assert "Traceback" not in run.output
    assert (scene.calls("-1"), scene.lag()) == ([], 100)
    scene.finish(life="-2", seconds=0)
    assert check(scene.calls("-2"), scene.ends()).is_clean


def test_a_stop_while_copies_cannot_be_written(scene: DirectFaultScene) -> None:
    """Records whose copies have nowhere to go stay unfinished: exit code 3, and they are parked by the next run."""
    settings = {"LANEWAY__CLUSTERS__MAIN__PRODUCER__TIMEOUT": "2s", "LANEWAY_CREATE_TOPICS": "false"}
    for topic in (scene.error_topic, f"{scene.topic}.{scene.group}.retry.1"):
        scene.create(topic)
    run = scene.begin(LANEWAY_DRAIN=f"{DRAIN}s", **settings)
    scene.delete(scene.error_topic)
    rejected = scene.produce_failing([-1] * 20)
    scene.until(lambda: len(scene.failed()) == 20)
    eventually(lambda: f"could not write to {scene.error_topic}" in run.output, why=lambda: run.output)
    _ends_by_force(run, after=DRAIN)
    assert "Traceback" not in run.output
    assert sum(scene.committed().values()) == 0
    again = scene.begin()
    scene.until(scene.is_read)
    scene.stop(again)
    assert set(scene.parked()) == rejected


def test_a_stop_while_another_joins(scene: DirectFaultScene) -> None:
    """What was begun is finished and committed, the group is left at once, and the one that joined repeats nothing."""
    gate = threading.Event()
    calls: list[Place] = []

    def call(record: Record[bytes]) -> None:
        calls.append((record.partition, record.offset))
        assert gate.wait(60)

    def started() -> EngineThread:
        often = {"clusters.main.consumer.heartbeat_interval": "1s"}
        return EngineThread(scene, call, lambda app, topic: app.handler(topic, lanes=1), **often)

    for part in range(3):
        scene.produce_rows([(b"%d-%d" % (part, number), b"v") for number in range(20)], partition=part)
    leaving = started()
    eventually(lambda: len(calls) == 3, why=leaving.told)
    leaving.engine.stop()
    assert leaving.engine.life.wait_for(State.STOPPING, 20)
    joining = started()
    # One partition is to move: to give it back waits for a call that the stop waits for, too.
    eventually(lambda: sorted(len(member.assignment.topic_partitions) for member in scene.members()) == [0, 2])
    time.sleep(0.5)
    gate.set()
    ended = time.monotonic()
    report = leaving.ended()
    took = time.monotonic() - ended
    print(f"left {took:.2f} s after its calls had ended")
    assert not report.was_forced
    assert took < LEAVE + 1  # until the next heartbeat the one that joined does not know that it is to join again
    eventually(scene.is_read, why=joining.told)
    joining.end()
    assert sorted(calls) == [(part, offset) for part in range(3) for offset in range(20)]
