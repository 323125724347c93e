"""A topic gets more partitions while it is read."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from laneway import App, DirectEngine, Record, SparkEngine, Topic
from laneway.settings import load
from support.waiting import eventually

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_growth_from_three_to_eight(scene: Scene) -> None:
    """Every record of partitions that are added is handled, also when new groups start at the end of a topic."""
    scene.produce(300)
    run = scene.run(
        seconds=0.002,
        config="default:\n  handlers:\n    handle:\n      start: latest\n",
    )
    scene.until(lambda: sum(scene.committed().values()) == 300)
    scene.admin.grow(scene.topic, 8)
    eventually(lambda: len(scene.admin.partitions(scene.topic)) == 8)
    # A producer that knew the topic before would not know of the new partitions for minutes.
    scene._producer = None
    for partition in range(8):
        rows = [(f"p{partition}-{number % 7}".encode(), b"v") for number in range(200)]
        scene.produce_rows(rows, partition=partition)
    scene.until(lambda: scene.lag() == 0)
    run.send(signal.SIGTERM)
    assert run.ended() == 0, run.output

    calls = scene.calls()
    ends = scene.ends()
    handled = {(call.partition, call.offset) for call in calls}
    assert [ends[partition] for partition in range(3, 8)] == [200] * 5
    assert handled >= {(partition, offset) for partition in range(3, 8) for offset in range(200)}
    # The old partitions began at their ends: only what came after is handled.
    assert len(handled) == len(calls) == 8 * 200
    assert scene.verdict().inversions == 0


ONCE_MORE = [
    pytest.param(SparkEngine, SparkEngine, id="Spark"),
    pytest.param(DirectEngine, SparkEngine, id="Spark after direct"),
    pytest.param(SparkEngine, DirectEngine, id="direct after Spark"),
]


@pytest.mark.parametrize(("first", "then"), ONCE_MORE)
def test_growth_while_nothing_runs(scene: Scene, spark: object, first: type[Any], then: type[Any]) -> None:
    """A partition that is new to a known group is read from its start, also with ``start: latest``, on every engine."""
    app = App(scene.group)

    @app.handler(Topic(scene.topic))
    def nothing(record: Record[bytes]) -> None:
        """Take it."""

    settings = load(overrides={"brokers": scene.bootstrap, "handlers.nothing.start": "latest"})
    scene.produce(10)
    assert app.run(first(settings, once=True)).tally.handled == 0
    scene.admin.grow(scene.topic, 4)
    eventually(lambda: len(scene.admin.partitions(scene.topic)) == 4)
    scene._producer = None
    scene.produce_rows([(b"k", b"v")] * 5, partition=3)
    assert app.run(then(settings, once=True)).tally.handled == 5
    assert scene.committed()[3] == 5
