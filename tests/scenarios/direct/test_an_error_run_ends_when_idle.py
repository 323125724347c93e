"""A run over error topics whose partitions another process holds, and does not work on."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer

from laneway import App, ErrorConsumer, Record, Reject
from support.contract import DirectWorld, Row

if TYPE_CHECKING:
    from pathlib import Path

    from support.contract import Cluster

pytestmark = pytest.mark.broker


def test_a_run_that_is_given_nothing_ends(cluster: Cluster, tmp_path: Path) -> None:
    """After `stop_when_idle`, without a call, and the next run, which has the partition, takes the record up."""
    world = DirectWorld(tmp_path, "idle", cluster)
    app = App(world.app().name, errors=ErrorConsumer(stop_when_idle="2s", stop_when_new="0s"))
    topic, calls = world.topic(1), world.recorder

    @app.handler(topic)
    async def handle(record: Record[bytes]) -> None:
        with calls.call(record):
            if len(calls.calls()) < 2:
                raise Reject("no")

    world.produce(topic, [Row(b"k", b"v")])
    assert world.run(app).parked == 1

    other = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"{app.name}.errors",
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
        }
    )
    is_over, is_held = threading.Event(), threading.Event()

    def hold() -> None:
        other.subscribe([f"{topic.name}.{app.name}.error"], on_assign=lambda *_: is_held.set())
        while not is_over.is_set():
            other.poll(0.1)
        other.close()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert is_held.wait(60)
        began = time.monotonic()
        assert world.run_errors(app).calls == 0
        print(f"the run ended after {time.monotonic() - began:.1f} s")
        assert time.monotonic() - began >= 2
        assert len(calls.calls()) == 1
    finally:
        is_over.set()
        thread.join()
    assert world.run_errors(app).handled == 1
    assert len(calls.calls()) == 2
