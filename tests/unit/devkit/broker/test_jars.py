"""A folder of jars is taken only when it holds exactly the pinned ones."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from laneway.devkit.broker import _jars
from laneway.devkit.broker._jars import _accept, _stage_of, fetch, jar_problems, pinned_jars, require_jars
from laneway.errors import BrokerError

if TYPE_CHECKING:
    from pathlib import Path

PINS = {"a.jar": hashlib.sha256(b"a").hexdigest(), "b.jar": hashlib.sha256(b"b").hexdigest()}


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "kafka" / "4.3.1" / "libs"
    folder.mkdir(parents=True)
    (folder / "a.jar").write_bytes(b"a")
    (folder / "b.jar").write_bytes(b"b")
    return folder


@pytest.fixture(autouse=True)
def pins(monkeypatch):
    monkeypatch.setattr(_jars, "pinned_jars", lambda: PINS)


def test_the_pins_cover_kafka_and_its_logging_bridge():
    """The shipped list names the broker, the bridge and 46 jars in all, each with a whole SHA-256."""
    shipped = pinned_jars()

    assert (46, {64}) == (len(shipped), {len(digest) for digest in shipped.values()})
    assert {"kafka_2.13-4.3.1.jar", "log4j-slf4j-impl-2.25.4.jar", "scala-logging_2.13-3.9.6.jar"} <= shipped.keys()


def test_a_whole_folder_has_no_problems(jars):
    """The pinned jars and nothing else are fine."""
    assert jar_problems(jars) == []


def test_a_tampered_a_missing_and_a_foreign_jar_are_all_named(jars):
    """Every difference is listed, not only the first."""
    (jars / "a.jar").write_bytes(b"x")
    (jars / "b.jar").rename(jars / "c.jar")

    expected = ["b.jar is missing", "c.jar does not belong here", "a.jar has other content than the pinned one"]
    assert expected == jar_problems(jars)


def test_a_tampered_jar_is_refused_before_a_start(jars, tmp_path):
    """A jar of the same size and other content stops the start."""
    (jars / "a.jar").write_bytes(b"x")

    with pytest.raises(BrokerError, match=r"a\.jar has other content.*laneway kafka fetch --force"):
        require_jars(tmp_path)


def test_a_fetched_folder_that_differs_is_not_accepted(jars, tmp_path):
    """What was fetched wrongly never takes the place of the final folder."""
    fetched = tmp_path / "work" / "libs"
    fetched.mkdir(parents=True)
    (fetched / "a.jar").write_bytes(b"evil")

    with pytest.raises(BrokerError, match="fetched Kafka jars are not the pinned ones"):
        _accept(fetched, jars)

    assert (jars / "a.jar").read_bytes() == b"a"


def test_a_broken_fetch_leaves_no_folder(tmp_path, monkeypatch):
    """A fetch that ends half way leaves neither the final folder nor its work folder."""

    def breaks(work, target, progress):
        target.mkdir()
        (target / "a.jar").write_bytes(b"a")
        raise BrokerError("no network")

    monkeypatch.setattr(_jars, "_run_ivy", breaks)

    with pytest.raises(BrokerError, match="no network"):
        fetch(home=tmp_path)

    assert list((tmp_path / "kafka" / "4.3.1").iterdir()) == []


def test_a_forced_fetch_replaces_a_damaged_folder(jars, tmp_path, monkeypatch):
    """A damaged folder is whole after a forced fetch."""
    (jars / "a.jar").write_bytes(b"x")

    def gives(work, target, progress):
        target.mkdir()
        (target / "a.jar").write_bytes(b"a")
        (target / "b.jar").write_bytes(b"b")

    monkeypatch.setattr(_jars, "_run_ivy", gives)

    fetch(home=tmp_path, force=True)

    assert (jar_problems(jars), [path.name for path in jars.parent.iterdir()]) == ([], ["libs"])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("\tfound org.apache.kafka#kafka-clients;4.3.1 in public\n", "resolving"),
        ("\t[SUCCESSFUL ] org.slf4j#slf4j-api;1.7.36!slf4j-api.jar (142ms)\n", "downloading"),
        ("............... (192kB)\n", None),
    ],
)
def test_the_lines_of_ivy_give_the_stage(line, expected):
    """Found modules and downloaded jars are counted, the rest is not."""
    assert expected == _stage_of(line)
