"""CPU time and memory of a process tree."""

from __future__ import annotations

import contextlib
import threading
from typing import Self

import psutil

__all__ = ["Usage"]

_EVERY = 0.25  # seconds between two samples
_LOOK = 8  # samples between two searches for new children, which read the whole process table


class Usage:
    """Samples this process and its children, apart from those given, while its block runs.

    Memory shared between forked workers is counted once for each of them.
    """

    def __init__(self, leave_out: set[int]) -> None:
        self._leave_out = leave_out
        self._cpu: dict[int, tuple[float, float]] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._has_begun = False
        self._known: list[psutil.Process] = []
        self.rss_mb = 0.0

    def __enter__(self) -> Self:
        self._look()
        self._sample()
        self._has_begun = True
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()
        self._sample()

    @property
    def cpu_seconds(self) -> float:
        """User and system time spent in the block."""
        return sum(last - first for first, last in self._cpu.values())

    def _follow(self) -> None:
        count = 0
        while not self._done.wait(_EVERY):
            count += 1
            if count % _LOOK == 0:
                self._look()
            self._sample()

    def _look(self) -> None:
        me = psutil.Process()
        self._known = [found for found in (me, *me.children(recursive=True)) if found.pid not in self._leave_out]

    def _sample(self) -> None:
        rss = 0
        for process in self._known:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                used = times.user + times.system
                # A process that started inside the block spent all its time in it.
                first = self._cpu.get(process.pid, (0.0 if self._has_begun else used, 0.0))[0]
                self._cpu[process.pid] = (first, used)
                rss += process.memory_info().rss
        self.rss_mb = max(self.rss_mb, rss / 1e6)
