"""Health and `why` against a real broker, in the process itself and from another one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from laneway import App, Breaker, DirectEngine, Topic
from laneway.devkit import broker
from laneway.events import StateChanged
from laneway.settings import load
from support.doors import Admin, Level, State, owned_places, produce_many
from support.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LONG = 90.0  # seconds; other jobs share the machine


class Scene:
    """A topic, an app, and engines that run it in threads."""

    def __init__(self, bootstrap, partitions=2):
        self.bootstrap = bootstrap
        self.options = {"bootstrap.servers": bootstrap}
        self.admin = Admin(self.options)
        self.name = f"it-health-{uuid.uuid4().hex[:12]}"
        self.topic, self.app, self.calls = Topic(f"{self.name}.in"), App(self.name), []
        if partitions:
            self.create(partitions)

    def create(self, partitions=2):
        self.admin.create(self.topic.name, partitions)
        eventually(lambda: len(self.admin.partitions(self.topic.name)) == partitions, timeout=LONG)

    def produce(self, *values):
        produce_many(self.options, self.topic.name, ((value, value) for value in values))

    @property
    def error_topic(self):
        return f"{self.topic.name}.{self.name}.error"

    @contextmanager
    def running(self, *, wait=True, drain="5s", settings=(), **rest):
        overrides = {
            "brokers": self.bootstrap,
            "drain": drain,
            "clusters.main.producer.timeout": "5s",
            **dict(settings),
        }
        engine = DirectEngine(load(overrides=overrides), **rest)
        engine.failure = None

        def run():
            try:
                self.app.run(engine)
            except BaseException as error:  # noqa: BLE001 - looked at by the test
                engine.failure = error

        thread = threading.Thread(target=run)
        thread.start()
        try:
            if wait:
                eventually(lambda: self.owned(engine), timeout=LONG, why=lambda: str(engine.health()))
            yield engine
        finally:
            engine.stop()
            engine.stop()
            thread.join()
        assert engine.failure is None

    @staticmethod
    def owned(engine):
        return owned_places(engine)

    def why(self, *more):
        """`laneway why` of the group, in another process."""
        return subprocess.run(
            [Path(sys.executable).with_name("laneway"), "why", self.name, "--brokers", self.bootstrap, *more],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parent,
            env={name: value for name, value in os.environ.items() if name != "LANEWAY_CONFIG"},
            timeout=LONG,
        )


@pytest.fixture
def scene(cluster):
    return Scene(cluster.bootstrap)


def until(engine, level, code=None):
    """Wait for a health, and give it."""

    def found():
        health = engine.health()
        return health if health.level is level and (code is None or health.has(code)) else None

    return eventually(found, timeout=LONG, why=lambda: f"{level} {code}, and not {engine.health()}")


def timed(ask):
    """Seconds until there is an answer."""
    began = time.monotonic()
    ask()
    return time.monotonic() - began


def test_a_blocked_call_is_named_here_and_from_another_process(scene):
    """Partition, offset, key, age and cause; and from Kafka alone what is finished past it. Then all is well again."""
    gate = threading.Event()

    @scene.app.handler(scene.topic, lanes=8)
    def charge(record):
        if record.raw == b"slow":
            assert gate.wait(LONG)
        else:
            time.sleep(0.005)  # slow enough for lanes of their own

    with scene.running(stalled_after="2s") as engine:
        assert engine.why() == []
        scene.produce(b"slow", *(b"%d" % number for number in range(200)))
        health = until(engine, Level.WARNING, "stalled")
        [stall] = [stall for stall in scene.app.why() if stall.key == b"slow"]
        assert (stall.topic, stall.handler, stall.code) == (scene.topic.name, "charge", "running")
        assert stall.age.total_seconds() >= 2
        assert f"{stall.place} (key slow) has not moved for" in health.reasons[0].text
        assert "handler 'charge' has been running for" in health.reasons[0].text

        def told():
            done = scene.why()
            assert done.returncode == 0, done.stderr
            assert f"process {os.getpid()} of this machine: WARNING, consuming, 2 partitions" in done.stdout
            assert f"  {stall.place} (key slow) has not moved for" in done.stdout
            where = f"partition {stall.partition} of {stall.topic}: offset {stall.offset} (key slow, written"
            return where in done.stdout and "is unfinished while" in done.stdout

        eventually(told, timeout=LONG, why=lambda: scene.why().stdout)
        said = json.loads(scene.why("--json").stdout)
        [cluster] = said["clusters"]
        assert [len(member["partitions"]) for member in cluster["members"]] == [2]
        assert sum(part["lag"] for part in cluster["partitions"]) == 1
        assert sum(sum(numbers.values()) for numbers in said["processes"][0]["lag"].values()) >= 1

        gate.set()
        assert until(engine, Level.OK).reasons == ()
        eventually(lambda: engine.why() == [], timeout=LONG)
    eventually(lambda: "has no members" in scene.why().stdout, timeout=LONG)
    assert "of this machine" not in scene.why().stdout


def test_copies_that_cannot_be_written_are_critical(scene):
    """The error topic takes nothing: named with the reason until it does."""
    scene.admin.create(scene.error_topic, 1, config={"max.message.bytes": "80"})

    @scene.app.handler(scene.topic, lanes=8)
    def charge(record):
        raise ValueError("bad")

    with scene.running(stalled_after="2s") as engine:
        scene.produce(b"poison")
        health = until(engine, Level.CRITICAL, "cannot-write")
        assert f"cannot write to {scene.error_topic}: MessageTooLargeError" in health.reasons[0].text
        [stall] = eventually(scene.app.why, timeout=LONG)
        assert stall.code == "copy"
        assert f"cannot write to {scene.error_topic}" in str(stall)
        eventually(lambda: f"CRITICAL: cannot write to {scene.error_topic}" in scene.why().stdout, timeout=LONG)

        entry = ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, scene.error_topic, incremental_configs=[entry])
        client = AdminClient(scene.options)  # kept: futures die with it
        client.incremental_alter_configs([resource])[resource].result()
        until(engine, Level.OK)
        eventually(lambda: f"error topic {scene.error_topic} has 1 parked record" in scene.why().stdout, timeout=LONG)


def test_a_late_copy_is_a_warning_with_its_reason(scene):
    """After five seconds, though the client tries for thirty; and all is well again when the topic is there."""
    scene.admin.create(scene.error_topic, 1)

    @scene.app.handler(scene.topic, lanes=8)
    def charge(record):
        raise ValueError("bad")

    patient = {"create_topics": False, "clusters.main.producer.timeout": "30s"}
    with scene.running(settings=patient) as engine:
        scene.produce(b"first")
        eventually(lambda: scene.admin.ends(scene.error_topic, [0]) == {0: 1}, timeout=LONG)
        scene.admin.delete(scene.error_topic)
        eventually(lambda: not scene.admin.partitions(scene.error_topic), timeout=LONG)
        scene.produce(b"a", b"b")
        took = timed(lambda: until(engine, Level.WARNING, "copies-late"))
        assert took < 12
        words = f"2 copies or messages for {scene.error_topic} not acknowledged for"
        known = "there is no such topic, and create_topics is false: create it"
        # It is asked for a second before the warning; on a busy machine the answer may come after it.
        eventually(lambda: [each for each in engine.health().reasons if known in each.text], timeout=10)
        [reason] = engine.health().reasons
        assert reason.text.startswith(words)
        assert f"its copy or message is not acknowledged yet: {words}" in str(engine.why()[0])
        scene.admin.create(scene.error_topic, 1)
        until(engine, Level.OK)


def test_an_open_breaker_is_a_warning(scene):
    """While it is open, with what opened it; and no longer when the dependency is back."""
    is_up = threading.Event()

    @scene.app.handler(scene.topic, lanes=8, breaker=Breaker(1, "200ms", "500ms"))
    def charge(record):
        if not is_up.is_set():
            raise ConnectionError("the bank is closed")

    with scene.running(stalled_after="2s") as engine:
        scene.produce(b"a", b"b", b"c")
        health = until(engine, Level.WARNING, "breaker-open")
        assert "ConnectionError: the bank is closed" in str(health)
        causes = eventually(lambda: {stall.code for stall in engine.why()}, timeout=LONG)
        assert causes <= {"breaker", "running"}
        is_up.set()
        until(engine, Level.OK)


def test_a_killed_broker_is_critical_until_it_is_back():
    """Questions are answered at once, also from another process, and the app recovers by itself."""
    with broker.ephemeral() as cluster:
        scene = Scene(cluster.bootstrap)
        handled = []

        @scene.app.handler(scene.topic, lanes=8)
        def charge(record):
            handled.append(record.raw)

        with scene.running() as engine:
            scene.produce(b"before")
            eventually(lambda: handled == [b"before"], timeout=LONG)
            cluster.nodes[0].kill()
            health = until(engine, Level.CRITICAL, "brokers-unreachable")
            assert f"no answer from Kafka at {cluster.bootstrap}" in str(health)
            assert max(timed(ask) for _ in range(20) for ask in (engine.health, engine.why)) < 0.5
            words = f"process {os.getpid()} of this machine: CRITICAL"
            done = eventually(lambda: (said := scene.why()) and words in said.stdout and said, timeout=LONG)
            assert done.returncode == 1
            assert "laneway: no answer from Kafka" in done.stderr
            assert "Traceback" not in done.stderr

            cluster.nodes[0].start()
            until(engine, Level.OK)
            scene.produce(b"after")
            eventually(lambda: handled[-1] == b"after", timeout=LONG)


def test_no_broker_and_no_topic_at_the_start_are_critical(cluster):
    """It waits, and its health says for what; it starts when they come."""
    absent = Scene("127.0.0.1:1", partitions=0)
    absent.app.handler(absent.topic)(lambda record: None)
    with absent.running(wait=False) as engine:
        health = until(engine, Level.CRITICAL, "brokers-unreachable")
        assert "waiting for Kafka at 127.0.0.1:1" in str(health)
    assert (engine.health().level, engine.life.state) == (Level.OK, State.STOPPED)

    missing = Scene(cluster.bootstrap, partitions=0)
    missing.app.handler(missing.topic)(lambda record: None)
    with missing.running(wait=False) as engine:
        health = until(engine, Level.CRITICAL, "topic-missing")
        assert f"waiting for topic {missing.topic.name}" in str(health)
        words = f"  CRITICAL: waiting for topic {missing.topic.name}"
        eventually(lambda: words in missing.why().stdout, timeout=LONG)
        missing.create()
        until(engine, Level.OK)
        eventually(lambda: missing.owned(engine), timeout=LONG)


def test_a_topic_deleted_in_mid_run_is_critical(scene):
    """The brokers answer, and it is not there."""
    scene.app.handler(scene.topic)(lambda record: None)
    with scene.running() as engine:
        scene.admin.delete(scene.topic.name)
        health = until(engine, Level.CRITICAL, "topic-missing")
        assert f"there is no topic {scene.topic.name}" in str(health)


@pytest.mark.parametrize("given", [{"minimum_brokers": 3}, {"settings": {"health.minimum_brokers": 3}}])
def test_fewer_brokers_than_wanted_are_a_warning(scene, given):
    """One broker where there should be three, by argument or in the configuration."""
    scene.app.handler(scene.topic)(lambda record: None)
    with scene.running(**given) as engine:
        health = until(engine, Level.WARNING, "few-brokers")
        assert "1 brokers at " in str(health)
        assert "at least 3 are expected" in str(health)


def test_nothing_is_read_while_the_check_says_no(scene):
    """Not before the first yes, not after a no or while it hangs; the process stays in its group meanwhile."""
    answers, handled, hanging = [False], [], threading.Event()

    @scene.app.handler(scene.topic, lanes=8)
    def charge(record):
        handled.append(record.raw)

    def bank():
        if answers[0] is None:
            hanging.wait(LONG)
            return True
        return answers[0]

    scene.produce(b"first")
    with scene.running(healthy=bank) as engine:
        assert engine.life.wait_for(State.PAUSED, LONG)
        assert "nothing is read, because the check 'bank' returned false" in str(until(engine, Level.WARNING, "check"))
        time.sleep(2)
        assert handled == []
        answers[0] = True
        eventually(lambda: handled == [b"first"], timeout=LONG)
        until(engine, Level.OK)

        answers[0] = None
        assert engine.life.wait_for(State.PAUSED, LONG)
        assert "has not answered for" in engine.life.detail
        scene.produce(b"second")
        time.sleep(2)
        assert handled == [b"first"]
        assert scene.admin.members(scene.name) == 1
        answers[0] = True
        hanging.set()
        eventually(lambda: handled == [b"first", b"second"], timeout=LONG)


def test_a_pause_waits_for_what_runs(scene):
    """Pausing while a call runs, paused when it has ended; health is good, and says so."""
    gate = threading.Event()

    @scene.app.handler(scene.topic, lanes=8)
    def charge(record):
        gate.wait(LONG)

    with scene.running() as engine:
        scene.produce(b"a")
        eventually(lambda: [stall.code for stall in engine.why()] == ["running"], timeout=LONG)
        engine.pause()
        assert engine.life.state is State.PAUSING
        time.sleep(0.5)
        assert engine.life.state is State.PAUSING
        gate.set()
        assert engine.life.wait_for(State.PAUSED, LONG)
        assert [(reason.level, reason.code) for reason in engine.health().reasons] == [(Level.OK, "paused")]
        engine.resume()
        assert engine.life.state is State.CONSUMING


def test_to_stop_listening_and_to_close_are_two_steps(scene):
    """First what was begun is finished and committed, and nothing more is read; then the group is left."""
    gate, handled = threading.Event(), []
    states = []

    @scene.app.handler(scene.topic, lanes=8)
    def charge(record):
        gate.wait(LONG)
        handled.append(record.raw)

    scene.app.on(StateChanged)(lambda event: states.append(State(event.state)))
    with scene.running(drain="1s") as engine:
        scene.produce(b"begun")
        eventually(lambda: [stall.code for stall in engine.why()] == ["running"], timeout=LONG)
        engine.stop_listening()
        assert engine.life.wait_for(State.STOPPING, LONG)
        time.sleep(2)  # longer than a stop may take: this is none
        assert engine.life.state is State.STOPPING
        gate.set()
        assert engine.life.wait_for(State.STOPPED, LONG)
        scene.produce(b"late")
        time.sleep(1)
        assert handled == [b"begun"]
        assert scene.admin.members(scene.name) == 1
        eventually(lambda: _lag(scene) == 1, timeout=LONG)
        engine.close()
        engine.close()
        assert engine.life.wait_for(State.CLOSED, LONG)
        assert scene.admin.members(scene.name) == 0
    assert states[-4:] == [State.STOPPING, State.STOPPED, State.CLOSING, State.CLOSED]


def test_nothing_is_reported_about_partitions_that_are_not_ours(scene):
    """When a second process takes one of two stalled partitions, each reports its own alone."""
    gate = threading.Event()

    @scene.app.handler(scene.topic, lanes=8)
    def charge(record):
        gate.wait(LONG)

    with scene.running(stalled_after="1s", drain="2s") as first:
        scene.produce(*(b"%d" % number for number in range(20)))
        eventually(lambda: {stall.partition for stall in first.why()} == {0, 1}, timeout=LONG)
        with scene.running(stalled_after="1s", drain="2s") as second:
            eventually(lambda: len(scene.owned(first)) == len(scene.owned(second)) == 1, timeout=LONG)
            for engine in (first, second):
                [(_, partition)] = scene.owned(engine)
                eventually(engine.why, timeout=LONG)
                for _ in range(20):
                    assert {stall.partition for stall in engine.why()} <= {partition}
                    stalled = [reason.text for reason in engine.health().reasons if reason.code == "stalled"]
                    assert all(words.startswith(f"{scene.topic.name}[{partition}]") for words in stalled)
                    time.sleep(0.1)
            gate.set()


def test_an_app_named_by_its_module(scene, tmp_path):
    """`laneway why shop:app` knows the delays of the retry topics; a module that is not there is a wrong use."""
    (tmp_path / "shop.py").write_text(
        "from laneway import App, Retry, Topic\n"
        f"app = App({scene.name!r})\n"
        f"@app.handler(Topic({scene.topic.name!r}), retry=Retry.steps('1h', mode='unordered'))\n"
        "def charge(record):\n    raise ValueError('no')\n"
    )
    scene.produce(b"a", b"b")
    words = [str(Path(sys.executable).with_name("laneway"))]
    environ = {**os.environ, "LANEWAY_BROKERS": scene.bootstrap}

    def laneway(*more):
        return subprocess.run(
            [*words, *more], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=LONG
        )

    ran = laneway("run", "shop:app", "--engine", "direct", "--once", "-q")
    assert ran.returncode == 0, ran.stderr
    done = laneway("why", "shop:app")
    assert f"{scene.topic.name}: everything is finished (2 partitions)" in done.stdout
    retry = f"retry topic {scene.topic.name}.{scene.name}.retry.1 holds 2 records, the oldest due in 59m"
    assert retry in done.stdout, done.stdout
    assert laneway("why", "nowhere:app").returncode == 2


def _lag(scene):
    return sum(end - (at or 0) for at, end in scene.admin.lag(scene.name, scene.topic.name).values())
