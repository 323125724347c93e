"""Records that were to be read are gone: deleted, or their topic was recreated."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

from laneway.events import BatchHandled
from support.direct_faults import EngineThread, told
from support.waiting import eventually

if TYPE_CHECKING:
    from laneway import App, Record, Topic
    from support.direct_faults import DirectFaultScene

pytestmark = [pytest.mark.broker, pytest.mark.slow]

CONTINUE = {"LANEWAY_ON_DATA_LOSS": "continue"}
QUICK = {"LANEWAY__CLUSTERS__MAIN__CONSUMER__METADATA_REFRESH": "500ms"}


def _lost(output: str) -> int:
    """The loss that the summary reports."""
    found = re.search(r"([\d,]+) lost before they could be read", output)
    return int(found[1].replace(",", "")) if found else 0


def test_records_deleted_while_stopped(scene: DirectFaultScene) -> None:
    """They fail the run by name, with nothing committed; or they are counted exactly when that is asked for."""
    scene.produce_rows([(b"k", b"v")] * 100, partition=1)
    scene.finish(seconds=0)
    assert scene.committed()[1] == 100
    scene.produce_rows([(b"k", b"v")] * 100, partition=1)
    scene.admin.delete_records(scene.topic, {1: 150})

    failed = scene.run("--once", seconds=0)
    assert failed.ended() == 1, failed.output
    for part in (f"{scene.topic}[1]", "100", "150", "on_data_loss: continue"):
        assert part in told(failed)
    assert len(scene.calls()) == 100
    assert scene.committed()[1] == 100

    run = scene.finish(seconds=0, **CONTINUE)
    assert {call.offset for call in scene.calls()} == {*range(100), *range(150, 200)}
    assert scene.lag() == 0
    assert _lost(run.output) == 50, run.output


def test_records_that_were_finished_past_the_commit_are_not_lost(scene: DirectFaultScene) -> None:
    """One call blocks and 40 records behind it are finished: when all are deleted before a restart, one is lost."""
    scene.produce_rows([(b"k%d" % number, b"v") for number in range(41)], partition=1)
    gate, handled, lost = threading.Event(), [], []

    def handle(record: Record[bytes]) -> None:
        if record.offset == 0:
            gate.wait(60)
        handled.append(record.offset)

    def declare(app: App, topic: Topic[bytes]) -> Any:
        app.on(BatchHandled)(lambda event: lost.append(event.tally.lost))
        return app.handler(topic, lanes=50)

    first = EngineThread(scene, handle, declare, drain="500ms")
    eventually(lambda: len(handled) == 40, why=first.told)
    first.end()
    gate.set()
    scene.admin.delete_records(scene.topic, {1: 41})
    scene.produce_rows([(b"k", b"v")], partition=1)
    second = EngineThread(scene, handle, declare, on_data_loss="continue")
    eventually(lambda: 41 in handled, why=second.told)
    second.engine.stop()

    assert (second.ended().tally.lost, sum(lost)) == (1, 1)


def test_records_deleted_while_running(scene: DirectFaultScene) -> None:
    """A reader whose records retention takes goes on where the log begins, and counts what is gone."""
    scene.produce_rows([(b"k%d" % (number % 10), b"v" * 1_000) for number in range(60_000)], partition=1)
    run = scene.consume(kind="async", seconds=0, lanes=4, gate=scene.gate, **CONTINUE)
    scene.until(lambda: "batch 1 of" in run.output)
    scene.admin.delete_records(scene.topic, {1: 59_000})
    scene.gate.touch()
    scene.until(scene.is_read)
    scene.stop(run)
    handled = {call.offset for call in scene.calls()}
    print(f"{len(handled)} handled, {_lost(run.output)} lost")
    assert handled >= set(range(59_000, 60_000))
    assert _lost(run.output) == 60_000 - len(handled)
    verdict = scene.verdict()
    assert (verdict.duplicates, verdict.inversions, verdict.overlaps) == (0, 0, 0)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_topic_recreated_while_running(scene: DirectFaultScene, start: str) -> None:
    """With on_data_loss: continue all of the new topic is handled, from its start on."""
    config = f"default:\n  handlers:\n    handle:\n      start: {start}\n"
    run = scene.consume(seconds=0, config=config, life="-1", **CONTINUE, **QUICK)
    # The brokers name partitions as its own before it knows of them: with "latest" it begins where the logs end then.
    scene.until(lambda: len(scene.commits()) == 3)
    scene.produce(300)
    scene.until(scene.is_read)
    scene.delete(scene.topic)
    scene.create(scene.topic)
    scene._producer = None
    scene.produce(120)
    scene.until(lambda: len(scene.calls("-1")) >= 420)
    scene.until(scene.is_read)
    scene.stop(run)
    seen = [(call.partition, call.offset) for call in scene.calls("-1")]
    ends = scene.ends()
    assert sum(ends.values()) == 120
    assert all(seen.count((part, offset)) >= 1 for part, end in ends.items() for offset in range(end))
    assert len(seen) == 420


def test_a_topic_recreated_while_running_is_a_loss(scene: DirectFaultScene) -> None:
    """By default the run ends and says so."""
    run = scene.consume(seconds=0, **QUICK)
    scene.produce_rows([(b"k", b"v")] * 300, partition=1)
    scene.until(scene.is_read)
    scene.delete(scene.topic)
    scene.create(scene.topic)
    scene._producer = None
    scene.produce_rows([(b"k", b"v")] * 120, partition=1)
    assert run.ended(60) == 1, run.output
    for part in (scene.topic, "on_data_loss: continue"):
        assert part in told(run)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_topic_deleted_and_missed_for_a_while(scene: DirectFaultScene, start: str) -> None:
    """The state says what is waited for while it is, and then no more; all of the new topic is handled."""
    handled: list[int] = []
    settings = {
        "on_data_loss": "continue",
        "handlers.handle.start": start,
        "clusters.main.consumer.metadata_refresh": "500ms",
    }
    worker = EngineThread(scene, lambda record: handled.append(record.offset), **settings)
    try:
        eventually(lambda: scene.produce(1) or handled, every=0.5, why=worker.told)
        eventually(scene.is_read, why=worker.told)
        scene.delete(scene.topic)
        waiting = f"waiting for topic {scene.topic}"
        eventually(lambda: worker.engine.life.detail.startswith(waiting), why=worker.told)
        handled.clear()
        scene.create(scene.topic)
        scene._producer = None
        scene.produce(120)
        eventually(lambda: len(handled) == 120, why=lambda: f"{len(handled)} handled, {worker.told()}")
        eventually(lambda: not worker.engine.life.detail, why=worker.told)
    finally:
        worker.end()


def test_a_topic_that_is_missing_at_the_start(scene: DirectFaultScene) -> None:
    """It is waited for by name."""
    scene.delete(scene.topic)
    run = scene.run(seconds=0)
    scene.until(lambda: f"waiting for topic {scene.topic}" in run.output, timeout=30)
    scene.create(scene.topic)
    scene.produce(60)
    scene.until(lambda: len(scene.calls()) == 60, timeout=20)
    scene.stop(run)
    assert scene.verdict().is_clean
