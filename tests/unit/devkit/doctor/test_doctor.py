"""The checks tell what is wrong and what to do, and never raise."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

import pytest

from laneway.devkit.broker import jars_directory
from laneway.devkit.doctor import Check, _spark, checks
from laneway.devkit.doctor._kafka import check_jars, check_port, check_reachable, parse_address
from laneway.devkit.doctor._machine import check_byte_code, check_disk, check_java, check_memory, check_python
from laneway.devkit.doctor._spark import check_maven_folder, check_worker_python, poms_without_jars

if TYPE_CHECKING:
    from pathlib import Path


def test_an_old_python_fails():
    """Python 3.10 is too old."""
    assert (check_python((3, 10, 1)).status, check_python((3, 11, 0)).status) == ("failed", "ok")


def test_a_missing_java_fails_with_a_fix(tmp_path, monkeypatch):
    """What the broker would say is split into detail and fix."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    check = check_java()

    assert (check.status, "no Java" in check.detail, check.fix.startswith("install a Java")) == ("failed", True, True)


@pytest.mark.parametrize(("free", "expected"), [(0.5, "failed"), (2, "warning"), (50, "ok")])
def test_the_disk_is_judged_by_its_free_space(tmp_path, monkeypatch, free, expected):
    """Under 1 GiB fails, under 5 GiB warns."""
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": free * 2**30}))

    assert expected == check_disk("Disk", tmp_path / "new").status


def test_little_memory_warns(monkeypatch):
    """Under 4 GiB available is a warning."""
    memory = type("Memory", (), {"available": 3 * 2**30, "total": 8 * 2**30})
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)

    assert check_memory().status == "warning"


def test_switched_off_byte_code_warns(monkeypatch):
    """The variable is named together with what it costs."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    assert check_byte_code().status == "warning"


def test_missing_jars_warn_and_damaged_jars_fail(tmp_path):
    """Jars that are not fetched yet are no failure; wrong ones are."""
    before = check_jars(tmp_path).status
    jars_directory(tmp_path).mkdir(parents=True)

    assert (before, check_jars(tmp_path).status) == ("warning", "failed")


def test_a_foreign_holder_of_the_port_is_named(tmp_path):
    """A port held by another program is a warning that names it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        check = check_port(tmp_path, server.getsockname()[1])

    assert (check.status, "process" in check.detail) == ("warning", True)


@pytest.mark.parametrize(
    ("address", "detail"),
    [
        ("nowhere.invalid:9092", "host name is unknown"),
        ("9092", "is not host:port"),
        ("127.0.0.1:0", "is not host:port"),
    ],
)
def test_a_wrong_address_fails_with_its_reason(address, detail):
    """The reason differs for a wrong name and a wrong port."""
    check = check_reachable(address)

    assert (check.status, detail in check.detail) == ("failed", True)


def test_a_refused_connection_says_that_nothing_listens():
    """A closed port and a silent one give different answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    assert check_reachable(f"127.0.0.1:{port}").detail == "nothing listens there"


def test_an_address_may_be_version_six():
    """Brackets around an IPv6 host are taken off."""
    assert parse_address("[::1]:9092") == ("::1", 9092)


def test_a_missing_worker_python_fails(monkeypatch):
    """A PYSPARK_PYTHON that is not there fails before Spark would."""
    monkeypatch.setenv("PYSPARK_PYTHON", "no-such-python")

    assert check_worker_python().status == "failed"


def test_a_worker_python_of_another_version_fails(tmp_path, monkeypatch):
    """Driver and workers must be the same minor version."""
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.9\n")
    other.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))

    check = check_worker_python()

    assert (check.status, sys.executable in check.fix) == ("failed", True)


def pom(folder: Path, text: str = "<project/>") -> Path:
    folder.mkdir(parents=True)
    file = folder / "a-1.pom"
    file.write_text(text)
    return file


def test_a_half_filled_maven_folder_warns(tmp_path):
    """A pom without its jar is found; a parent pom and a whole module are not."""
    half = pom(tmp_path / "g" / "half" / "1")
    pom(tmp_path / "g" / "parent" / "1", "<packaging>pom</packaging>")
    pom(tmp_path / "g" / "whole" / "1").with_suffix(".jar").write_bytes(b"")

    assert ([half], "warning") == (poms_without_jars(tmp_path), check_maven_folder(tmp_path).status)


def test_every_check_has_a_name_and_every_problem_a_fix(tmp_path, monkeypatch):
    """All checks run on an empty home, with brokers given, and each that is not ok says what to do."""
    monkeypatch.setattr(_spark, "_ask", lambda python, code: ("4.3.0", ""))
    monkeypatch.setenv("HOME", str(tmp_path))

    found = checks("nonsense, also nonsense", tmp_path)

    assert len({check.name for check in found}) == 13
    assert [check for check in found if check.status != "ok" and not check.fix] == []
    assert all(isinstance(check, Check) for check in found)
