"""The archive of classes: built once, really used by later nodes, and no hindrance when it does not fit."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil
import pytest

from laneway.devkit import broker

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the jars and nothing else."""
    shutil.copytree(broker.jars_directory(broker.home_directory()), broker.jars_directory(tmp_path))
    return tmp_path


def cpu_seconds(running: broker.Running) -> float:
    """What the only node has used so far."""
    times = psutil.Process(running.pids[0]).cpu_times()
    return times.user + times.system


def test_a_node_starts_from_the_archive(home: Path) -> None:
    """Its process has the archive mapped; before there is one, it starts all the same."""
    assert broker.find_archive(home) is None
    with broker.ephemeral(home=home) as running:
        before = cpu_seconds(running)
    path = broker.build_archive(home)
    assert broker.find_archive(home) == path
    built = path.stat().st_mtime_ns
    with broker.ephemeral(home=home) as running:
        assert str(path) in Path(f"/proc/{running.pids[0]}/maps").read_text(encoding="ascii")
        print(f"a node is ready after {before:.1f} CPU seconds, and {cpu_seconds(running):.1f} with the archive")
    assert broker.build_archive(home) == path
    assert path.stat().st_mtime_ns == built  # once
    assert [each.name for each in path.parent.iterdir() if each.suffix not in (".jsa", ".lock")] == ["libs"]


def test_an_archive_that_does_not_fit_is_no_hindrance(home: Path) -> None:
    """After an update of Java, or half a download of a cache."""
    path = broker.jars_directory(home).parent / f"classes-java-{broker.find_java().version}.jsa"
    path.write_bytes(b"not an archive" * 1000)
    with broker.ephemeral(home=home) as running:
        host, _, port = running.bootstrap.partition(":")
        assert len(broker.ask_brokers(host, int(port))) == 1
        assert str(path) not in Path(f"/proc/{running.pids[0]}/maps").read_text(encoding="ascii")
