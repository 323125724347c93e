"""A class-data archive that halves the JVM's start."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from functools import cache
from importlib.metadata import version
from pathlib import Path

from laneway._home import home_directory

__all__ = ["archive_options", "archive_path", "build_archive"]

_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""The JVM carries no records, so start-up time matters more than peak speed."""

_UNUSED = 30 * 86_400.0  # seconds after which the archive of another environment is removed; each takes 160 MB

_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""The JVM ignores an archive that does not fit; do not log that."""


@cache
def _spark_home() -> str:
    from pyspark.find_spark_home import _find_spark_home

    return str(_find_spark_home())


@cache
def _java_version() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=20).stderr
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return "".join(character if character.isalnum() else "-" for character in text.splitlines()[0])


def archive_path() -> Path:
    """Path of the archive for this Java and this Spark.

    The JVM refuses an archive of jars in another folder, so each virtual environment has its own.
    """
    place = hashlib.sha256(_spark_home().encode()).hexdigest()[:8]
    return home_directory() / "spark" / f"classes-{version('pyspark')}-{_java_version()}-{place}.jsa"


def archive_options() -> list[str]:
    """JVM options for a quick start, with the archive if it was built."""
    path = archive_path()
    try:
        os.utime(path)
    except OSError:
        return [*_FLAGS]
    return [*_FLAGS, f"-XX:SharedArchiveFile={path}", "-Xshare:auto", *_QUIET]


def build_archive() -> Path:
    """Run a small query in a JVM that records its loaded classes; takes about 20 s, once."""
    path = archive_path()
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.glob("classes-*.jsa"):
        if time.time() - old.stat().st_mtime > _UNUSED:
            old.unlink()
    fresh = path.with_suffix(f".{os.getpid()}")
    script = Path(__file__).with_name("class_archive_run.py")
    subprocess.run(
        [sys.executable, str(script), " ".join((*_FLAGS, f"-XX:ArchiveClassesAtExit={fresh}", *_QUIET))],
        check=True,
        capture_output=True,
        timeout=300,
    )
    fresh.replace(path)
    return path
