"""Sheet: the results file of the peers, written after each run: an interrupted bench keeps what it has measured."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from catalogue import LANEWAY, PEERS, WORKLOADS

# Last in line: both folders have a run.py.
sys.path.append(str(Path(__file__).parents[1]))
import figures
from machine import machine

__all__ = ["OtherFactsError", "Sheet", "machine"]

_WORKLOADS = list(WORKLOADS)
_PEERS = [peer.name for peer in (*LANEWAY.values(), *PEERS.values())]


class OtherFactsError(Exception):
    """The file holds figures of another machine or of other versions, beside which new ones mean nothing."""


class Sheet:
    """The runs of a day, by workload and peer.

    A peer's first new run in a workload takes the place of its earlier ones there. With *is_resumed* it is the newest
    file that goes on, whatever its day, and earlier runs count.
    """

    def __init__(self, folder: Path, facts: dict[str, Any], *, is_resumed: bool = False) -> None:
        today = folder / f"{time.strftime('%Y-%m-%d')}-peers.json"
        self.path = (is_resumed and figures.newest("peers", folder)) or today
        found = figures.read(self.path)
        self._facts = facts
        self._runs: list[dict[str, Any]] = found.pop("results")
        self._old = set() if is_resumed else {_pair(run) for run in self._runs}
        differing = [name for name, value in found.items() if facts.get(name) != value]
        if self._runs and differing:
            raise OtherFactsError(
                f"{self.path} was measured with another {' and other '.join(differing)}. "
                "Fix: name another folder with --results, or take the file away"
            )

    def has(self, workload: str, peer: str, runs: int) -> bool:
        """Whether a peer has so many runs in a workload, of those that count."""
        pair = (workload, peer)
        return pair not in self._old and sum(_pair(run) == pair for run in self._runs) >= runs

    def add(self, run: dict[str, Any]) -> None:
        """Take a run in and write the file."""
        if _pair(run) in self._old:
            self._old.discard(_pair(run))
            self._runs = [other for other in self._runs if _pair(other) != _pair(run)]
        self._runs.append(run)
        self._runs.sort(key=_place)
        figures.write(self.path, {**self._facts, "results": self._runs})


def _pair(run: dict[str, Any]) -> tuple[str, str]:
    return run["workload"], run["peer"]


def _place(run: dict[str, Any]) -> tuple[int, int]:
    """As the catalogue has them, whenever they were measured; figures of a peer that it no longer has come last."""
    workload, peer = _pair(run)
    return (
        _WORKLOADS.index(workload) if workload in _WORKLOADS else len(_WORKLOADS),
        _PEERS.index(peer) if peer in _PEERS else len(_PEERS),
    )
