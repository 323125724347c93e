"""A class-data archive that halves the JVM's start."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

from laneway._home import home_directory

__all__ = ["archive_options", "archive_path", "build_archive"]

_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""The JVM carries no records, so its peak speed hardly matters, and a quick start does."""


@cache
def _java_version() -> str:
    from pyspark.find_spark_home import _find_spark_home  # noqa: F401 - fails early when pyspark is broken

    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=20).stderr
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return "".join(character if character.isalnum() else "-" for character in text.splitlines()[0])


def archive_path() -> Path:
    """Where the archive of this Java and this Spark is kept."""
    return home_directory() / "spark" / f"classes-{version('pyspark')}-{_java_version()}.jsa"


def archive_options() -> list[str]:
    """Options of the JVM: quick to start, and with the archive when it has been built."""
    path = archive_path()
    return [*_FLAGS, *([f"-XX:SharedArchiveFile={path}", "-Xshare:auto", "-Xlog:cds=off"] if path.exists() else [])]


def build_archive() -> Path:
    """Run one small query in a JVM that writes down the classes it loaded; takes about 20 s, once."""
    path = archive_path()
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    script = Path(__file__).with_name("_warmup.py")
    subprocess.run(
        [sys.executable, str(script), " ".join((*_FLAGS, f"-XX:ArchiveClassesAtExit={fresh}", "-Xlog:cds=off"))],
        check=True,
        capture_output=True,
        timeout=300,
    )
    fresh.replace(path)
    return path
