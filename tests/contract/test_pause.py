"""What a pause says and does, on the engines that have batches and members of a group."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.contract import Row
from support.doors import State
from support.waiting import eventually

if TYPE_CHECKING:
    from laneway import Record
    from support.contract import DirectWorld, SparkWorld

    Worlds = tuple[SparkWorld | DirectWorld, DirectWorld]


def test_a_pause_is_paused_only_when_nothing_runs(worlds: Worlds, tmp_path: Path) -> None:
    """While a call runs it is pausing; then paused, and what comes waits for the resume."""
    here, _ = worlds
    topic, app, recorder = here.topic(1), here.app(), here.recorder
    gate = str(tmp_path / "gate")

    @app.handler(topic)
    def work(record: Record[Any]) -> None:
        with recorder.call(record):
            deadline = time.monotonic() + 30
            while record.value == b"slow" and not Path(gate).exists() and time.monotonic() < deadline:
                time.sleep(0.02)

    engine = here.engine()
    failures: list[BaseException] = []

    def control() -> None:
        try:
            eventually(recorder.calls, timeout=40)
            engine.pause()
            for _ in range(20):
                assert engine.life.state is State.PAUSING
                time.sleep(0.02)
            Path(gate).touch()
            eventually(lambda: engine.life.state is State.PAUSED, timeout=20)
            assert all(call.end < float("inf") for call in recorder.calls())
            here.produce(topic, [Row(b"k", b"more")])
            time.sleep(0.5)
            assert len(recorder.calls()) == 1
            engine.resume()
            assert engine.life.state is State.CONSUMING
            eventually(lambda: len(recorder.calls()) == 2, timeout=20)
            # A second pause is confirmed on its own account.
            engine.pause()
            eventually(lambda: engine.life.state is State.PAUSED, timeout=20)
        except BaseException as failure:  # noqa: BLE001 - raised on the thread of the test
            failures.append(failure)
        finally:
            Path(gate).touch()
            engine.stop()

    here.produce(topic, [Row(b"k", b"slow")])
    thread = threading.Thread(target=control)
    thread.start()
    app.run(engine)
    thread.join()
    assert not failures


def test_a_pause_does_not_end_a_run_that_handles_what_there_is(worlds: Worlds, tmp_path: Path) -> None:
    """After the resume the rest is handled, too."""
    here, _ = worlds
    topic, app, recorder = here.topic(1), here.app(), here.recorder
    gate = str(tmp_path / "gate")

    @app.handler(topic)
    def work(record: Record[Any]) -> None:
        deadline = time.monotonic() + 30
        while record.offset == 0 and not Path(gate).exists() and time.monotonic() < deadline:
            recorder.note("waits")
            time.sleep(0.02)

    engine = here.engine(once=True)
    failures: list[BaseException] = []

    def control() -> None:
        try:
            eventually(recorder.notes, timeout=40)
            engine.pause()
            Path(gate).touch()
            eventually(lambda: engine.life.state in (State.PAUSED, State.STOPPED), timeout=20)
            time.sleep(0.5)
        except BaseException as failure:  # noqa: BLE001 - raised on the thread of the test
            failures.append(failure)
        finally:
            Path(gate).touch()
            engine.resume()

    here.produce(topic, [Row(b"k%d" % number) for number in range(300)])
    thread = threading.Thread(target=control)
    thread.start()
    report = app.run(engine)
    thread.join()
    assert not failures
    assert report.tally.handled == 300
