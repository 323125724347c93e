"""Chaos: faults of a seeded random, each with its end, each with its lines in a file."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laneway.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from laneway.devkit.broker import Node
    from soak.crew import Crew, Worker
    from soak.stage import Stage

__all__ = ["KINDS", "Chaos"]

KINDS = (
    "kill-worker",
    "freeze-worker",
    "swap-worker",
    "extra-worker",
    "kill-broker",
    "freeze-broker",
    "reset-connections",
    "stall-connections",
)
_STARTS = 3  # waits of a minute for a broker that was killed: on a busy machine one is not enough
_HEAL_LIMIT = 200.0  # seconds for all that is healed at the end


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong for a while."""

    kind: str
    target: str
    seconds: float
    begin: Callable[[], object]
    heal: Callable[[], object]
    """What it gives is written down."""


class Chaos:
    """Makes faults happen, several at a time if they last, but never two brokers away at once.

    The nodes are their own controllers: without two of them nothing goes on, which is another test than this.

    Args:
        stage: what is cut and stopped.
        crew: who is killed and frozen.
        seed: of the choice of kinds, targets and durations.
        path: the file of lines.
    """

    def __init__(self, stage: Stage, crew: Crew, seed: int, path: Path) -> None:
        self.counts: Counter[str] = Counter()
        self.frozen: list[tuple[str, float, float]] = []
        """Worker, begin and end of each time that one was frozen."""
        self.failures: list[str] = []
        """Faults that could not be made or healed: flaws of the soak, not of what it tests."""
        self._stage, self._crew = stage, crew
        self._random = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._bag: list[str] = []
        self._busy: set[str] = set()
        self._extras: list[Worker] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._file = path.open("a", encoding="utf-8")
        self._began = time.monotonic()

    @property
    def total(self) -> int:
        """How many faults there were."""
        return sum(self.counts.values())

    def strike(self) -> str | None:
        """Begin a fault; it ends by itself. Gives a word on it, or None when nothing more may go wrong for now."""
        fault = self._choose()
        if fault is None:
            return None
        self.counts[fault.kind] += 1
        number = self.total
        with self._lock:
            self._busy.add(fault.target)
        thread = threading.Thread(target=self._live, args=(number, fault), name=f"fault-{number}")
        self._threads.append(thread)
        thread.start()
        return f"{fault.kind} {fault.target} for {fault.seconds:.1f} s"

    def heal(self) -> None:
        """End all faults now and wait until they are over."""
        self._over.set()
        for thread in self._threads:
            thread.join(_HEAL_LIMIT)
        for proxy in self._stage.proxies:
            proxy.resume()

    def close(self) -> None:
        """Heal, and close the file."""
        self.heal()
        self._file.close()

    def _choose(self) -> Fault | None:
        # Out of a bag, so that every kind comes up in every round, however short the soak is.
        for _ in range(2):
            kind = next((kind for kind in self._bag if self._is_possible(kind)), None)
            if kind is not None:
                self._bag.remove(kind)
                return self._make(kind)
            # Nothing is left, or all that is needs a broker while one is away: begin the next round already.
            self._bag += self._random.sample(KINDS, len(KINDS))
        return None

    def _is_possible(self, kind: str) -> bool:
        with self._lock:
            busy = set(self._busy)
        if kind.endswith(("broker", "connections")):
            return not any(name.startswith("node") for name in busy)
        return len(self._free(busy)) > 1 and not (kind == "extra-worker" and "crew" in busy)

    def _free(self, busy: set[str]) -> list[Worker]:
        return [worker for worker in self._crew.present if worker.name not in busy]

    def _make(self, kind: str) -> Fault:
        seconds = self._random.uniform(1, 10)
        if kind.endswith(("broker", "connections")):
            return self._network_fault(kind, seconds)
        with self._lock:
            worker = self._random.choice(self._free(self._busy))
        if kind == "kill-worker":
            return Fault(kind, worker.name, seconds / 2, worker.kill, lambda: self._crew.start().name)
        if kind == "freeze-worker":
            return Fault(kind, worker.name, seconds, lambda: self._freeze(worker), lambda: self._thaw(worker))
        if kind == "swap-worker":
            return Fault(kind, worker.name, 0.0, self._crew.start, lambda: self._crew.dismiss(worker))
        return Fault(kind, "crew", 2 * seconds, self._add_extra, self._dismiss_extra)

    def _network_fault(self, kind: str, seconds: float) -> Fault:
        index = self._random.randrange(len(self._stage.nodes))
        node, proxy = self._stage.nodes[index], self._stage.proxies[index]
        name = f"node-{node.id}"
        if kind == "kill-broker":
            return Fault(kind, name, seconds / 2, node.kill, lambda: _start(node))
        if kind == "freeze-broker":
            return Fault(kind, name, seconds, node.suspend, node.resume)
        if kind == "stall-connections":
            return Fault(kind, name, seconds, lambda: proxy.stall(seconds + 60), proxy.resume)
        every = self._stage.proxies if self._random.random() < 0.5 else (proxy,)
        name = "nodes" if len(every) > 1 else name
        return Fault(kind, name, 0.0, lambda: None, lambda: f"{sum(each.reset_all() for each in every)} connections")

    def _freeze(self, worker: Worker) -> None:
        self.frozen.append((worker.name, time.monotonic(), math.inf))
        worker.freeze()

    def _thaw(self, worker: Worker) -> None:
        worker.thaw()
        place = next(index for index, line in enumerate(self.frozen) if line[0] == worker.name and line[2] == math.inf)
        self.frozen[place] = (*self.frozen[place][:2], time.monotonic())

    def _add_extra(self) -> None:
        extra = self._crew.start()
        with self._lock:
            # No other fault may target it: it must be running when it is asked to leave.
            self._busy.add(extra.name)
        self._extras.append(extra)

    def _dismiss_extra(self) -> str:
        extra = self._extras.pop(0)
        return f"{extra.name}: {self._crew.dismiss(extra)}"

    def _live(self, number: int, fault: Fault) -> None:
        try:
            self._write(number, fault, "begins", seconds=round(fault.seconds, 3))
            fault.begin()
            self._over.wait(fault.seconds)
            told = fault.heal()
            self._write(number, fault, "over", **({"told": told} if told else {}))
        except Exception as error:  # noqa: BLE001 - the soak goes on and says so at its end
            self.failures.append(f"{fault.kind} {fault.target}: {error!r}")
            self._write(number, fault, "failed", told=repr(error))
        finally:
            with self._lock:
                self._busy.discard(fault.target)

    def _write(self, number: int, fault: Fault, what: str, **rest: Any) -> None:
        now = time.monotonic()
        line = {"time": round(now, 6), "second": round(now - self._began, 3), "number": number}
        with self._lock:
            self._file.write(json.dumps({**line, "fault": fault.kind, "target": fault.target, "what": what, **rest}))
            self._file.write("\n")
            self._file.flush()


def _start(node: Node) -> None:
    for left in reversed(range(_STARTS)):
        try:
            return node.start()
        except BrokerError:
            if not left:
                raise
    return None
