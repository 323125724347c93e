"""One engine object, and so one process, with a Spark session for each of its runs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

TWICE = """
import sys
from confluent_kafka import Producer
from laneway import App, SparkEngine, Topic
from laneway.events import BatchHandled
from laneway.settings import load

brokers, group, topic = sys.argv[1:]
app, producer = App(group), Producer({"bootstrap.servers": brokers})
engine = SparkEngine(load(overrides={"brokers": brokers}), master="local[1]")
app.on(BatchHandled)(lambda _: engine.stop())

@app.handler(Topic(topic))
def handle(record): ...

for number in range(2):
    producer.produce(topic, b"v")
    producer.flush()
    print("handled", app.run(engine).tally.handled, engine.life.state.value, flush=True)
"""


def test_a_run_after_a_stop_has_a_session_of_its_own(scene: Scene) -> None:
    """The first run ends Spark; the second starts it again and handles what came meanwhile."""
    script = scene.folder / "twice.py"
    script.write_text(TWICE)
    words = [sys.executable, str(script), scene.bootstrap, scene.group, scene.topic]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, cwd=scene.folder)
    assert done.stdout.splitlines() == ["handled 1 stopped"] * 2, done.stderr
    assert done.returncode == 0
