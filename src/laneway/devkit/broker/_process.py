"""The processes of a cluster: start, find and stop them, and explain why one died."""

from __future__ import annotations

import subprocess
import time
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["diagnose", "end", "exit_code", "find", "last_lines", "launch", "wait_over"]

_OTHER_DATA = "Fix: start under another --name, or remove that folder to start empty"

# Text in the output of a broker or its JVM, its meaning and the fix; the first match counts.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        "Address already in use",
        "one of its ports was in use when it started",
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

# The kernel ends a killed process at once, unless it hangs in a disk access.
_KILL_LIMIT = timedelta(seconds=10)
_PAUSE = 0.02

# Processes that this interpreter started, kept to reap them and to report their exit codes.
_children: dict[int, subprocess.Popen[bytes]] = {}


def launch(command: Sequence[str], directory: Path, output: Path) -> int:
    """Start *command* in its own session and return its process id.

    The session protects the broker from Ctrl-C in the terminal and from the end of the terminal.
    """
    with output.open("ab") as stream:
        child = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children[child.pid] = child
    return child.pid


def find(pid_file: Path, mark: str) -> psutil.Process | None:
    """The live process of *pid_file*, but only if *mark* is one of its arguments.

    After a crash or a reboot another program may have the process id, and it must not be signalled.
    """
    try:
        pid = int(pid_file.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None
    if exit_code(pid) is not None:
        return None
    try:
        process = psutil.Process(pid)
        words, looks = process.cmdline(), 0
        while not words and looks < 100 and process.status() != psutil.STATUS_ZOMBIE:
            # A process that has just started shows no arguments yet, which does not mean that it ended.
            time.sleep(0.01)
            words, looks = process.cmdline(), looks + 1
        return process if mark in words and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None


def end(processes: Sequence[psutil.Process], patience: timedelta) -> None:
    """Ask the processes to stop, and kill those that still run after *patience*; zero kills at once."""
    alive = list(processes)
    if patience:
        for process in alive:
            _signal(process, "terminate")
            # A suspended process sees the request only when it is resumed.
            _signal(process, "resume")
        alive = wait_over(alive, patience)
    for process in alive:
        _signal(process, "kill")
    wait_over(alive, _KILL_LIMIT)


def wait_over(processes: Sequence[psutil.Process], limit: timedelta) -> list[psutil.Process]:
    """Wait until the processes have ended and return those that still run after *limit*.

    A zombie counts as ended: in containers whose first process reaps late or never, `psutil.wait_procs` would wait for
    the whole limit.
    """
    deadline = time.monotonic() + limit.total_seconds()
    alive = list(processes)
    while True:
        alive = [process for process in alive if not _is_over(process)]
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(_PAUSE)


def exit_code(pid: int) -> int | None:
    """The exit code of a process that this interpreter started, negative for a signal; None if it is unknown."""
    child = _children.get(pid)
    return child.poll() if child else None


def _is_over(process: psutil.Process) -> bool:
    child = _children.get(process.pid)
    if child is not None:
        return child.poll() is not None
    try:
        # The first thread of a JVM is a zombie while the others still close files and ports.
        return not process.is_running() or (process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1)
    except psutil.Error:
        return True


def _signal(process: psutil.Process, name: str) -> None:
    try:
        getattr(process, name)()
    except psutil.NoSuchProcess:
        return


def diagnose(text: str, data: Path, exit_code: int | None = None) -> str:
    """``reason. Fix: …`` for the log *text* of a node that did not start, followed by its last lines."""
    for mark, reason, fix in _KNOWN:
        if mark in text:
            telling = [line for line in text.splitlines() if mark in line][-1:]
            return _joined(reason.format(data=data), fix, telling)
    if exit_code is not None and exit_code < 0:
        reason = f"it was killed by signal {-exit_code}"
        fix = "Fix: start it again; signal 9 often comes from the kernel, when memory runs out"
        return _joined(reason, fix, text.splitlines()[-3:])
    return _joined("it ended by itself", "Fix: see the lines below", text.splitlines()[-12:])


def last_lines(file: Path, count: int) -> list[str]:
    """The last *count* lines of *file*; none if it does not exist."""
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return [line.rstrip("\n") for line in deque(stream, maxlen=count)]
    except FileNotFoundError:
        return []


def _joined(reason: str, fix: str, lines: list[str]) -> str:
    return "\n  ".join([f"{reason}. {fix}", *(line.rstrip() for line in lines)])
