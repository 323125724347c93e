"""A topic is deleted and created again under the same name: Spark recognises it, and `on_data_loss` decides."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from laneway import App, DirectEngine, Record, SparkEngine, Topic
from laneway.errors import DataLossError
from laneway.settings import load
from support.waiting import eventually

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

OLD, NEW = b"old", b"new"


def produce(scene: Scene, count: int, value: bytes) -> None:
    """Produce to one partition."""
    scene.produce_rows([(b"k%d" % (number % 10), value) for number in range(count)], partition=1)


class Calls:
    """An app whose handler writes down in a file what it gets, wherever it runs."""

    def __init__(self, scene: Scene, seconds: float = 0.0, lanes: int = 2) -> None:
        self._file = str(scene.folder / "calls.txt")
        self.app = App(scene.group)
        file = self._file

        @self.app.handler(Topic(scene.topic), lanes=lanes)
        def handle(record: Record[bytes]) -> None:
            """Take it down."""
            with Path(file).open("a") as calls:
                calls.write(f"{record.value[:3].decode()} {record.partition} {record.offset}\n")
            time.sleep(seconds)

    def of(self, value: bytes) -> list[tuple[int, int]]:
        """Partition and offset of each record with this value, with repeats."""
        try:
            with Path(self._file).open() as calls:
                words = [line.split() for line in calls]
        except FileNotFoundError:
            return []
        return [(int(partition), int(offset)) for kind, partition, offset in words if kind == value.decode()]


def once(scene: Scene, calls: Calls, kind: type[Any] = SparkEngine, **more: Any) -> Any:
    """Run to the end of what waits."""
    settings = load(overrides={"brokers": scene.bootstrap, **more})
    return calls.app.run(kind(settings, once=True))


@pytest.mark.parametrize(
    ("first", "end"),
    [(SparkEngine, 150), (DirectEngine, 50)],
    ids=["inside the new log", "past the new log, after direct"],
)
def test_while_nothing_ran(scene: Scene, spark: object, first: type[Any], end: int) -> None:
    """The next run fails on either engine and changes nothing; asked to go on, it reads the new topic once."""
    calls = Calls(scene)
    produce(scene, 100, OLD)
    once(scene, calls, first)
    before = scene.commits()
    assert before[1][0] == 100
    scene.recreate()
    produce(scene, end, NEW)
    scene.commit_text(before)  # Kafka deletes them with the topic; one that came late, or another broker, leaves them
    before = scene.commits()

    for engine in (SparkEngine, DirectEngine):
        with pytest.raises(DataLossError) as told:
            once(scene, calls, engine)
        for part in (f"{scene.topic}[1]", "100", str(end), "deleted and recreated:", "on_data_loss: continue"):
            assert part in str(told.value)
    assert scene.commits() == before
    assert not calls.of(NEW)

    once(scene, calls, on_data_loss="continue")
    assert sorted(calls.of(NEW)) == [(1, offset) for offset in range(end)]
    assert scene.lag() == 0
    once(scene, calls)  # the loss is dealt with
    assert len(calls.of(NEW)) == end


def test_an_offset_past_the_end_of_the_log(scene: Scene, spark: object) -> None:
    """An offset that the log does not reach is a loss, also when the commit does not name its topic."""
    calls = Calls(scene)
    produce(scene, 50, NEW)
    scene.commit({1: 300})
    with pytest.raises(DataLossError) as told:
        once(scene, calls)
    for part in (f"{scene.topic}[1]", "300", "50", "on_data_loss: continue"):
        assert part in str(told.value)
    assert scene.commits()[1] == (300, "")
    once(scene, calls, on_data_loss="continue")
    assert sorted(calls.of(NEW)) == [(1, offset) for offset in range(50)]
    assert scene.lag() == 0


class Running:
    """A run on a thread of this process."""

    def __init__(self, scene: Scene, calls: Calls, **settings: Any) -> None:
        self.calls = calls
        overrides = {"brokers": scene.bootstrap, **settings}
        self.engine = SparkEngine(load(overrides=overrides), trigger="0s")
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def told(self) -> str:
        """What is known of it."""
        return f"{self.failure!r}, {len(self.calls.of(OLD))} old and {len(self.calls.of(NEW))} new calls"

    def end(self) -> None:
        """Stop it."""
        self.engine.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.calls.app.run(self.engine)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.failure = error


def running(scene: Scene, *, is_busy: bool, **settings: Any) -> Running:
    """A run that has read 100 old records, or is in the middle of them."""
    calls = Calls(scene, 0.5 if is_busy else 0.0)
    produce(scene, 100, OLD)
    run = Running(scene, calls, **settings)
    if is_busy:
        eventually(lambda: len(calls.of(OLD)) >= 2, why=run.told)
    else:
        eventually(lambda: len(calls.of(OLD)) == 100 and scene.lag() == 0, why=run.told)
    return run


@pytest.mark.parametrize(("end", "is_busy"), [(50, False), (150, False), (150, True)])
def test_recreated_at_once_while_running(scene: Scene, spark: object, end: int, *, is_busy: bool) -> None:
    """By default the run ends, also in the middle of a batch, and nothing of the new topic is committed."""
    run = running(scene, is_busy=is_busy)
    scene.recreate()
    produce(scene, end, NEW)
    eventually(lambda: run.failure is not None, timeout=30, why=run.told)
    run.end()
    assert isinstance(run.failure, DataLossError)
    # The end of the new log is that of the moment in which it was recognised.
    assert re.search(rf"{re.escape(scene.topic)}\[1\] is at offset \d+, its log ends at \d+", str(run.failure))
    for part in ("deleted and recreated:", "on_data_loss: continue"):
        assert part in str(run.failure)
    assert scene.commits() == {}


def test_recreated_at_once_and_asked_to_go_on(scene: Scene, spark: object, caplog: pytest.LogCaptureFixture) -> None:
    """With on_data_loss: continue all of the new topic is handled, that is logged once, and the lag is 0 in the end."""
    run = running(scene, is_busy=False, on_data_loss="continue")
    scene.recreate()
    produce(scene, 150, NEW)
    handled_all(scene, run, 150)
    [line] = [line for line in caplog.messages if "recreated" in line]
    assert re.search(rf"{re.escape(scene.topic)}\[1\] is at offset \d+, its log ends at \d+", line)
    assert line.endswith("it is read from its start")


def handled_all(scene: Scene, run: Running, count: int) -> None:
    """Wait until all of the new topic is handled, and end the run."""
    new = {(1, offset) for offset in range(count)}
    eventually(lambda: new == set(run.calls.of(NEW)) and scene.lag() == 0, timeout=60, why=run.told)
    run.end()
    assert run.failure is None


def test_a_new_log_that_ends_inside_a_batch(scene: Scene, spark: object) -> None:
    """A task does not wait for the rest of a batch that was planned on the old topic: it will never come."""
    calls = Calls(scene, 0.05, lanes=10)
    produce(scene, 500, OLD * 7_000)  # large and held in front of the lanes, so that much of them is not read yet
    settings = {"on_data_loss": "continue", "handlers.handle.buffer_records": 10}
    run = Running(scene, calls, **settings)
    eventually(lambda: len(calls.of(OLD)) >= 20, why=run.told)
    scene.recreate()
    produce(scene, 450, NEW)
    handled_all(scene, run, 450)
