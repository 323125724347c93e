"""The health of an app on Spark when its broker fails or its event loop is blocked."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from laneway.devkit import broker
from support.contract import Cluster, Row, SparkWorld
from support.doors import Admin, Level
from support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from laneway import Record

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

LONG = 90.0  # seconds; other jobs share the machine


def test_a_killed_broker_is_critical_until_it_is_back(spark: Any, tmp_path: Path) -> None:
    """The driver notices by itself, with no batch running, and sees it again."""
    from confluent_kafka import Producer

    with broker.ephemeral() as running:
        options = {"bootstrap.servers": running.bootstrap}
        world = SparkWorld(tmp_path, "killed-broker", Cluster(running.bootstrap, Admin(options), Producer(options)))
        topic, app, calls = world.topic(1), world.app(), world.recorder

        @app.handler(topic)
        def work(record: Record[Any]) -> None:
            with calls.call(record):
                pass

        world.produce(topic, [Row(b"k", b"1")])
        engine = world.engine()
        thread = threading.Thread(target=app.run, args=(engine,))
        thread.start()
        try:
            eventually(lambda: len(calls.calls()) == 1, timeout=LONG)
            eventually(lambda: engine.health().is_ok, timeout=LONG)
            running.nodes[0].kill()
            health = eventually(
                lambda: (found := engine.health()).level is Level.CRITICAL and found, timeout=LONG,
                why=lambda: str(engine.health()),
            )  # fmt: skip
            assert health.has("brokers-unreachable")
            assert running.bootstrap in str(health)
            running.nodes[0].start()
            eventually(lambda: engine.health().is_ok, timeout=LONG, why=lambda: str(engine.health()))
        finally:
            engine.stop()
            thread.join(LONG)
        assert not thread.is_alive()


def test_a_blocked_event_loop_is_found_out(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    """An async handler that blocks its loop keeps it from answering; the record in work is named all the same."""
    world, gate = SparkWorld(tmp_path, "blocked-loop", cluster), tmp_path / "gate"
    topic, app = world.topic(1), world.app()

    @app.handler(topic, lanes=4)
    async def charge(record: Record[Any]) -> None:
        deadline = time.monotonic() + LONG
        while not gate.exists() and time.monotonic() < deadline:
            time.sleep(0.02)  # noqa: ASYNC251 - the fault

    world.produce(topic, [Row(b"k", b"1"), Row(b"other", b"2")])
    engine = world.engine()
    thread = threading.Thread(target=app.run, args=(engine,))
    thread.start()
    try:
        stall = eventually(
            lambda: next((each for each in engine.why() if each.code == "loop"), None), timeout=LONG,
            why=lambda: f"{engine.why()} {engine.health()}",
        )  # fmt: skip
        assert stall.key == b"k"
        assert stall.words.startswith(
            "the event loop does not answer, because something blocks it; handler 'charge' has been running for "
        )
    finally:
        gate.touch()
        engine.stop()
        thread.join(LONG)
    assert not thread.is_alive()
