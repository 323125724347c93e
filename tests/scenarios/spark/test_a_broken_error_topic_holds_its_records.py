"""The error topic cannot be written for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from support.waiting import eventually

if TYPE_CHECKING:
    from support.processes import LanewayRun
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def _poison(scene: Scene, size: int = 100) -> set[tuple[int, int]]:
    """Produce 20 poison records among 200 and give their places."""
    start = scene.ends()
    scene.produce_rows(
        [(f"k{number % 20}".encode(), (b"poison" if number % 10 == 0 else b"fine") * size) for number in range(200)]
    )
    return {
        (record.partition, record.offset)
        for record in scene.read(scene.topic)
        if record.raw.startswith(b"poison") and record.offset >= start[record.partition]
    }


def _is_held(
    scene: Scene, run: LanewayRun, before: dict[int, int], poison: set[tuple[int, int]], reasons: set[str]
) -> None:
    """Assert that the run lives, says why it waits, and has not committed past a poison record."""
    eventually(lambda: f"cannot write to {scene.error_topic}" in run.output, why=lambda: f"the reason\n{run.output}")
    assert any(reason in run.output for reason in reasons)
    assert run.is_running
    committed = scene.committed()
    lowest = {partition: min((o for p, o in poison if p == partition), default=None) for partition in before}
    assert all(lowest[partition] is None or committed[partition] <= lowest[partition] for partition in before)


def _ends_well(scene: Scene, run: LanewayRun, poison: set[tuple[int, int]]) -> None:
    eventually(lambda: scene.lag() == 0, timeout=60, why=lambda: f"the end of the lag\n{run.output}")
    assert poison <= set(scene.parked())
    verdict = scene.verdict()
    assert (verdict.lost, verdict.inversions, verdict.overlaps) == (0, 0, 0)
    eventually(lambda: run.output.rstrip().splitlines()[-1].find("cannot write") < 0, timeout=20)
    assert run.is_running


def test_a_deleted_error_topic(scene: Scene) -> None:
    """A poison record is unfinished while the error topic is gone and may not be created; it is parked later."""
    scene.admin.create(scene.error_topic, 3)
    run = scene.run(seconds=0, LANEWAY__CLUSTERS__MAIN__PRODUCER__TIMEOUT="5s", LANEWAY__CREATE_TOPICS="false")
    eventually(lambda: "consuming" in run.output, timeout=90, why=lambda: run.output)
    # A first one, so that the worker's producer knows the topic.
    first = _poison(scene)
    eventually(lambda: scene.lag() == 0, why=lambda: run.output)
    assert set(scene.parked()) == first
    before = scene.ends()
    scene.admin.delete(scene.error_topic)
    eventually(lambda: not scene.admin.partitions(scene.error_topic))
    poison = _poison(scene)
    _is_held(scene, run, before, poison, {"_MSG_TIMED_OUT", "UNKNOWN_TOPIC_OR_PART"})
    scene.admin.create(scene.error_topic, 3)
    _ends_well(scene, run, poison)


def test_an_error_topic_that_takes_only_small_messages(scene: Scene) -> None:
    """A poison record is unfinished while the error topic refuses its size, and parked when the limit is raised."""
    scene.admin.create(scene.error_topic, 3, config={"max.message.bytes": "300"})
    run = scene.run(seconds=0)
    before = scene.ends()
    poison = _poison(scene, 200)
    _is_held(scene, run, before, poison, {"MSG_SIZE_TOO_LARGE"})
    entry = ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, scene.error_topic, incremental_configs=[entry])
    scene.client.incremental_alter_configs([resource])[resource].result()
    _ends_well(scene, run, poison)


def test_a_record_too_large_for_the_error_topic_leaves_a_reference(scene: Scene, spark: object) -> None:
    """Its copy goes without the value, says so, and names where the record is; nothing waits for it."""
    scene.admin.create(scene.error_topic, 3, config={"max.message.bytes": "1500"})
    poison = _poison(scene, 500)
    scene.once(handlers__handle__oversize="reference")
    assert scene.lag() == 0
    assert poison <= set(scene.parked())
    assert scene.verdict().is_clean
    copies = scene.read(scene.error_topic)
    assert {copy.header("laneway-reduced") for copy in copies} == {b"value"}
    assert {copy.raw for copy in copies} == {None}
    assert all(copy.key for copy in copies)
