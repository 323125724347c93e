"""Crew: the worker processes, started, killed, frozen and asked to leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Crew", "Worker"]

LEAVE_LIMIT = 60.0
"""Seconds within which a worker that is asked to leave is gone: the drain of 30 s, and time for a busy machine."""


@dataclass(slots=True)
class Worker:
    """One worker process."""

    name: str
    folder: Path
    """Of its histories and its output."""
    process: subprocess.Popen[bytes]
    is_ending: bool = False
    """Whether it was killed or asked to leave: its end is no surprise."""
    began: float = field(default_factory=time.monotonic)

    @property
    def is_alive(self) -> bool:
        """Whether it runs; a frozen one does."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End it as the kernel would."""
        self.is_ending = True
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Stop it in the middle of whatever it does."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def ask_to_leave(self) -> None:
        """Ask it to stop cleanly."""
        self.is_ending = True
        self.process.send_signal(signal.SIGTERM)

    def wait_gone(self, limit: float = LEAVE_LIMIT) -> int | None:
        """Its exit code; None when it had to be killed after *limit*."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            # The stacks of its threads go to its output: what it hangs on is worth more than that it does.
            self.process.send_signal(signal.SIGUSR1)
            time.sleep(1)
            self.kill()
            return None


class Crew:
    """All workers that ever were. Any thread may call it.

    Args:
        script: what a worker runs.
        environ: its variables; SOAK_HISTORY is added.
        folder: histories go into a folder of their own for each worker, below this.
    """

    def __init__(self, script: Path, environ: Mapping[str, str], folder: Path) -> None:
        self._script, self._folder = script, folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LANEWAY_")}
        self._environ = {**kept, "PYTHONUNBUFFERED": "1", **environ}
        self._lock = threading.Lock()
        self.workers: list[Worker] = []
        self.surprises: list[str] = []
        """Workers that ended without being asked to, with their exit codes."""
        self.exits: list[tuple[str, int | None, float]] = []
        """Name, exit code and seconds of each worker that was asked to leave."""

    def start(self) -> Worker:
        """Add a worker."""
        with self._lock:
            name = f"worker-{len(self.workers) + 1:03d}"
            folder = self._folder / name
            folder.mkdir(parents=True)
            with (folder / "output.txt").open("ab") as output:
                process = subprocess.Popen(
                    [sys.executable, str(self._script)],
                    env={**self._environ, "SOAK_HISTORY": str(folder)},
                    # A pipe without a writer: its end shows a worker that the soak has ended.
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            worker = Worker(name, folder, process)
            self.workers.append(worker)
            return worker

    @property
    def present(self) -> list[Worker]:
        """Those that run and are not about to end."""
        with self._lock:
            return [worker for worker in self.workers if worker.is_alive and not worker.is_ending]

    def replace_lost(self) -> None:
        """Take note of workers that ended by themselves, and start others."""
        with self._lock:
            lost = [worker for worker in self.workers if not worker.is_ending and not worker.is_alive]
            for worker in lost:
                worker.is_ending = True
        for worker in lost:
            self.surprises.append(f"{worker.name} ended with exit code {worker.process.returncode}")
            self.start()

    def dismiss(self, worker: Worker) -> str:
        """Ask a worker to leave and wait until it has; gives a note."""
        began = time.monotonic()
        worker.ask_to_leave()
        code = worker.wait_gone()
        seconds = time.monotonic() - began
        with self._lock:
            self.exits.append((worker.name, code, round(seconds, 2)))
        return f"exit code {code} after {seconds:.1f} s"

    def dismiss_all(self) -> None:
        """Ask all to leave, at once."""
        self.replace_lost()
        threads = [threading.Thread(target=self.dismiss, args=(worker,)) for worker in self.present]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """End whatever is left."""
        for worker in self.workers:
            if worker.is_alive:
                worker.kill()
            if worker.process.stdin:
                worker.process.stdin.close()
