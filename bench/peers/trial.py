"""Trial: one run of one peer, in a process of its own, watched from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catalogue import KEYS
from load import Foreign, Tree, peak_rss_mb
from notes import PARTITIONS, Notes
from topics import fill_at_once
from verdict import judge, latency

from laneway.devkit.bench._workloads import fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from job import Job
    from topics import Contents, Topics

__all__ = ["Trial", "Watched"]

_WARM_UP = 1_000  # records of a latency run that are there before it: when they are handled the peer is ready
_UNTIMED = 2.0  # seconds at the start of a latency run that do not count
_STALL = 30.0  # seconds without a call after which the rest is taken for lost
_GRACE = 10.0  # seconds from SIGTERM to SIGKILL
_LOOK = 0.1
_SAMPLE = 0.5  # seconds between looks at a whole tree of processes, which cost us some milliseconds


class Watched:
    """A peer's process. It always ends: when its work is done, at the limit, or by an alarm when we are gone."""

    def __init__(self, command: Sequence[str], log: Path, notes: Notes, limit: float, *, is_tree: bool) -> None:
        self._notes, self._limit, self._is_tree = notes, limit, is_tree
        self._began = self._moved = time.monotonic()
        self._sampled = 0.0
        self.noted = 0
        self.status: int | None = None
        self.ended_for = ""
        """Why it was ended: it was ``late`` or ``stalled``."""
        self.cpu_seconds = self.rss_mb = self.unreaped = 0.0
        with log.open("wb") as output:
            # An alarm outlives exec: a peer whose bench was killed does not stay.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: signal.alarm(int(limit + 60)),  # noqa: PLW1509 - we have no other thread
            )
        self._tree = Tree(self._process.pid)

    def watch(self, until: Callable[[], bool] = lambda: False) -> None:
        """Watch until it ends, *until* says so, or its time is up."""
        while self.status is None and not self.ended_for and not until():
            time.sleep(_LOOK)
            self._look()
            now, noted = time.monotonic(), self._notes.noted
            if noted != self.noted or not noted:
                self.noted, self._moved = noted, now
            if now - self._began > self._limit:
                self.ended_for = "late"
            elif now - self._moved > _STALL:
                self.ended_for = "stalled"

    def end(self) -> None:
        """End it, if it still runs, and whatever it has started."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            end = time.monotonic() + _GRACE
            if self.status is None:
                self._process.send_signal(sign)
            while self.status is None and time.monotonic() < end:
                time.sleep(0.05)
                self._look()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _look(self) -> None:
        self.rss_mb = max(self.rss_mb, peak_rss_mb(self._process.pid))
        if self._is_tree and time.monotonic() > self._sampled + _SAMPLE:
            self._tree.sample()
            self._sampled = time.monotonic()
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid:
            self.status = self._process.returncode = os.waitstatus_to_exitcode(status)
            reaped = usage.ru_utime + usage.ru_stime
            self.unreaped = max(0.0, self._tree.cpu_seconds - reaped)
            self.cpu_seconds = reaped + self.unreaped
            self.rss_mb = max(self.rss_mb, self._tree.rss_mb)


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a job by a command; *folder* is for its notes and its log."""

    command: Sequence[str]
    folder: Path
    limit: float
    is_tree: bool
    ours: Iterable[int]

    def on_filled(self, job: Job, contents: Contents) -> dict[str, Any]:
        """Run it on records that are there."""
        notes = Notes.create(job.notes, job.records, contents.longest)
        foreign = Foreign(self.ours)
        peer = self._start(job, notes)
        try:
            peer.watch()
        finally:
            peer.end()
        return self._figures(peer, notes, contents) | {"foreign_cores": round(foreign.cores(peer.unreaped), 2)}

    def on_live(self, job: Job, topics: Topics, rate: int) -> dict[str, Any]:
        """Run it on records that arrive at a steady rate; they are in `job.records` with those of the warm-up."""
        fill_at_once(job.brokers, job.topic, _WARM_UP, KEYS)
        # Twice the mean: 10,000 keys are spread evenly enough.
        notes = Notes.create(job.notes, job.records, 2 * job.records // PARTITIONS + 1_000)
        foreign = Foreign(self.ours)
        peer = self._start(job, notes)
        producer = None
        began = time.time()
        try:
            peer.watch(until=lambda: notes.noted >= _WARM_UP)
            began = time.time()
            producer = fill(job.brokers, job.topic, job.records - _WARM_UP, keys=KEYS, rate=rate)
            peer.watch()
        finally:
            if producer is not None:
                if peer.status != 0:
                    producer.terminate()
                producer.wait()
            peer.end()
        foreign_cores = round(foreign.cores(peer.unreaped), 2)
        clock = time.time() - time.monotonic()
        contents = topics.read(job.topic)
        produced = [stamp for line in contents.times for stamp in line if stamp >= began]
        since = min(produced, default=began) + _UNTIMED
        times = latency(notes, contents, since, clock)
        return self._figures(peer, notes, contents) | times | {"foreign_cores": foreign_cores}

    @staticmethod
    def with_warm_up(records: int) -> int:
        """Records of a latency job, with those that only show that the peer is ready."""
        return records + _WARM_UP

    def _start(self, job: Job, notes: Notes) -> Watched:
        command = [*self.command, *job.arguments()]
        return Watched(command, self.folder / "log", notes, self.limit, is_tree=self.is_tree)

    def _figures(self, peer: Watched, notes: Notes, contents: Contents) -> dict[str, Any]:
        found = judge(notes, contents)
        # Calls after the request to end do not count as in time.
        missing = max(0, notes.records - peer.noted)
        is_late = peer.ended_for == "late"
        gave_up = peer.ended_for == "stalled" or peer.status == 0
        state = "finished" if not missing else "unfinished" if is_late else "lost" if gave_up else "failed"
        return {
            "state": state,
            **found,
            "records_per_second": found["handled"] / found["seconds"] if found["seconds"] else None,
            # After its time limit it is unknown whether the missing records would have come.
            "lost": None if is_late and missing else missing,
            "cpu_seconds": peer.cpu_seconds,
            "rss_mb": peer.rss_mb,
            "why": self._last_line() if state == "failed" else "",
        }

    def _last_line(self) -> str:
        lines = (self.folder / "log").read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
