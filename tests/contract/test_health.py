"""Health, `why`, checks and states, on the engines that have them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from laneway import Breaker
from laneway.events import StateChanged
from support.contract import Row
from support.doors import Level, State
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laneway import App, Record
    from support.contract import Cluster, DirectWorld, SparkWorld, World

    Engines = SparkWorld | DirectWorld

LONG = 90.0  # seconds; other jobs share the machine
answers = {"bank": True}


def bank_answers() -> bool:
    """What a configuration names as its check."""
    return answers["bank"]


@pytest.fixture(
    params=[
        pytest.param("direct", marks=[pytest.mark.broker]),
        pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.broker]),
    ]
)
def here(request: pytest.FixtureRequest, tmp_path: Path, cluster: Cluster) -> Engines:
    """Each engine that runs until it is stopped."""
    from support.contract import DirectWorld, SparkWorld

    if request.param == "spark":
        request.getfixturevalue("spark")
        return SparkWorld(tmp_path, request.node.nodeid, cluster)
    return DirectWorld(tmp_path, request.node.nodeid, cluster)


@contextmanager
def running(app: App, engine: Any) -> Iterator[None]:
    """Run in the background, and stop at the end."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            app.run(engine)
        except BaseException as failure:  # noqa: BLE001 - raised on the thread of the test
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        engine.stop()
        thread.join(LONG)
    assert not thread.is_alive()
    assert not failures


def waits_for(gate: Path) -> None:
    """Wait in a handler, wherever it runs."""
    deadline = time.monotonic() + LONG
    while not gate.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def test_a_blocked_call_is_named_here_and_from_another_process(here: Engines, tmp_path: Path) -> None:
    """With its record, its key and how long it has run; when it ends all is well again."""
    topic, app, gate = here.topic(2), here.app(), tmp_path / "gate"

    @app.handler(topic, lanes=4)
    def charge(record: Record[Any]) -> None:
        if record.value == b"slow":
            waits_for(gate)

    here.produce(topic, [Row(b"k", b"slow", (), 1)])
    engine = here.engine(stalled_after="2s")
    assert (engine.health().level, engine.why()) == (Level.OK, [])
    with running(app, engine):
        try:
            [stall] = eventually(lambda: engine.why("2s"), timeout=LONG, why=lambda: str(engine.health()))
            assert (stall.code, stall.topic, stall.partition, stall.offset) == ("running", topic.name, 1, 0)
            assert (stall.handler, stall.key) == ("charge", b"k")
            assert stall.text.startswith("handler 'charge' has been running for ")
            assert [found.place for found in app.why()] == [stall.place]

            health = eventually(lambda: (found := engine.health()).has("stalled") and found, timeout=LONG)
            assert health.level is Level.WARNING
            assert f"{topic.name}[1]@0 (key k) has not moved for" in str(health)

            # Its file is written once a second.
            [process] = eventually(
                lambda: [each for each in _why(app.name, here.bootstrap)["processes"] if each["why"]
                         and each["health"]["level"] == "WARNING"], timeout=LONG,
            )  # fmt: skip
            assert process["state"] == "consuming"
            assert process["why"][0]["sentence"].startswith(f"{topic.name}[1]@0 (key k) has not moved for")
        finally:
            gate.touch()
        eventually(lambda: engine.health().is_ok and not engine.why(), timeout=LONG, why=lambda: str(engine.health()))
    assert engine.health().has("stopped")
    assert _why(app.name, here.bootstrap)["processes"] == []


def test_what_a_record_waits_for_is_named(here: Engines) -> None:
    """Its next try with the last error, an open breaker with what opened it, and one behind another."""
    topic, broken, app = here.topic(1), here.topic(1), here.app()

    @app.handler(topic, lanes=4, retry=_patient())
    def charge(record: Record[Any]) -> None:
        if record.key == b"k":
            raise ConnectionError("the bank is closed")

    @app.handler(broken, lanes=4, breaker=Breaker(2, "1h", "1h"))
    def ship(record: Record[Any]) -> None:
        raise ConnectionError("no courier")

    here.produce(topic, [Row(b"k", b"1"), Row(b"other", b"2"), Row(b"k", b"3")])
    here.produce(broken, [Row(b"a"), Row(b"b"), Row(b"c")])
    engine = here.engine()
    with running(app, engine):
        found = eventually(
            lambda: (seen := {stall.code: stall for stall in engine.why()}).keys() >= {"next-try", "breaker"} and seen,
            timeout=LONG, why=lambda: f"{engine.why()} {engine.health()}",
        )  # fmt: skip
        words = found["next-try"].text
        assert "it waits for its retry, attempt 2, due in " in words
        assert words.endswith("after ConnectionError: the bank is closed")
        assert "the breaker of handler 'ship' has been open for " in found["breaker"].text
        assert "ConnectionError: no courier" in found["breaker"].text
        health = engine.health()
        assert health.has("breaker-open")
        assert health.level is Level.WARNING


def test_nothing_is_begun_while_the_check_says_no(world: World) -> None:
    """Not before its first yes, and not after a no; it continues by itself, and states and reasons say why."""
    topic, app, calls, well = world.topic(1), world.app(), world.recorder, threading.Event()

    @app.handler(topic)
    def work(record: Record[Any]) -> None:
        with calls.call(record):
            pass

    world.produce(topic, [Row(b"k", b"1")])
    with world.running(app, healthy=well.is_set) as engine:
        world.until(lambda: engine.life.state is State.PAUSED)
        assert "returned false" in engine.life.detail
        assert engine.health().has("check")
        assert calls.calls() == []
        well.set()
        world.until(lambda: len(calls.calls()) == 1)
        assert not engine.health().has("check")
        well.clear()
        assert engine.wait_for(State.PAUSED, LONG)
        world.produce(topic, [Row(b"k", b"2")])
        world.let_pass(1)
        assert len(calls.calls()) == 1
        well.set()
        world.until(lambda: len(calls.calls()) == 2)


def test_a_configuration_names_the_check(here: Engines) -> None:
    """As module and function, on every engine, without a word in code."""
    topic, app, calls = here.topic(1), here.app(), here.recorder

    @app.handler(topic)
    def work(record: Record[Any]) -> None:
        with calls.call(record):
            pass

    here.produce(topic, [Row(b"k", b"1")])
    here.settings["health.check"] = f"{__name__}:bank_answers"
    answers["bank"] = False
    engine = here.engine()
    try:
        with running(app, engine):
            eventually(lambda: engine.life.state is State.PAUSED, timeout=LONG)
            assert "the check 'bank_answers' returned false" in str(engine.health())
            assert calls.calls() == []
            answers["bank"] = True
            eventually(lambda: len(calls.calls()) == 1, timeout=LONG)
    finally:
        answers["bank"] = True


def test_an_engine_starts_again_after_it_stopped_listening(world: World, tmp_path: Path) -> None:
    """What was begun is finished first, nothing is read between, and the same states are reported on each engine."""
    topic, app, calls, gate = world.topic(1), world.app(), world.recorder, tmp_path / "gate"
    states: list[str] = []

    @app.handler(topic)
    async def work(record: Record[Any]) -> None:
        with calls.call(record):
            while record.value == b"1" and not gate.exists():  # noqa: ASYNC110 - it may be in another process
                await asyncio.sleep(0.02)

    @app.on(StateChanged)
    def seen(event: StateChanged) -> None:
        states.extend([event.state] if states[-1:] != [event.state] else [])

    world.produce(topic, [Row(b"k", b"1")])
    with world.running(app) as engine:
        world.until(lambda: engine.life.state is State.CONSUMING and calls.calls())
        engine.stop_listening()
        assert engine.wait_for(State.STOPPING, LONG)
        gate.touch()
        assert engine.wait_for(State.STOPPED, LONG)
        assert world.committed(app, topic) == {0: 1}
        world.produce(topic, [Row(b"k", b"2")])
        world.let_pass(1)
        assert len(calls.calls()) == 1
        engine.start()
        world.until(lambda: len(calls.calls()) == 2)
        world.until(lambda: engine.life.state is State.CONSUMING)
        engine.close()
        assert engine.wait_for(State.CLOSED, LONG)
    assert world.committed(app, topic) == {0: 2}
    assert states == [
        "initialising", "starting", "consuming", "stopping", "stopped", "closing",
        "starting", "consuming", "stopping", "closing", "closed",
    ]  # fmt: skip


def _patient() -> Any:
    from laneway import Retry

    return Retry(attempts=3, backoff="20s", backoff_max="20s")


def _why(group: str, bootstrap: str) -> Any:
    """`laneway why --json` of the group, in another process."""
    done = subprocess.run(
        [Path(sys.executable).with_name("laneway"), "why", group, "--brokers", bootstrap, "--json"],
        capture_output=True, text=True, check=False, timeout=LONG,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
