"""Java is found, and one that is missing or too old is explained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laneway.devkit.broker import find_java
from laneway.devkit.broker._java import major_version
from laneway.errors import BrokerError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ("command not understood", None),
    ],
)
def test_the_major_version_is_read_from_every_form(text, expected):
    """Old, new and early-access version texts all give the major version."""
    assert expected == major_version(text)


def fake_java(folder: Path, version: str) -> Path:
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n", encoding="ascii")
    script.chmod(0o755)
    return script


def test_a_java_on_the_path_is_found(tmp_path, monkeypatch):
    """Without JAVA_HOME the first java on the PATH counts."""
    script = fake_java(tmp_path, "21.0.1")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(script.parent))

    java = find_java()

    assert (script, 21) == (java.executable, java.major)


def test_java_home_goes_before_the_path(tmp_path, monkeypatch):
    """JAVA_HOME wins over the PATH."""
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", "21.0.1").parent))
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "17.0.2").parent.parent))

    assert find_java().major == 17


def test_a_java_that_is_too_old_is_refused(tmp_path, monkeypatch):
    """Java 11 is refused with its version, the needed one, and a fix."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(fake_java(tmp_path, "11.0.2").parent))

    with pytest.raises(BrokerError, match=r"is version 11; Kafka needs 17\. Fix: install a Java 17"):
        find_java()


def test_a_missing_java_is_explained(tmp_path, monkeypatch):
    """Without any java the message says so and how to install one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(BrokerError, match=r"There is no Java: .* Fix: install"):
        find_java()


def test_a_wrong_java_home_is_named(tmp_path, monkeypatch):
    """A JAVA_HOME without bin/java is named, not skipped."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(BrokerError, match=f"JAVA_HOME is {tmp_path}, but"):
        find_java()
