"""One node: start, stop, kill, suspend and resume it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from laneway.devkit.broker._ports import HOST
from laneway.devkit.broker._probe import ask_brokers
from laneway.devkit.broker._process import diagnose, end, exit_code, find, last_lines, launch
from laneway.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import psutil

    from laneway.devkit.broker._plan import NodePlan

__all__ = ["PATIENCE", "START_LIMIT", "Node", "wait_ready"]

PATIENCE = timedelta(seconds=15)
"""How long a node may take to stop by itself; its log segments are recovered at the next start if it is killed."""

START_LIMIT = timedelta(seconds=60)
# Long enough not to disturb a starting JVM, short enough compared to a start of two seconds.
_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class Node:
    """A handle on one broker process; any thread may use it, one at a time.

    `kill`, `suspend` and `resume` are for tests of clients while a broker is unavailable.
    """

    plan: NodePlan
    command: tuple[str, ...]

    @property
    def id(self) -> int:
        """The node id, from 1."""
        return self.plan.id

    @property
    def address(self) -> str:
        """The address clients connect to."""
        return self.plan.address

    @property
    def pid(self) -> int | None:
        """The process id; None when the node is not running."""
        process = self._process()
        return process.pid if process else None

    @property
    def is_running(self) -> bool:
        """Whether the process is alive; a suspended one is."""
        return self._process() is not None

    @property
    def exit_code(self) -> int | None:
        """How the process ended, negative for a signal; None while it runs or when another program started it."""
        try:
            return exit_code(int(self._pid_file.read_text(encoding="ascii")))
        except (FileNotFoundError, ValueError):
            return None

    @property
    def log(self) -> Path:
        """The broker's own log."""
        return self.plan.directory / "node.log"

    @property
    def output(self) -> Path:
        """The output of the JVM."""
        return self.plan.directory / "jvm.out"

    def launch(self) -> None:
        """Start the process; does not wait until it answers."""
        pid = launch(self.command, self.plan.directory, self.output)
        self._pid_file.write_text(f"{pid}\n", encoding="ascii")

    def start(self) -> None:
        """Start the node and wait until it answers; no effect if it is running."""
        if not self.is_running:
            self.launch()
        wait_ready([self], {self.id})

    def stop(self, patience: timedelta = PATIENCE) -> None:
        """Ask the node to stop; kill it when it has not after *patience*."""
        process = self._process()
        if process:
            end([process], patience)
        self._pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """Kill the node, as a power cut would."""
        self.stop(timedelta(0))

    def restart(self) -> None:
        """Stop the node cleanly, start it again on the same ports and data, and wait until it answers."""
        self.stop()
        self.start()

    def suspend(self) -> None:
        """Suspend the node: its connections stay open and nothing answers."""
        self._require_process().suspend()

    def resume(self) -> None:
        """Resume a suspended node."""
        self._require_process().resume()

    def knows(self) -> set[int]:
        """The ids of the live brokers that this node reports; empty while it does not answer."""
        try:
            return {broker.id for broker in ask_brokers(HOST, self.plan.port, timedelta(seconds=2))}
        except (OSError, ValueError):
            return set()

    @property
    def _pid_file(self) -> Path:
        return self.plan.directory / "pid"

    def _process(self) -> psutil.Process | None:
        return find(self._pid_file, str(self.plan.config))

    def _require_process(self) -> psutil.Process:
        process = self._process()
        if process is None:
            raise BrokerError(f"Node {self.id} at {self.address} is not running. Fix: start it first")
        return process


def wait_ready(nodes: Sequence[Node], expected: Collection[int], limit: timedelta = START_LIMIT) -> None:
    """Wait until every node answers a metadata request that names all *expected* brokers.

    Raises:
        BrokerError: a node ended, with its reason; or *limit* passed.
    """
    deadline = time.monotonic() + limit.total_seconds()
    for node in nodes:
        while not node.knows() >= set(expected):
            if not node.is_running:
                raise BrokerError(f"Node {node.id} at {node.address} did not start: {_why(node)}")
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"Node {node.id} at {node.address} does not answer after {limit.total_seconds():.0f} s. "
                    f"Fix: see its last lines\n  " + "\n  ".join(last_lines(node.log, 12))
                )
            time.sleep(_PAUSE)


def _why(node: Node) -> str:
    text = "\n".join([*last_lines(node.output, 60), *last_lines(node.log, 200)])
    return diagnose(text, node.plan.data, node.exit_code)
