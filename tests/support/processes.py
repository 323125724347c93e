"""`laneway run` as a user starts it: a process of its own, with the JVM and the Python workers below it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from support.waiting import eventually

if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence

__all__ = ["LanewayRun", "end_processes"]

_TESTS = Path(__file__).parents[1]
_DAEMON = "laneway._engines.spark.daemon"


class LanewayRun:
    """One `laneway run`. Its output goes to a file, so nothing blocks on a full pipe.

    Args:
        arguments: what follows ``laneway run``.
        environ: variables for the app and the settings.
        folder: where the process works and its output is kept.
        command: another command than ``run``.
    """

    def __init__(
        self, arguments: Sequence[str], environ: Mapping[str, str], folder: Path, command: Sequence[str] = ("run",)
    ) -> None:
        self._log = folder / "output.txt"
        known: dict[int, psutil.Process] = {}
        self._known = known
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LANEWAY_")}
        if "LANEWAY_HOME" in os.environ:
            kept["LANEWAY_HOME"] = os.environ["LANEWAY_HOME"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(Path(sys.executable).with_name("laneway")), *command, *arguments],
                cwd=folder,
                env={**kept, "PYTHONPATH": str(_TESTS), "PYTHONUNBUFFERED": "1", **environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A group of its own: a signal to it must not reach the test run.
                start_new_session=True,
            )
        self._driver = psutil.Process(self.process.pid)

    @property
    def output(self) -> str:
        """All that was printed so far, stdout and stderr."""
        return self._log.read_text(errors="replace")

    @property
    def is_running(self) -> bool:
        """Whether the driver lives."""
        return self.process.poll() is None

    def family(self) -> list[psutil.Process]:
        """Every process below the driver that was ever seen and still lives."""
        try:
            for child in self._driver.children(recursive=True):
                self._known.setdefault(child.pid, child)
        except psutil.NoSuchProcess:
            pass
        return [process for process in self._known.values() if _lives(process)]

    def workers(self) -> list[psutil.Process]:
        """The Python processes that run handlers: children of the worker daemon."""
        return [process for process in self.family() if _DAEMON in _words(process) and _is_child_of_daemon(process)]

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the driver alone."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the driver as the kernel would, and leave what is below it alone."""
        self.family()
        self.process.kill()
        self.process.wait()

    def ended(self, timeout: float = 90.0) -> int:
        """Wait for the end; its exit code."""
        self.family()
        eventually(
            lambda: self.process.poll() is not None, timeout=timeout, why=lambda: f"the end of the run\n{self.output}"
        )
        return int(self.process.returncode)

    def close(self) -> None:
        """End whatever is left of it, by process id."""
        left = self.family()
        if self.is_running:
            self.process.kill()
        self.process.wait()
        end_processes(left)


def end_processes(processes: Sequence[psutil.Process]) -> None:
    """Kill these processes; those that are gone are left out."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=10)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _words(process: psutil.Process) -> list[str]:
    """The command line. The JVM's, and that of a child it has only just forked, names the daemon inside a word."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _is_child_of_daemon(process: psutil.Process) -> bool:
    try:
        parent = process.parent()
    except psutil.NoSuchProcess:
        return False
    return parent is not None and _DAEMON in _words(parent)
