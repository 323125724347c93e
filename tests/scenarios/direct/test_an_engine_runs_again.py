"""The life of an engine object: it may run more than once, and an app finds the engine that is configured."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest

from laneway import App, DirectEngine, Topic
from laneway.settings import load
from support.doors import State
from support.waiting import eventually

pytestmark = [pytest.mark.broker]


@pytest.fixture
def topic(cluster, request):
    """A topic of one partition."""
    name = f"it-{abs(hash(request.node.nodeid)):x}"
    cluster.admin.create(name, 1)
    return name


def produce(cluster, topic, value):
    cluster.producer.produce(topic, value)
    assert cluster.producer.flush(20) == 0


def an_app(topic, seen):
    app = App(f"{topic}.app")

    @app.handler(Topic(topic))
    def handle(record):
        seen.append(record.value)

    return app


@contextmanager
def in_a_thread(run):
    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join(30)
    assert not thread.is_alive()


def test_an_app_runs_on_the_engine_that_the_environment_names(cluster, topic, monkeypatch, tmp_path):
    """`App.run()` went to Spark whatever `LANEWAY_ENGINE` said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LANEWAY_ENGINE", "direct")
    monkeypatch.setenv("LANEWAY_BROKERS", cluster.bootstrap)
    seen = []
    app = an_app(topic, seen)
    produce(cluster, topic, b"1")

    with in_a_thread(app.run):
        eventually(lambda: seen == [b"1"], timeout=30)
        app.engine().stop()


def test_a_pause_outlives_a_stop_and_is_kept(cluster, topic):
    """The next run reads nothing until it is resumed, and its health says so; after that it has forgotten nothing."""
    seen = []
    app = an_app(topic, seen)
    engine = DirectEngine(load(overrides={"brokers": cluster.bootstrap}))
    with in_a_thread(lambda: app.run(engine)):
        assert engine.life.wait_for(State.CONSUMING, 30)
        engine.pause()
        assert engine.life.wait_for(State.PAUSED, 30)
        engine.stop()
    produce(cluster, topic, b"1")

    with in_a_thread(lambda: app.run(engine)):
        assert engine.life.wait_for(State.PAUSED, 30)
        eventually(lambda: {reason.code for reason in engine.health().reasons} == {"paused"}, timeout=30)
        eventually(lambda: app.why() == [] and engine._clusters[0].owned, timeout=30)
        assert seen == []
        engine.resume()
        eventually(lambda: seen == [b"1"], timeout=30)
        engine.close()
    assert engine.life.state is State.CLOSED


def test_a_stop_before_a_run_ends_that_run_and_no_other(cluster, topic):
    """It may come a moment too early; then it must not be lost."""
    seen = []
    app = an_app(topic, seen)
    engine = DirectEngine(load(overrides={"brokers": cluster.bootstrap}))
    produce(cluster, topic, b"1")
    engine.stop()

    assert app.run(engine).tally.handled == 0
    with in_a_thread(lambda: app.run(engine)):
        eventually(lambda: seen == [b"1"], timeout=30)
        engine.stop()
