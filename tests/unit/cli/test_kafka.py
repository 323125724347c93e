"""What `laneway kafka` says of itself."""

from __future__ import annotations

from typer.testing import CliRunner

from laneway.cli._kafka import app
from laneway.devkit.broker import _plan


def told(*words):
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_start_says_that_it_restarts_dead_nodes():
    """It is how a node that was killed comes back."""
    assert "only its dead nodes are started" in told("start", "--help")


def test_status_says_how_to_remove_an_ephemeral_cluster_that_died(tmp_path, monkeypatch):
    """One that a reboot or a kill ended is listed with its log until it is stopped."""
    monkeypatch.setenv("LANEWAY_HOME", str(tmp_path))
    directory = tmp_path / "clusters" / "it"
    _plan.save(_plan.make("it", directory, tmp_path / "data", nodes=1, port=9092, ephemeral=True), directory)

    assert "no node is running; to remove it: laneway kafka stop --name it" in told("status")
    assert "is not running" in told("stop", "--name", "it")
    assert "There is no cluster" in told("status")
