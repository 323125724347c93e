"""Checks of the machine itself: Python, Java, disk, memory, byte code."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import psutil

from laneway.devkit.broker import MINIMUM_JAVA, find_java
from laneway.devkit.doctor._check import Check, failed, ok, warning
from laneway.errors import BrokerError

__all__ = ["check_byte_code", "check_disk", "check_java", "check_memory", "check_python", "temporary_folder"]

_GIB = 2**30
_OLDEST_PYTHON = (3, 11)


def check_python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Check:
    """Python is new enough."""
    text = ".".join(str(part) for part in version)
    if version[:2] < _OLDEST_PYTHON:
        return failed("Python", f"{text} at {sys.executable}", "install Python 3.11 or newer")
    return ok("Python", f"{text} at {sys.executable}")


def check_java() -> Check:
    """Java is installed and new enough for Spark and for the development broker."""
    try:
        java = find_java()
    except BrokerError as error:
        detail, _, fix = str(error).partition(" Fix: ")
        return failed("Java", detail, fix or f"install Java {MINIMUM_JAVA} or newer")
    return ok("Java", f"{java.major} at {java.executable}")


def check_disk(name: str, folder: Path) -> Check:
    """The disk of *folder* has room for data, checkpoints and shuffles."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free / _GIB
    detail = f"{free:.1f} GiB free for {folder}"
    fix = "free some space, or point LANEWAY_HOME or TMPDIR at another disk"
    if not os.access(existing, os.W_OK):
        return failed(name, f"{existing} cannot be written to", "point LANEWAY_HOME or TMPDIR at another folder")
    if free < 1:
        return failed(name, detail, fix)
    return warning(name, detail, fix) if free < 5 else ok(name, detail)


def check_memory() -> Check:
    """There is enough memory for a broker (1 GiB), a Spark driver (1 GiB) and its workers."""
    memory = psutil.virtual_memory()
    detail = f"{memory.available / _GIB:.1f} GiB of {memory.total / _GIB:.1f} GiB available"
    if memory.available < 4 * _GIB:
        return warning("Memory", detail, "close other programs, or run Kafka and Spark on different machines")
    return ok("Memory", detail)


def check_byte_code() -> Check:
    """Python keeps its compiled byte code, which halves the start of every worker."""
    name = "Byte code"
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        return warning(
            name,
            "PYTHONDONTWRITEBYTECODE is set: each process compiles modules again, so Spark starts more slowly",
            "unset PYTHONDONTWRITEBYTECODE, or compile once with `python -m compileall`",
        )
    return ok(name, "compiled modules are kept")


def temporary_folder() -> Path:
    """The folder for temporary files."""
    return Path(tempfile.gettempdir())
