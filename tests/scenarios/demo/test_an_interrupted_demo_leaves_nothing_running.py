"""Ctrl-C ends the demo and everything that it started."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from support.waiting import eventually

LANEWAY = str(Path(sys.executable).with_name("laneway"))

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _signals_count():
    """A test run in the background of a shell has Ctrl-C ignored, and its children would inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("nothing said yet", marks=pytest.mark.soak),
        "Kafka is up",
        pytest.param("produced", marks=pytest.mark.soak),
        pytest.param("demo on Spark: starting", marks=pytest.mark.soak),
        "demo on Spark: consuming",
    ],
)
def test_an_interrupted_demo_leaves_nothing_running(moment):
    """Whatever it is doing, the demo ends with code 130 and no trace, and its broker, JVM and workers end with it."""
    command = [LANEWAY, "demo", "--records", "40000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        demo = psutil.Process(running.pid)
        seen = ""
        if moment == "nothing said yet":
            eventually(lambda: any(child.name() == "java" for child in _below(demo)), timeout=30, why="a first child")
        else:
            for line in running.stdout:
                seen += line
                if line.startswith(moment):
                    break
            time.sleep(1.5 if "consuming" in moment else 0.3)  # into the middle of what it announced
        children = _below(demo)
        running.send_signal(signal.SIGINT)
        children += [child for child in _below(demo) if child not in children]
        rest, _ = running.communicate(timeout=60)

    text = seen + rest
    assert ("Traceback" in text, running.returncode) == (False, 130), text
    assert children
    eventually(
        lambda: not any(map(_is_alive, children)), timeout=15, why=lambda: f"{list(filter(_is_alive, children))}"
    )


def _below(process):
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _is_alive(process):
    try:
        # A zombie is over all the same.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
