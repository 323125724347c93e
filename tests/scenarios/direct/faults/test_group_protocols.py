"""Ways to share partitions out: cooperative, eager, by the broker (KIP-848), and with names that outlive a restart."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ConsumerGroupType

from laneway.devkit.history import Recorder
from support.direct_faults import EngineThread
from support.doors import State
from support.waiting import eventually

if TYPE_CHECKING:
    from laneway import Record
    from support.direct_faults import DirectFaultScene

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PROTOCOLS: dict[str, tuple[dict[str, object], tuple[ConsumerGroupType, str]]] = {
    "cooperative": ({}, (ConsumerGroupType.CLASSIC, "cooperative-sticky")),
    "eager": ({"clusters.main.consumer.assignment": "range"}, (ConsumerGroupType.CLASSIC, "range")),
    "kip-848": ({"clusters.main.consumer.group_protocol": "consumer"}, (ConsumerGroupType.CONSUMER, "uniform")),
}
"""Settings, and what brokers say of a group with them: its type, and what shares its partitions out."""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_that_come_and_go(scene: DirectFaultScene, protocol: str) -> None:
    """With each protocol partitions move between members without a loss, a repeat or a call out of order."""
    settings, described = PROTOCOLS[protocol]
    history = scene.folder / "history"
    history.mkdir()
    recorder = Recorder(str(history))

    def handle(record: Record[bytes]) -> None:
        began = time.monotonic()
        time.sleep(0.01)
        recorder.write(record, began)

    def are_shared(members: int) -> bool:
        held = [len(member.assignment.topic_partitions) for member in scene.members()]
        return len(held) == members and sum(held) == 3 and all(held)

    scene.produce(600)
    first = EngineThread(scene, handle, **settings)
    eventually(lambda: len(scene.calls()) > 100, why=first.told)
    second = EngineThread(scene, handle, **settings)
    eventually(lambda: are_shared(2), why=second.told)
    eventually(lambda: scene.protocol() == described, timeout=20, why=lambda: f"{scene.protocol()}")
    scene.produce(600)
    eventually(lambda: len(scene.calls()) > 700)
    first.end()
    eventually(lambda: are_shared(1))
    eventually(lambda: scene.protocol() == described, timeout=20, why=lambda: f"{scene.protocol()}")
    scene.produce(600)
    eventually(scene.is_read, why=second.told)
    second.end()
    verdict = scene.verdict()
    print(protocol, verdict)
    assert verdict.is_clean, verdict


def test_a_restart_with_a_name(scene: DirectFaultScene) -> None:
    """With static membership a restart within session_timeout moves no partitions and loses nothing."""
    static = "LANEWAY__CLUSTERS__MAIN__CONSUMER__STATIC_MEMBERSHIP"
    scene.produce(600)
    first = scene.consume(seconds=0.01, **{static: "one"})
    second = scene.consume(seconds=0.01, **{static: "two"})

    def held() -> dict[str, set[int]]:
        return {
            member.group_instance_id: {place.partition for place in member.assignment.topic_partitions}
            for member in scene.members()
        }

    eventually(lambda: sorted(map(len, held().values())) == [1, 2], why=lambda: f"{held()}")
    before = held()
    scene.stop(first)
    scene.produce(300)
    assert held() == before
    third = scene.consume(seconds=0.01, **{static: "one"})
    scene.until(scene.is_read)
    assert held() == before
    for run in (second, third):
        run.send(signal.SIGTERM)
        assert run.ended(30) == 0, run.output
    verdict = scene.verdict()
    assert verdict.is_clean, verdict


def test_pause_and_resume(scene: DirectFaultScene) -> None:
    """A paused engine calls nothing and stays a member beyond max_poll_interval; resumed, it handles all."""
    calls: list[float] = []
    quick = {
        "clusters.main.consumer.max_poll_interval": "6s",
        "clusters.main.consumer.session_timeout": "6s",
        "clusters.main.consumer.heartbeat_interval": "1s",
    }
    worker = EngineThread(scene, lambda record: calls.append(time.monotonic()), **quick)
    try:
        scene.produce(300)
        eventually(lambda: len(calls) == 300, why=worker.told)
        (member,) = scene.members()
        for _ in range(8):
            _pause_under_load(scene, worker, calls)
        eventually(scene.is_read, why=worker.told)
        handled = len(calls)
        worker.engine.pause()
        assert worker.engine.life.wait_for(State.PAUSED, 20)
        scene.produce(300)
        time.sleep(8)
        assert len(calls) == handled
        (still,) = scene.members()
        assert still.member_id == member.member_id
        worker.engine.resume()
        assert worker.engine.life.wait_for(State.CONSUMING, 20)
        eventually(lambda: len(calls) == handled + 300)
        eventually(scene.is_read)
    finally:
        worker.end()
    assert worker.states[-1] is State.STOPPED
    assert worker.report is not None
    assert (worker.report.tally.handled, worker.report.was_forced) == (len(calls), False)


def _pause_under_load(scene: DirectFaultScene, worker: EngineThread, calls: list[float]) -> None:
    """Pause while records come, and see that nothing is called once the state says so."""
    is_over = threading.Event()

    def produce() -> None:
        while not is_over.is_set():
            scene.produce(20)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        count = len(calls)
        eventually(lambda: len(calls) > count, every=0.001)
        worker.engine.pause()
        assert worker.engine.life.wait_for(State.PAUSED, 20)
        paused = len(calls)
        time.sleep(0.3)
        assert len(calls) == paused
    finally:
        is_over.set()
        thread.join()
        worker.engine.resume()
