"""CPU time: of the machine, of processes, and what others took of it."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["QUIET", "Foreign", "Tree", "peak_rss_mb", "wait_until_quiet"]

QUIET = 0.25
"""Cores that others may take before a run counts as disturbed."""
_TICKS = os.sysconf("SC_CLK_TCK")


class Tree:
    """CPU time and peak memory of a process and its descendants, by sampling."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu: dict[int, float] = {}
        self.rss_mb = 0.0

    @property
    def cpu_seconds(self) -> float:
        return sum(self._cpu.values())

    def sample(self) -> None:
        """Look once; memory shared between processes is counted for each of them."""
        rss = 0
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self._pid)
            for process in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    times = process.cpu_times()
                    self._cpu[process.pid] = times.user + times.system
                    rss += process.memory_info().rss
        self.rss_mb = max(self.rss_mb, rss / 1e6)


def peak_rss_mb(pid: int) -> float:
    """The peak memory of a process that runs. What its end reports is of no use: fork hands the parent's peak on."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


class Foreign:
    """How many cores other processes than ours take, since it was made."""

    def __init__(self, ours: Iterable[int]) -> None:
        self._ours = [os.getpid(), *ours]
        self._began = time.monotonic()
        self._machine, self._own = busy(), cpu_of(self._ours)

    def cores(self, more: float = 0.0) -> float:
        """Give them; *more* is the CPU time of further processes of ours."""
        spent = busy() - self._machine - (cpu_of(self._ours) - self._own) - more
        return max(0.0, spent / (time.monotonic() - self._began))


def busy() -> float:
    """Seconds that all cores together have worked since the machine started."""
    user, nice, system, _idle, _wait, irq, soft = map(int, Path("/proc/stat").read_text().split(maxsplit=8)[1:8])
    return (user + nice + system + irq + soft) / _TICKS


def cpu_of(pids: Collection[int]) -> float:
    """CPU time of processes of ours, with that of their children that have ended."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            total += sum(psutil.Process(pid).cpu_times()[:4])
    return total


def wait_until_quiet(ours: Collection[int], patience: float) -> float:
    """Wait until others take little of the machine for two seconds, at most *patience* seconds; give what they take."""
    end = time.monotonic() + patience
    calm = 0
    while True:
        foreign = Foreign(ours)
        time.sleep(1)
        cores = foreign.cores()
        calm = calm + 1 if cores <= QUIET else 0
        if calm >= 2 or time.monotonic() >= end:
            return cores
