"""Topics that grow, and retry and error topics that are deleted, while a run goes on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from support.direct_faults import EngineThread, told
from support.waiting import eventually

if TYPE_CHECKING:
    from support.direct_faults import DirectFaultScene
    from support.fault_scene import Place

pytestmark = [pytest.mark.broker, pytest.mark.slow]

REFRESH = {"LANEWAY__CLUSTERS__MAIN__CONSUMER__METADATA_REFRESH": "4s"}
"""Soon for a test, and late enough for records to be in new partitions before anybody knows of these."""


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_growth_from_three_to_eight_while_producing(scene: DirectFaultScene, start: str) -> None:
    """Every record of partitions that are added is handled, also when new groups start at the end of a topic."""
    config = f"default:\n  handlers:\n    handle:\n      start: {start}\n"
    scene.produce(300)
    run = scene.consume(seconds=0.002, config=config, **REFRESH)
    scene.until(lambda: sum(scene.committed().values()) == 300)
    is_over = threading.Event()

    def produce() -> None:
        while not is_over.wait(0.02):
            scene.produce(10)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        scene.admin.grow(scene.topic, 8)
        scene.ready(scene.topic, 8)
        # A producer that knew the topic before would not know of the new partitions for minutes.
        other = type(scene)(scene.bootstrap, scene.folder, "another producer")
        other.topic = scene.topic
        for partition in range(8):
            other.produce_rows(
                [(b"p%d-%d" % (partition, number % 7), b"v") for number in range(200)], partition=partition
            )
    finally:
        is_over.set()
        thread.join()
    scene.until(scene.is_read)
    scene.stop(run)
    ends = scene.ends()
    assert [ends[partition] for partition in range(3, 8)] == [200] * 5
    handled = {(call.partition, call.offset) for call in scene.calls()}
    missing = {(part, offset) for part in range(3, 8) for offset in range(200)} - handled
    assert not missing, f"{len(missing)} of the new partitions"
    if start == "earliest":
        assert scene.verdict().is_clean


def test_growth_that_falls_to_a_member_without_partitions(scene: DirectFaultScene) -> None:
    """A process that starts at the end of a topic reads what is new from its start, also when it had nothing before."""
    scene.delete(scene.topic)
    scene.create(scene.topic, 1)
    handled: set[Place] = set()
    quick = {"clusters.main.consumer.metadata_refresh": "4s", "handlers.handle.start": "latest"}
    workers = [EngineThread(scene, lambda record: handled.add((record.partition, record.offset)), **quick)]
    try:
        # Where it began is at the end, wherever that was.
        eventually(lambda: scene.produce(1) or handled, every=0.5, why=workers[0].told)
        eventually(scene.is_read, why=workers[0].told)
        workers.append(EngineThread(scene, lambda record: handled.add((record.partition, record.offset)), **quick))
        eventually(lambda: len(scene.members()) == 2, why=workers[1].told)
        scene.admin.grow(scene.topic, 2)
        scene.ready(scene.topic, 2)
        scene._producer = None
        scene.produce_rows([(b"k%d" % number, b"v") for number in range(50)], partition=1)
        eventually(lambda: {(1, offset) for offset in range(50)} <= handled, timeout=40, why=workers[1].told)
    finally:
        for worker in workers:
            worker.end()


def test_a_ladder_that_grows_with_its_topic(scene: DirectFaultScene) -> None:
    """Failing records of new partitions climb the ladder: its topics grow along."""
    run = scene.begin(steps="1s", **REFRESH)
    scene.produce_failing([1] * 6)
    scene.until(lambda: len(scene.done()) == 6)
    scene.admin.grow(scene.topic, 8)
    scene.ready(scene.topic, 8)
    scene._producer = None
    for partition in range(8):
        scene.produce_rows([(b"p%d-%d" % (partition, number), b"1") for number in range(20)], partition=partition)
    scene.until(lambda: len(scene.done()) == 166, timeout=60)
    scene.until(scene.is_finished)
    scene.stop(run)
    assert len(scene.admin.partitions(scene.retry())) == 8
    assert (scene.found().lost, scene.found().duplicates) == (0, 0)


def _delete_while_calls_run(scene: DirectFaultScene) -> set[Place]:
    """Let calls of ten records begin, delete the retry topic, and let them fail; gives their places."""
    gated = scene.produce_failing([1] * 10, b"gate", b"gated")
    scene.until(lambda: len(scene.waiting()) == 10)
    scene.delete_in_use(scene.retry())
    scene.gate.touch()
    return gated


def test_a_deleted_retry_topic_is_a_loss(scene: DirectFaultScene) -> None:
    """By default the run says what was lost and ends; the next run has all that was not."""
    run = scene.begin(steps="10m", lanes=20)
    lost = scene.produce_failing([1] * 6)
    scene.until(lambda: sum(scene.ends(scene.retry()).values()) == 6 and scene.is_read())
    gated = _delete_while_calls_run(scene)
    assert run.ended(60) == 1, run.output
    for part in (scene.retry(), "on_data_loss: continue"):
        assert part in told(run)
    again = scene.begin(steps="1s")
    scene.until(lambda: scene.is_finished() and len(scene.done()) >= 10)
    scene.stop(again)
    assert sorted((call.partition, call.offset) for call in scene.done()) == sorted(gated)
    assert scene.found().lost == len(lost) == 6


def test_asked_to_go_on_without_its_retry_topic(scene: DirectFaultScene) -> None:
    """The run creates the topic again and reads it from its start, early for none."""
    run = scene.begin(steps="2s", lanes=20, LANEWAY_ON_DATA_LOSS="continue")
    scene.produce_failing([1] * 30)
    scene.until(lambda: scene.is_finished() and len(scene.done()) == 30)
    _delete_while_calls_run(scene)
    scene.until(lambda: len(scene.done()) == 40, timeout=60)
    scene.until(scene.is_finished)
    assert sum(scene.ends(scene.retry()).values()) == 10
    scene.stop(run)
    ended = {(call.partition, call.offset): call.end for call in scene.failed()}
    assert min(call.start - ended[call.partition, call.offset] for call in scene.done()) >= 2.0
    assert (scene.found().lost, scene.found().duplicates) == (0, 0)


def test_a_deleted_error_topic(scene: DirectFaultScene) -> None:
    """Rejected records are unfinished while the error topic is gone, the run says so, and they are parked later."""
    run = scene.begin(LANEWAY__CLUSTERS__MAIN__PRODUCER__TIMEOUT="3s")
    # A first one, so that the producer knows the topic.
    scene.produce_failing([-1] * 5)
    scene.until(lambda: len(scene.parked()) == 5 and scene.is_read())
    before = scene.committed()
    scene.delete(scene.error_topic)
    rejected = scene.produce_failing([-1] * 20, keys=b"r")
    fine = scene.produce_failing([0] * 20, keys=b"f")
    scene.until(lambda: {(call.partition, call.offset) for call in scene.done()} == fine)
    scene.until(lambda: f"could not write to {scene.error_topic}" in run.output)
    assert scene.committed() == before
    scene.create(scene.error_topic)
    scene.until(scene.is_read)
    assert sorted(scene.parked()) == sorted(rejected)
    scene.stop(run)
    assert "Traceback" not in run.output
