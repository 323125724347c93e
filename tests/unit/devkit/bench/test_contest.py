"""A peer that cannot be run, judged or fed costs its own run and a bounded time."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from support.bench import peers_run, topics

WORKLOAD, PEER = peers_run.WORKLOADS["w1"], peers_run.PEERS["parallel-consumer"]


@pytest.fixture(name="contest")
def _contest(monkeypatch):
    monkeypatch.setattr(peers_run, "Topics", lambda brokers: None)
    broker = SimpleNamespace(bootstrap="nowhere", pids=(1,))
    options = SimpleNamespace(limit=110.0, records=None)
    return peers_run.Contest(broker, options, {PEER.name: "cannot be run: no jars"})


def test_a_peer_that_cannot_be_had_fails_in_its_own_runs(contest):
    """The reason is in the results, and with it when that was."""
    told = contest.told(WORKLOAD, PEER)
    assert (told["workload"], told["peer"], told["state"]) == ("w1", PEER.name, "failed")
    assert told["why"] == "cannot be run: no jars"
    assert told["measured"]


def test_a_run_that_cannot_be_judged_is_a_failed_one(contest, monkeypatch):
    """An error of the bench itself is reported in the peer's place; without a broker there is no next peer."""

    def run(workload, peer):
        raise TimeoutError("3 records did not come")

    monkeypatch.setattr(contest, "run", run)
    told = contest.told(WORKLOAD, PEER)
    assert (told["state"], told["why"]) == ("failed", "TimeoutError: 3 records did not come")
    contest._broker.pids = ()
    with pytest.raises(RuntimeError, match="the broker has ended"):
        contest.told(WORKLOAD, PEER)


def test_a_workload_that_a_peer_has_no_mode_for_is_left_out(contest):
    """Nothing is started for it."""
    told = contest.told(peers_run.WORKLOADS["w3"], peers_run.PEERS["quix"])
    assert (told["state"], told["why"]) == ("left out", "no batch handler")


def test_what_cannot_be_fetched_stops_no_other_peer(monkeypatch):
    """The reason stands in the place of its command, so it is not tried again for each run."""

    def command_of(peer):
        if peer is PEER:
            raise RuntimeError("no jars")
        return ["python"]

    monkeypatch.setattr(peers_run, "command_of", command_of)
    quix = peers_run.PEERS["quix"]
    assert peers_run.commands_of([PEER, quix]) == {PEER.name: "cannot be run: no jars", "quix": ["python"]}


@pytest.mark.parametrize(
    ("program", "error"),
    [("", None), ("raise SystemExit(3)", RuntimeError), ("import time; time.sleep(60)", subprocess.TimeoutExpired)],
)
def test_a_producer_is_waited_for_but_not_for_ever(program, error, monkeypatch):
    """One that fails or hangs is an error, and none is left behind."""
    started = []

    def fill(*_, **__):
        started.append(subprocess.Popen([sys.executable, "-S", "-c", program]))
        return started[0]

    monkeypatch.setattr(topics, "fill", fill)
    monkeypatch.setattr(topics, "_PATIENCE", 0.2 if "sleep" in program else 30.0)
    if error is None:
        topics.fill_at_once("nowhere", "t", 1, 1)
    else:
        with pytest.raises(error):
            topics.fill_at_once("nowhere", "t", 1, 1)
    left = started[0].poll() is None
    started[0].kill()
    started[0].wait()
    assert not left


def test_figures_of_a_try_do_not_get_beside_the_others(monkeypatch):
    """With fewer records they go to a folder of their own, unless one is named."""

    def folder(*words):
        monkeypatch.setattr(sys, "argv", ["run.py", *words])
        return peers_run.arguments().results

    assert folder() == peers_run.RESULTS
    assert folder("--records", "5") == peers_run.TRIED
    assert str(folder("--records", "5", "--results", "here")) == "here"
