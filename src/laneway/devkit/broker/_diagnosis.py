"""Turn what a broker wrote before it died into a reason and a fix."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["diagnose", "last_lines"]

_OTHER_DATA = "Fix: start under another --name, or remove that folder to start empty"

# Text a broker or its JVM writes, what it means, and what to do; the first match counts.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        "Address already in use",
        "one of its ports was taken while it started",
        "Fix: start again with --port 0 for any free port",
    ),
    ("No space left on device", "the disk is full", "Fix: free some space, or set LANEWAY_HOME to another disk"),
    ("UnsupportedClassVersionError", "the Java is too old", "Fix: set JAVA_HOME to a Java 17 or newer"),
    ("Invalid cluster.id", "the data folder {data} belongs to another cluster", _OTHER_DATA),
    ("Stored node id", "the data folder {data} belongs to another node", _OTHER_DATA),
    ("InconsistentClusterIdException", "the data folder {data} belongs to another cluster", _OTHER_DATA),
    ("No MetadataVersion with", "the data folder {data} was written by another Kafka version", _OTHER_DATA),
    ("Failed to acquire lock on file", "another broker uses {data}", "Fix: stop it, or start under another --name"),
    ("Could not reserve enough space", "there is not enough memory for its heap", "Fix: close other programs"),
    ("insufficient memory for the Java", "there is not enough memory", "Fix: close other programs"),
    ("OutOfMemoryError", "its heap is too small", "Fix: give java_options=('-Xmx2g',), or load it less"),
    ("ConfigException", "a setting is wrong", "Fix: correct the setting named below"),
    ("Unrecognized VM option", "a JVM option is wrong", "Fix: correct java_options or JAVA_TOOL_OPTIONS"),
)


def diagnose(text: str, data: Path, exit_code: int | None = None) -> str:
    """Give ``reason. Fix: …`` for the log *text* of a node that did not start, followed by its last lines."""
    for mark, reason, fix in _KNOWN:
        if mark in text:
            telling = [line for line in text.splitlines() if mark in line][-1:]
            return _joined(reason.format(data=data), fix, telling)
    if exit_code is not None and exit_code < 0:
        reason = f"it was ended from outside by signal {-exit_code}"
        fix = "Fix: start it again; signal 9 without a sender is the kernel, short of memory"
        return _joined(reason, fix, text.splitlines()[-3:])
    return _joined("it ended by itself", "Fix: see the lines below", text.splitlines()[-12:])


def last_lines(file: Path, count: int) -> list[str]:
    """Give the last *count* lines of *file*; none when there is no such file."""
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return [line.rstrip("\n") for line in deque(stream, maxlen=count)]
    except FileNotFoundError:
        return []


def _joined(reason: str, fix: str, lines: list[str]) -> str:
    return "\n  ".join([f"{reason}. {fix}", *(line.rstrip() for line in lines)])
