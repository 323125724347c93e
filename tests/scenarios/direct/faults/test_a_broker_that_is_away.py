"""The only broker is not there: at the start, in mid-run, while copies are written."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from laneway.devkit import broker
from laneway.devkit.history import check
from support.direct_faults import DirectFaultScene, cpu_share
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.slow]

AWAY = 10.0  # seconds
MEASURED = 5.0  # of them, once the buffered records are handled


@pytest.fixture
def own() -> Iterator[broker.Running]:
    """A broker of the test's own, which it may take away."""
    with broker.ephemeral() as running:
        yield running


@pytest.fixture
def scene(own: broker.Running, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[DirectFaultScene]:
    """On that broker."""
    made = DirectFaultScene(own.bootstrap, tmp_path, request.node.nodeid)
    made.create(made.topic)
    yield made
    made.close()


def test_a_broker_that_comes_late(own: broker.Running, scene: DirectFaultScene) -> None:
    """A run waits for its broker and says so, and consumes within 10 s of its coming."""
    scene.produce(300)
    node = own.nodes[0]
    node.stop()
    run = scene.run(seconds=0)
    eventually(lambda: "waiting for Kafka at" in run.output, why=lambda: run.output)
    assert scene.bootstrap in run.output
    time.sleep(5)
    assert run.is_running, run.output
    node.start()
    came = time.monotonic()
    scene.until(scene.calls, timeout=30)
    took = time.monotonic() - came
    print(f"first call {took:.1f} s after the broker answered")
    assert took < 10
    scene.until(lambda: scene.verdict().lost == 0)
    scene.stop(run)
    assert scene.verdict().is_clean
    assert "Traceback" not in run.output


def test_a_broker_that_goes_and_comes(own: broker.Running, scene: DirectFaultScene) -> None:
    """A broker killed for 10 s: nothing is lost or out of order, nothing spins meanwhile, and it goes on by itself."""
    rows = [(b"k%d" % (number % 200), b"0") for number in range(4_000)]
    scene.produce_rows(rows)
    run = scene.consume(seconds=0.02, lanes=4)
    scene.after_calls(500)
    node = own.nodes[0]
    node.kill()
    gone = time.monotonic()
    eventually(lambda: not _grows(scene), timeout=60, every=0.5)
    share = cpu_share(run, MEASURED)
    print(f"{share:.1%} of a core while the broker is away")
    time.sleep(max(0.0, AWAY - (time.monotonic() - gone)))
    assert run.is_running, run.output
    eventually(lambda: "no answer from Kafka" in run.output, timeout=60, why=lambda: run.output)
    told = [line for line in run.output.splitlines() if "no answer from Kafka" in line]
    assert len(told) == len(set(told)), told  # once, as long as it is the same; it is away for less than 30 s
    assert "|FAIL|" not in run.output  # the client's own lines come by the dozen
    node.start()
    scene.produce_rows(rows)
    scene.until(lambda: scene.verdict().lost == 0)
    scene.until(scene.is_read)
    scene.stop(run)
    verdict = scene.verdict()
    print(verdict)
    assert (verdict.lost, verdict.inversions, verdict.overlaps) == (0, 0, 0)
    assert share < 0.1


@pytest.mark.parametrize("mode", ["unordered", "ordered"])
def test_a_broker_that_goes_while_copies_are_written(own: broker.Running, scene: DirectFaultScene, mode: str) -> None:
    """Every record ends once, as handled or parked, and waiting for copies does not spin."""
    values = [b"9" if number % 7 == 0 else b"1" if number % 5 == 0 else b"0" for number in range(1_000)]
    scene.produce_rows((b"k%d" % (number % 200), value) for number, value in enumerate(values))
    run = scene.begin(steps="1s", seconds=0.05, mode=mode)
    scene.until(lambda: len(scene.failed()) > 50)
    node = own.nodes[0]
    node.kill()
    time.sleep(AWAY - MEASURED)
    share = cpu_share(run, MEASURED)
    print(f"{share:.1%} of a core while copies wait")
    assert run.is_running, run.output
    node.start()
    scene.until(scene.is_finished)
    scene.stop(run)
    found = scene.found()
    print(found)
    assert (found.lost, found.duplicates) == (0, 0)
    firsts = check([call for call in [*scene.done(), *scene.failed()] if call.attempt == 1])
    assert (firsts.inversions, firsts.overlaps) == (0, 0)
    assert share < 0.1


def test_a_stop_while_the_broker_is_away(own: broker.Running, scene: DirectFaultScene) -> None:
    """What was begun is finished, the process ends in time, and the next run repeats what could not be committed."""
    scene.produce(300)
    run = scene.consume(seconds=0.1, lanes=4)
    scene.after_calls(50)
    node = own.nodes[0]
    node.kill()
    asked = time.monotonic()
    run.send(signal.SIGTERM)
    code = run.ended(60)
    print(f"ended with {code} after {time.monotonic() - asked:.1f} s")
    assert code in (0, 3), run.output
    assert time.monotonic() - asked < 30 + 2
    assert "Traceback" not in run.output
    node.start()
    scene.finish(seconds=0)
    verdict = scene.verdict()
    assert (verdict.lost, verdict.inversions, verdict.overlaps) == (0, 0, 0)


def _grows(scene: DirectFaultScene) -> bool:
    """Whether handlers still run."""
    before = len(scene.calls())
    time.sleep(0.4)
    return len(scene.calls()) > before
