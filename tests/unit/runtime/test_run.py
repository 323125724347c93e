"""What all engines have in common, with a driver that reads nothing."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest

from laneway import App, Topic
from laneway._runtime import run as _run
from laneway._runtime.lifecycle import State
from laneway._runtime.run import AppEngine
from laneway.errors import DeclarationError, EngineError, SettingsError
from laneway.events import BatchHandled, StateChanged
from laneway.observe import Tally
from laneway.settings import load
from support.waiting import eventually


class Driver:
    """Is finished when a test says so, and keeps what it was asked for."""

    def __init__(self, reporter):
        self.reporter = reporter
        self.asked = []
        self.is_quiet, self.is_over, self.is_finished, self.is_committed = True, False, True, True
        self.failure = None

    def prepare(self):
        return True

    def start(self):
        self.asked.append("start")

    def watched(self):
        return ()

    def look(self):
        if self.failure is not None:
            raise self.failure

    def pause(self, *, on):
        self.asked.append("pause" if on else "resume")

    def stop(self):
        self.asked.append("stop")

    def end(self, until):
        self.asked.append("end by force" if until.is_forced else "end")
        self.reporter.batch("orders", Tally(handled=1))
        return True


class Engine(AppEngine):
    """An engine of such drivers."""

    def __init__(self, settings=None, *, healthy=None, listener=None):
        super().__init__(
            settings or load(), {}, once=False, healthy=healthy, minimum_brokers=None, stalled_after=None,
            listener=listener,
        )  # fmt: skip
        self.made, self.opened = [], 0
        self.is_finished = True

    def _open(self, run, stack):
        self.opened += 1

    def _driver(self, run):
        driver = Driver(run.reporter)
        driver.is_finished = self.is_finished
        self.made.append(driver)
        return driver

    def drivers(self, plans, reporter):
        return ()


@pytest.fixture(autouse=True)
def topics(monkeypatch, tmp_path):
    """Topics are there without a broker, and status files are not written at home."""
    monkeypatch.setattr(_run, "prepare_topics", lambda *_: True)
    monkeypatch.setenv("LANEWAY_HOME", str(tmp_path))


@pytest.fixture
def app():
    made = App("billing")
    made.handler(Topic("orders"))(print)
    return made


@contextmanager
def running(app, engine):
    """In the background; gives where its report, or what it raised, will be."""
    found = []

    def run():
        try:
            found.append(app.run(engine))
        except Exception as error:  # noqa: BLE001 - looked at by the test
            found.append(error)

    made, thread = len(engine.made), threading.Thread(target=run)
    thread.start()
    try:
        eventually(lambda: len(engine.made) > made and "start" in engine.made[-1].asked)
        yield found
    finally:
        if not found:  # one that is over would take it for a stop of its next run
            engine.stop()
            engine.stop()
        thread.join(30)
    assert not thread.is_alive()


def test_a_stop_finishes_what_was_begun_and_reports_it(app):
    """In this order, and with the states that subscribers and the listener hear of."""
    states, heard = [], []
    app.on(StateChanged)(lambda event: states.append(event.state))

    class Listener:
        def event(self, event):
            heard.append(event)

        def note(self, words):
            pass

    engine = Engine(listener=Listener())
    with running(app, engine) as found:
        engine.stop()
        eventually(lambda: found)
    assert engine.made[0].asked == ["start", "stop", "end"]
    assert states == ["initialising", "starting", "consuming", "stopping", "closing", "stopped"]
    assert [event.state for event in heard if isinstance(event, StateChanged)] == states
    assert [event.tally.handled for event in heard if isinstance(event, BatchHandled)] == [1]
    assert (found[0].tally.handled, found[0].batches, found[0].was_forced) == (1, 1, False)


def test_a_second_stop_waits_for_nothing(app):
    """What is not finished then is not waited for, and the report says so."""
    engine = Engine()
    engine.is_finished = False
    with running(app, engine) as found:
        engine.stop()
        assert engine.wait_for(State.STOPPING, 30)
        engine.stop()
        eventually(lambda: found)
    assert found[0].was_forced


def test_an_engine_that_stopped_listening_starts_again(app):
    """With a new driver in the same run: hooks and session are opened once."""
    engine = Engine()
    with running(app, engine) as found:
        engine.stop_listening()
        assert engine.wait_for(State.STOPPED, 30)
        assert engine.made[0].asked == ["start", "stop"]  # still in its group
        engine.start()
        eventually(lambda: len(engine.made) == 2 and engine.life.state is State.CONSUMING)
        assert engine.made[0].asked == ["start", "stop", "end"]
        engine.close()
        assert engine.wait_for(State.CLOSED, 30)
    assert engine.opened == 1
    assert (found[0].tally.handled, found[0].was_forced) == (2, False)


def test_stopped_is_said_only_when_all_is_committed(app):
    """Another process may take over from here."""
    engine = Engine()
    with running(app, engine):
        engine.made[0].is_committed = False
        engine.stop_listening()
        assert engine.wait_for(State.STOPPING, 30)
        time.sleep(0.2)
        assert engine.life.state is State.STOPPING
        engine.made[0].is_committed = True
        assert engine.wait_for(State.STOPPED, 30)


def test_a_start_while_nothing_was_stopped(app):
    """Changes nothing in a run, and is an error without one."""
    engine = Engine()
    with pytest.raises(EngineError, match=r"no run is active.* app\.run\(engine\)"):
        engine.start()
    with running(app, engine):
        engine.start()
        time.sleep(0.1)
        assert len(engine.made) == 1
        assert engine.life.state is State.CONSUMING


def test_a_pause_holds_from_the_start(app):
    """One that was asked for before the run is in force before anything is read."""
    engine = Engine()
    engine.pause()
    thread = threading.Thread(target=lambda: app.run(engine))
    thread.start()
    try:
        eventually(lambda: engine.life.state is State.PAUSED)
        assert engine.made[0].asked == ["pause", "start"]
        engine.resume()
        assert engine.wait_for(State.CONSUMING, 30)
    finally:
        engine.stop()
        thread.join(30)


def test_a_bad_check_pauses_and_a_good_one_resumes(app):
    """By itself, and a missing one is an error before anything runs."""
    well = threading.Event()
    engine = Engine(healthy=well.is_set)
    with running(app, engine):
        eventually(lambda: engine.life.state is State.PAUSED)
        assert engine.health().has("check")
        well.set()
        assert engine.wait_for(State.CONSUMING, 30)
        assert engine.made[0].asked == ["pause", "start", "resume"]
    with pytest.raises(SettingsError, match=r"health\.check"):
        app.run(Engine(load(overrides={"health.check": "os:no_such_function"})))


def test_a_failure_ends_the_run_with_its_error(app):
    """After the driver was ended; the engine may run again."""
    engine = Engine()
    with running(app, engine) as found:
        engine.made[0].failure = EngineError("the query failed")
        eventually(lambda: found)
    assert str(found[0]) == "the query failed"
    assert engine.made[0].asked == ["start", "end"]
    assert engine.life.state is State.STOPPED
    with running(app, engine):
        pass


def test_an_app_without_handlers_is_refused():
    """Before anything begins."""
    with pytest.raises(DeclarationError, match="has no handlers"):
        App("billing").run(Engine())
