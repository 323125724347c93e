"""A stop while a handler's dependency is down."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from laneway.devkit.history import check
from support.waiting import eventually

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

APP = "support.breaker_app:app"


def test_a_stop_waits_for_no_probe_and_the_records_are_read_again(scene: Scene) -> None:
    """While it is open hardly anything is called and no processor time is used; nothing is committed or parked."""
    scene.produce(600)
    vain, up = scene.folder / "vain", scene.folder / "up"
    first = scene.run(target=APP, life="-1", vain=vain, up=up)
    eventually(lambda: "the breaker of handler 'handle' opened" in first.output, timeout=90, why=lambda: first.output)
    assert "ConnectionError: the dependency is down" in first.output
    assert "next probe is in 500ms" in first.output
    time.sleep(1)
    workers, called, began = first.workers(), vain.stat().st_size, time.monotonic()
    used = sum(sum(worker.cpu_times()[:2]) for worker in workers)
    time.sleep(4)
    spent = sum(sum(worker.cpu_times()[:2]) for worker in workers) - used
    # A probe every 2 s at most in each process, some of which may have pauses that are still shorter.
    assert vain.stat().st_size - called <= len(workers) * (time.monotonic() - began)
    assert spent < 0.1 * (time.monotonic() - began)
    first.send(signal.SIGTERM)
    assert first.ended(20) == 0, first.output
    eventually(lambda: not first.family(), timeout=20, why=lambda: f"the end of {first.family()}")
    assert scene.calls("-1") == []
    assert (scene.lag(), scene.parked()) == (600, [])
    assert "Traceback" not in first.output
    up.touch()
    scene.finish_on_direct(target=APP, life="-2", vain=vain, up=up)
    assert check(scene.calls("-2"), scene.ends()).is_clean
    assert (scene.lag(), scene.parked()) == (0, [])


def test_a_dependency_that_comes_back_lets_the_batch_go_on(scene: Scene) -> None:
    """The running batch only waited; nothing is repeated or parked, keys keep their order, and the run reports it."""
    scene.produce(600)
    vain, up = scene.folder / "vain", scene.folder / "up"
    run = scene.run("--once", target=APP, vain=vain, up=up)
    eventually(lambda: "the breaker of handler 'handle' opened" in run.output, timeout=90, why=lambda: run.output)
    time.sleep(2)
    assert scene.lag() == 600
    up.touch()
    assert run.ended() == 0, run.output
    assert "the breaker of handler 'handle' closed after" in run.output
    assert scene.verdict().is_clean, scene.verdict()
    assert (scene.lag(), scene.parked()) == (0, [])
