"""A topic is deleted and created again under the same name: it is recognised, and `on_data_loss` decides."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from laneway.errors import DataLossError
from support.direct_faults import EngineThread, told
from support.waiting import eventually

if TYPE_CHECKING:
    from support.direct_faults import DirectFaultScene

pytestmark = [pytest.mark.broker, pytest.mark.slow]

CONTINUE = {"LANEWAY_ON_DATA_LOSS": "continue"}
OLD, NEW = b"old", b"new"


def produce(scene: DirectFaultScene, count: int, value: bytes, partition: int = 1) -> None:
    """Produce to one partition."""
    scene.produce_rows([(b"k%d" % (number % 10), value) for number in range(count)], partition=partition)


def was_read(scene: DirectFaultScene, count: int) -> dict[int, tuple[int, str]]:
    """Let a run read old records to the end; what it has committed."""
    produce(scene, count, OLD)
    scene.finish(seconds=0, life="-old")
    found = scene.commits()
    assert found[1][0] == count
    return found


@pytest.mark.parametrize("end", [50, 150])
def test_while_nothing_ran(scene: DirectFaultScene, end: int) -> None:
    """The next run fails at once and changes nothing, whether or not the committed offset lies in the new log.

    Kafka deletes the offsets of a topic with it; a commit that came late, or another broker, leaves them.
    """
    before = was_read(scene, 100)
    scene.recreate()
    produce(scene, end, NEW)
    scene.commit_text(before)

    failed = scene.run("--once", seconds=0)
    assert failed.ended() == 1, failed.output
    for part in (f"{scene.topic}[1]", "100", str(end), "recreated", "on_data_loss: continue"):
        assert part in told(failed)
    assert scene.commits() == before
    assert not scene.calls()

    run = scene.finish(seconds=0, **CONTINUE)
    assert sorted(call.offset for call in scene.calls()) == list(range(end)), run.output
    [line] = [line for line in run.output.splitlines() if "recreated" in line]
    for part in (f"{scene.topic}[1]", "100", str(end)):
        assert part in line
    assert scene.lag() == 0
    scene.finish(seconds=0)  # the loss is dealt with


def test_an_offset_past_the_end_of_the_log(scene: DirectFaultScene) -> None:
    """An offset that the log does not reach is a loss at the start, also when the commit does not name its topic."""
    produce(scene, 50, NEW)
    scene.commit({1: 300})

    failed = scene.run("--once", seconds=0)
    assert failed.ended() == 1, failed.output
    for part in (f"{scene.topic}[1]", "300", "50", "on_data_loss: continue"):
        assert part in told(failed)
    assert scene.commits()[1] == (300, "")
    assert not scene.calls()

    run = scene.finish(seconds=0, **CONTINUE)
    assert sorted(call.offset for call in scene.calls()) == list(range(50)), run.output
    assert scene.lag() == 0


def tells(scene: DirectFaultScene) -> str:
    """What is said while running, with the end of the new log at that moment."""
    return (
        rf"{scene.topic} was deleted and recreated: {re.escape(scene.topic)}\[1\] is at offset 100, its log ends at \d+"
    )


class Running:
    """A run on a thread, whose handler takes down what it gets."""

    def __init__(self, scene: DirectFaultScene, delay: str = "0s", **settings: Any) -> None:
        self.scene = scene
        self.handled: list[tuple[bytes, int, int]] = []
        self.notes: list[str] = []
        self.worker = EngineThread(
            scene,
            lambda record: self.handled.append((record.raw, record.partition, record.offset)),
            declare=lambda app, topic: app.handler(topic, lanes=4, delay=delay),
            details=self.notes.append,
            **settings,
        )
        produce(scene, 100, OLD)
        eventually(lambda: len(self.handled) == 100 and scene.is_read(), why=self.worker.told)

    def new(self) -> set[tuple[int, int]]:
        """Records of the new topic that were handled."""
        return {(partition, offset) for value, partition, offset in self.handled if value == NEW}


ENDS = pytest.mark.parametrize(("end", "protocol"), [(50, "classic"), (150, "classic"), (150, "consumer")])


@ENDS
def test_recreated_at_once_while_running(scene: DirectFaultScene, end: int, protocol: str) -> None:
    """By default the run ends, and nothing of the new topic is committed."""
    run = Running(scene, **{"clusters.main.consumer.group_protocol": protocol})
    scene.recreate()
    produce(scene, end, NEW)
    eventually(lambda: run.worker.failure is not None, timeout=30, why=run.worker.told)
    assert isinstance(run.worker.failure, DataLossError)
    assert re.search(tells(scene), str(run.worker.failure))
    assert str(run.worker.failure).endswith("on_data_loss: continue")
    assert scene.commits() == {}


@ENDS
def test_recreated_at_once_while_running_and_asked_to_go_on(scene: DirectFaultScene, end: int, protocol: str) -> None:
    """With on_data_loss: continue all of the new topic is handled, and that is said once."""
    settings = {"on_data_loss": "continue", "clusters.main.consumer.group_protocol": protocol}
    run = Running(scene, **settings)
    try:
        scene.recreate()
        produce(scene, end, NEW)
        eventually(lambda: len(run.new()) == end and scene.is_read(), timeout=30, why=run.worker.told)
    finally:
        run.worker.end()
    [note] = {note for note in run.notes if "recreated" in note}
    assert re.search(tells(scene), note)
    assert scene.committed() == scene.ends()


@pytest.mark.parametrize(("delay", "partitions"), [("1s", 3), ("0s", 1), ("0s", 4)])
def test_a_new_topic_of_another_size_or_with_a_delay(scene: DirectFaultScene, delay: str, partitions: int) -> None:
    """All that is there is handled, whatever the topic was like before, and however it is read."""
    settings = {"on_data_loss": "continue", "clusters.main.consumer.metadata_refresh": "500ms"}
    run = Running(scene, delay, **settings)
    try:
        scene.recreate(partitions)
        produce(scene, 150, NEW, partition=partitions - 1)
        eventually(lambda: len(run.new()) == 150 and scene.is_read(), timeout=30, why=run.worker.told)
    finally:
        run.worker.end()
    assert scene.committed() == scene.ends()


def test_a_new_topic_is_read_from_its_start_by_who_knew_the_old_one(scene: DirectFaultScene) -> None:
    """Kafka deletes the group's offsets with the topic; a running process does not take itself for a new group."""
    settings = {"on_data_loss": "continue", "handlers.handle.start": "latest"}
    settings["clusters.main.consumer.metadata_refresh"] = "500ms"
    handled: set[tuple[int, int]] = set()
    worker = EngineThread(scene, lambda record: handled.add((record.partition, record.offset)), **settings)
    try:
        eventually(lambda: produce(scene, 1, OLD) or handled, every=0.5, why=worker.told)
        eventually(scene.is_read, why=worker.told)
        scene.delete(scene.topic)
        eventually(lambda: worker.engine.life.detail.startswith("waiting for topic"), why=worker.told)
        handled.clear()
        scene.create(scene.topic)
        scene._producer = None
        produce(scene, 60, NEW)
        eventually(lambda: len(handled) == 60, timeout=30, why=worker.told)
    finally:
        worker.end()
