"""Parked records are run again on the direct engine: on a schedule that is too fast, on request, and by two at once."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from laneway import DirectEngine
from laneway.devkit.history import check
from laneway.settings import load
from support.contract import DirectWorld, Row
from support.contract_recorder import overlaps
from support.direct_errors_app import every
from support.doors import GroupOffsets, State
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from laneway import App, Record
    from support.contract import Cluster
    from support.direct_scene import DirectScene, Place
    from support.doors import RunReport
    from support.processes import LanewayRun

pytestmark = [pytest.mark.broker, pytest.mark.slow]

APP = "support.direct_errors_app:app"


class Stage:
    """An app that runs in this process: records from its topic fail, and parked ones wait for the gate."""

    def __init__(self, world: DirectWorld, cluster: Cluster) -> None:
        self.world, self.app, self.topic, self.gate = world, world.app(), world.topic(2), threading.Event()
        self.app.errors = every(1)
        self.engine = DirectEngine(load(overrides={"brokers": cluster.bootstrap}))
        self.report: RunReport | None = None
        self._cluster = cluster
        self._thread = threading.Thread(target=self._work)
        self._run: Callable[[App], RunReport] = self.engine.run
        calls, gate = world.recorder, self.gate

        @self.app.handler(self.topic, lanes=4)
        def handle(record: Record[Any]) -> None:
            is_parked = record.origin is not None
            if not is_parked and record.value != b"fine":
                raise ConnectionError
            with calls.call(record, value=record.value.decode(), parked=is_parked):
                assert not is_parked or gate.wait(60)

    def start(self, *values: str, is_by_hand: bool = False) -> None:
        """Start the app, or one error run, when records of these values are parked."""
        self.produce(*values)
        assert self.world.run(self.app).parked == len(values)
        self._run = self.engine.run_errors if is_by_hand else self.engine.run
        self._thread.start()

    def produce(self, *values: str) -> None:
        self.world.produce(self.topic, [Row(value.encode(), value.encode()) for value in values])

    def called(self, *, parked: bool = True) -> list[str]:
        """Values of the records that were called, from the error topic or from their own."""
        return [call.facts["value"] for call in self.world.recorder.calls() if call.facts["parked"] == parked]

    def has_ended(self, value: str) -> bool:
        """Whether a call of a record with this value is over."""
        return any(call.facts["value"] == value and call.ended < 1 << 60 for call in self.world.recorder.calls())

    def members(self) -> int:
        """How many are in the group that runs over the error topic."""
        return self._cluster.admin.members(f"{self.app.name}.errors")

    def ended(self) -> RunReport:
        """Wait for the end; what was done."""
        self._thread.join(60)
        assert self.report is not None
        return self.report

    def close(self) -> None:
        self.gate.set()
        self.engine.stop()
        if self._thread.ident is not None:
            self._thread.join(60)

    def _work(self) -> None:
        self.report = self._run(self.app)


@pytest.fixture
def stage(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    made = Stage(DirectWorld(tmp_path, request.node.nodeid, cluster), cluster)
    yield made
    made.close()


def test_a_slow_run_is_not_overtaken(stage: Stage) -> None:
    """A run is alone in its group however long it takes, those left out are counted, and the app goes on beside it."""
    values = [f"v{number}" for number in range(6)]
    stage.start(*values)
    eventually(lambda: len(stage.called()) == 6, why="the first run")
    stage.produce("fine", "late")
    eventually(lambda: stage.has_ended("fine"), why="the app beside the run")
    until = time.monotonic() + 3.5
    while time.monotonic() < until:  # three more fall due
        assert stage.members() == 1
        time.sleep(0.1)
    assert sorted(stage.called()) == values
    stage.gate.set()
    eventually(lambda: "late" in stage.called(), why="the second run")
    stage.engine.stop()
    report = stage.ended()

    calls = stage.world.recorder.calls()
    assert sorted(stage.called()) == ["late", *values]
    assert overlaps(calls, lambda call: call.keys) == []
    assert all(call.error is None and call.ended < 1 << 60 for call in calls)
    assert not report.was_forced
    assert (report.errors.tally.handled, report.errors.failed) == (7, 0)
    assert report.errors.runs >= 2
    assert report.errors.left_out >= 3
    assert (report.tally.handled, report.tally.parked) == (1, 1)
    assert stage.world.run_errors(stage.app).read == 0


def test_a_stop_finishes_what_a_run_has_begun(stage: Stage) -> None:
    """Calls under way are waited for and committed, the rest is not begun, and the next run handles just that."""
    values = [f"v{number}" for number in range(200)]
    stage.start(*values)
    eventually(lambda: len(stage.called()) >= 8, why="calls in all lanes")
    stage.engine.stop()
    assert stage.engine.life.wait_for(State.STOPPING, 20)
    time.sleep(0.5)
    assert stage.engine.life.state is State.STOPPING
    stage.gate.set()
    report = stage.ended()

    begun = len(stage.called())
    assert begun < 200
    assert all(call.error is None and call.ended < 1 << 60 for call in stage.world.recorder.calls())
    assert (report.was_forced, report.errors.tally.handled, report.errors.failed) == (False, begun, 0)
    assert stage.members() == 0
    assert stage.world.run_errors(stage.app).handled == 200 - begun
    assert Counter(stage.called()) == Counter(values)


@pytest.mark.parametrize("is_by_hand", [False, True])
def test_a_second_stop_ends_a_run_now(stage: Stage, *, is_by_hand: bool) -> None:
    """Calls that hang are left behind, the group is left at once, and the next run has all of them again."""
    values = [f"v{number}" for number in range(8)]
    stage.start(*values, is_by_hand=is_by_hand)
    eventually(lambda: len(stage.called()) == 8, why="calls in all lanes")
    stage.engine.stop()
    time.sleep(0.5)
    asked = time.monotonic()
    stage.engine.stop()
    report = stage.ended()
    took = time.monotonic() - asked
    print(f"ended {took:.2f} s after the second stop")
    assert took < 2
    assert (report.was_forced, stage.members()) == (True, 0)
    stage.gate.set()
    assert stage.world.run_errors(stage.app).handled == 8
    assert Counter(stage.called()) == dict.fromkeys(values, 2)


def park(scene: DirectScene, count: int, bad: int = 0) -> None:
    """Let the app park so many records, every *bad*-th of which can never succeed."""
    scene.produce_rows(
        (b"k%d" % (number % 60), b"%d%s" % (number, b"bad" if bad and number % bad == 0 else b""))
        for number in range(count)
    )
    run = scene.worker("--once", target=APP)
    assert run.ended() == 0, run.output
    assert sum(scene.ends(scene.error_topic).values()) == count


def by_hand(scene: DirectScene, *arguments: str, **rest: Any) -> LanewayRun:
    """Start `laneway errors run`."""
    gate = scene.folder / "gate"
    return scene.worker(*arguments, target=APP, command="errors run", gate=gate, **rest)


def opened(scene: DirectScene) -> None:
    """Let calls take no time from now on."""
    (scene.folder / "gate").touch()


def begun(scene: DirectScene) -> Counter[Place]:
    """How often each parked record was called."""
    return Counter((event.partition, event.offset) for event in scene.events("begun"))


def everything(scene: DirectScene) -> set[Place]:
    """All places of the topic."""
    return {(partition, offset) for partition, end in scene.ends().items() for offset in range(end)}


def settled(scene: DirectScene) -> dict[int, int]:
    """Offsets of the group that runs over the error topic."""
    offsets = GroupOffsets(scene.options, f"{scene.group}.errors")
    numbers = scene.admin.partitions(scene.error_topic)
    try:  # the coordinator may still load
        return eventually(lambda: [offsets.committed(scene.error_topic, numbers)], why="the group's offsets")[0]
    finally:
        offsets.close()


def copies(scene: DirectScene, *, since: dict[int, int] | None = None, below: dict[int, int] | None = None) -> Any:
    """The copies on the error topic, or those from or below offsets: where each comes from, and how often parked."""
    for record in scene.read(scene.error_topic):
        is_within = below is None or record.offset < below.get(record.partition, 0)
        if is_within and record.offset >= (since or {}).get(record.partition, 0):
            told = dict(record.headers)
            place = int(told["laneway-origin-partition"] or b""), int(told["laneway-origin-offset"] or b"")
            yield place, int(told["laneway-errors"] or b"")


def test_a_run_on_request(scene: DirectScene) -> None:
    """It handles what is parked and ends; what fails is parked again for the next run, and then nothing is left."""
    park(scene, 20, bad=10)
    first = by_hand(scene, "--stop-when-new", "0s")
    assert first.ended() == 0, first.output
    assert "20 read: 18 handled, 0 skipped, 2 parked" in first.output
    assert set(begun(scene).values()) == {1}
    second = by_hand(scene, "--stop-when-new", "0s", "--max-errors", "2")
    assert second.ended() == 0, second.output
    assert "2 read: 0 handled, 2 skipped, 0 parked" in second.output
    third = by_hand(scene)
    assert third.ended() == 0, third.output
    assert "nothing to run: no parked record" in third.output
    assert "Traceback" not in first.output + second.output + third.output
    assert begun(scene) == dict.fromkeys(everything(scene), 1)


def test_a_stop_signal_ends_a_run_on_request_cleanly(scene: DirectScene) -> None:
    """What was begun is finished and committed, the exit code is 0, and the next run calls the others, each once."""
    park(scene, 600)
    run = by_hand(scene, seconds=0.2, lanes=2)
    scene.wait_for(lambda: len(scene.events("begun")) >= 40, why="a run under way")
    scene.dismiss(run)
    done = len(scene.events())
    assert 40 <= len(scene.events("begun")) == done < 600
    assert sum(settled(scene).values()) == done
    assert f"{done} handled" in run.output
    opened(scene)
    assert by_hand(scene).ended() == 0
    assert scene.judged().is_clean
    assert begun(scene) == dict.fromkeys(everything(scene), 1)


def test_two_runs_at_a_time_share_the_records(scene: DirectScene) -> None:
    """Both have work, each parked record is called once, in the order of its key, and both end when all is done."""
    park(scene, 1_200)
    runs = [by_hand(scene, seconds=0.5, lanes=1) for _ in range(2)]
    ours = [len(scene.workers) - 2, len(scene.workers) - 1]
    scene.wait_for(lambda: all(scene.events_of(number) for number in ours), why="work of both")
    opened(scene)
    assert [run.ended() for run in runs] == [0, 0], [run.output for run in runs]
    assert scene.judged().is_clean
    assert begun(scene) == dict.fromkeys(everything(scene), 1)
    assert settled(scene) == scene.ends(scene.error_topic)


def test_two_processes_with_one_schedule_share_the_records(scene: DirectScene) -> None:
    """Runs of both fall due each second while records are parked all the time: each is called once, none is left."""
    rest = {"target": APP, "every": 1, "gate": scene.folder / "gate", "seconds": 0.2, "lanes": 1}
    workers = [scene.worker(**rest) for _ in range(2)]
    # More than one of them can run: both find something whenever they look.
    traffic = scene.traffic(50, burst=25)
    scene.wait_for(lambda: min(len(scene.events_of(number)) for number in range(2)) >= 60, why="runs of both")
    count = traffic.stop()
    opened(scene)
    scene.wait_for(lambda: len(scene.events()) >= count, why="the rest")
    scene.wait_until_idle()
    scene.dismiss_all()
    assert begun(scene) == dict.fromkeys(everything(scene), 1)
    assert scene.judged().is_clean
    assert settled(scene) == scene.ends(scene.error_topic)
    assert all("over the error topics" in worker.output and "failed" not in worker.output for worker in workers)


@pytest.mark.timeout(300)
def test_nothing_is_lost_when_a_run_is_killed(scene: DirectScene) -> None:
    """Killed twice in mid-run: what was committed is not called again, and what fails is parked once in each run."""
    park(scene, 1_200, bad=3)
    values = {(record.partition, record.offset): record.raw or b"" for record in scene.read(scene.topic)}
    bad = {place for place, value in values.items() if value.endswith(b"bad")}
    kept = []
    for _ in range(2):
        run, before = by_hand(scene, seconds=0.3, lanes=4), sum(settled(scene).values())
        scene.wait_for(lambda before=before: sum(settled(scene).values()) >= before + 100, why="commits of a run")
        seen = len(scene.events("begun"))
        scene.wait_for(lambda seen=seen: len(scene.events("begun")) >= seen + 60, why="what is not committed yet")
        run.kill()
        kept.append(({place for place, _ in copies(scene, below=settled(scene))} - bad, begun(scene)))
    opened(scene)
    last = by_hand(scene)
    assert last.ended() == 0, last.output

    done, called = Counter((event.partition, event.offset) for event in scene.events()), begun(scene)
    times = defaultdict(list)
    for place, count in copies(scene):
        times[place].append(count)
    told = Counter(len(times[place]) for place in bad)
    print(f"{sum(done.values()) - len(done)} called twice, {[len(places) for places, _ in kept]} kept, {told} copies")
    assert set(done) == set(values) - bad
    assert all(called[place] == calls[place] for places, calls in kept for place in places)
    for place in values:
        assert sorted(times[place]) == list(range(1, len(times[place]) + 1))
        assert (len(times[place]) > 1) == (place in bad)
    # And one copy of each waits for the next run.
    assert Counter(place for place, _ in copies(scene, since=settled(scene))) == dict.fromkeys(bad, 1)
    for number in range(len(scene.workers)):
        verdict = check(scene.events_of(number))
        assert (verdict.inversions, verdict.overlaps, verdict.duplicates) == (0, 0, 0)
