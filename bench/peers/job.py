"""Job: the arguments of a peer's program, in plain text, because one of the programs is Java."""

from __future__ import annotations

import sys
from dataclasses import astuple, dataclass

__all__ = ["Job", "from_arguments"]


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one peer."""

    brokers: str
    topic: str
    group: str
    notes: str
    records: int
    at_once: int
    """Calls that may run at the same time."""
    wait: float
    """Seconds that a call takes by itself."""
    size: int
    """Records a call; 1 is a handler of single records."""
    is_live: bool
    """Records arrive at a steady rate and latency counts; else they are all there."""
    variant: str

    def arguments(self) -> list[str]:
        """As a program takes them."""
        return [str(value) for value in astuple(self)]


def from_arguments() -> Job:
    """The job of this process."""
    brokers, topic, group, notes, records, at_once, wait, size, is_live, variant = sys.argv[1:]
    return Job(
        brokers, topic, group, notes, int(records), int(at_once), float(wait), int(size), is_live == "True", variant
    )
