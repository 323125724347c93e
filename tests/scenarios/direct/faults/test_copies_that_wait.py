"""The error topic does not take copies: the run says so soon, keeps the whole record, and recovers by itself."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from support.direct_scene import QUICK
from support.doors import BrokerUnavailableError
from support.fault_scene import FaultScene
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.contract import Cluster
    from support.processes import LanewayRun

pytestmark = [pytest.mark.broker, pytest.mark.slow]


class WaitScene(FaultScene):
    """Runs of one engine whose copies have nowhere to go."""

    engine = ""

    def run(self, *arguments: str, **rest: object) -> LanewayRun:
        """Start a run of the engine."""
        return super().run("--engine", self.engine, *arguments, **{**QUICK, **rest})

    def start(self, **rest: object) -> LanewayRun:
        """Start the app, and see that what it rejects is parked."""
        run = self.begin(steps="10ms", mode="blocking", **rest)
        self.reject(b"first")
        self.until(lambda: len(self.parked()) == 1)
        return run

    def parked(self) -> list[tuple[int, int]]:
        """As ever; a topic that has just been created has no leader for a moment."""
        try:
            return super().parked()
        except BrokerUnavailableError:
            return []

    def reject(self, value: bytes, headers: object = None) -> None:
        """Produce a record that is rejected."""
        self.producer.produce(self.topic, b"-1 " + value, b"k", headers=headers)
        assert self.producer.flush(20) == 0

    def begun(self, count: int) -> float:
        """Wait until so many calls have failed; the time."""
        self.until(lambda: len(self.failed()) >= count)
        return time.monotonic()

    def is_gone(self, topic: str) -> bool:
        """Whether a deleted topic is really away."""
        return not self.admin.partitions(topic)

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it is away."""
        self.admin.delete(topic)
        eventually(lambda: self.is_gone(topic), why=f"the end of {topic}")

    def says(self, run: LanewayRun, pattern: str, timeout: float) -> None:
        """Wait until a run says something."""
        eventually(lambda: re.search(pattern, run.output), timeout=timeout, why=lambda: f"{pattern}\n{run.output}")


@pytest.fixture(params=["direct", pytest.param("spark", marks=pytest.mark.spark)])
def scene(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[WaitScene]:
    """A topic of three partitions."""
    made = WaitScene(cluster.bootstrap, tmp_path, request.node.nodeid)
    made.engine = request.param
    made.create(made.topic)
    yield made
    made.close()


def test_a_deleted_error_topic_is_created_again(scene: WaitScene) -> None:
    """In a running app as at a start, and a line says so. What failed meanwhile is parked there."""
    run = scene.start()
    scene.delete(scene.error_topic)
    scene.reject(b"second")
    scene.says(run, f"created topic {scene.error_topic} again: it was deleted", 20)
    scene.until(lambda: scene.is_finished(scene.topic), timeout=45)
    assert [copy.raw for copy in scene.read(scene.error_topic)] == [b"-1 second"]
    assert f"created topic {scene.error_topic} with 3 partitions" in run.output
    scene.stop(run)


@pytest.mark.engine_neutral
def test_a_missing_error_topic_that_may_not_be_created_is_waited_for(scene: WaitScene) -> None:
    """A running app says so after five seconds, though its client gives up after thirty; a restart says so, too."""
    scene.create(scene.error_topic)
    forbidden = {"LANEWAY__CREATE_TOPICS": "false"}
    run = scene.start(**forbidden)
    scene.delete(scene.error_topic)
    scene.reject(b"second")
    failed = scene.begun(2)
    late = (
        rf"1 copy or message for {scene.error_topic} not acknowledged for [5-9]s: there is no such topic, and create_to"
    )
    scene.says(run, late, 15)
    assert time.monotonic() - failed < 10
    assert scene.is_gone(scene.error_topic)

    run.kill()
    again = scene.run(target="support.fault_app:app", gate=scene.gate, steps="10ms", mode="blocking", **forbidden)
    scene.says(again, rf"waiting for topic {scene.error_topic} \(create_topics is false\)", 30)
    scene.create(scene.error_topic)
    scene.until(lambda: scene.is_finished(scene.topic), timeout=45)
    assert [copy.raw for copy in scene.read(scene.error_topic)] == [b"-1 second"]
    scene.stop(again)


@pytest.mark.engine_neutral
def test_a_copy_is_written_whole_when_the_limit_is_back(scene: WaitScene) -> None:
    """While the error topic takes less than the record, its key waits and the run says what to do."""
    headers = [("a", b"1"), ("a", None), ("b", b"\xff" * 50)]
    run = scene.start()
    scene.alter(scene.error_topic, max_message_bytes=300)
    scene.reject(b"x" * 400, headers)
    scene.begun(2)
    scene.says(run, rf"cannot write to {scene.error_topic}: MSG_SIZE_TOO_LARGE", 10)
    time.sleep(2)  # several tries: nothing smaller may be written
    assert len(scene.parked()) == 1
    scene.alter(scene.error_topic, max_message_bytes=10_000)
    scene.until(lambda: scene.lag() == 0 and len(scene.parked()) == 2, timeout=30)
    (copy,) = [copy for copy in scene.read(scene.error_topic) if copy.raw == b"-1 " + b"x" * 400]
    assert [header for header in copy.headers if not header[0].startswith("laneway-")] == headers
    assert copy.header("laneway-reduced") is None
    assert copy.header("laneway-error-trace")
    assert "raise max.message.bytes of the topic; the records wait" in run.output
    scene.stop(run)


@pytest.mark.engine_neutral
def test_a_record_of_the_largest_size_is_parked_whole(scene: WaitScene) -> None:
    """The error topic takes what its source takes, and the headers; the client has no limit of its own."""
    scene.alter(scene.topic, max_message_bytes=3_000_000)
    run = scene.start()
    assert int(scene.option(scene.error_topic, "max.message.bytes")) == 3_000_000 + 64 * 1024
    producer = Producer({"bootstrap.servers": scene.bootstrap, "message.max.bytes": 10_000_000})
    producer.produce(scene.topic, b"-1 " + b"y" * 2_999_800, b"k")
    assert producer.flush(20) == 0
    scene.until(lambda: scene.lag() == 0 and len(scene.parked()) == 2, timeout=40)
    copies = scene.read(scene.error_topic)
    assert sorted(len(copy.raw or b"") for copy in copies) == [8, 2_999_803]
    assert {copy.header("laneway-reduced") for copy in copies} == {None}
    scene.stop(run)
