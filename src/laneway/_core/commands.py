"""What other threads ask of a processor. Each command is obeyed by the processor's own thread, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laneway._core.deferred_keys import DeferredKeys

__all__ = ["Close", "Command", "Drain", "Load", "Open", "Release", "SetLanes"]


@dataclass(frozen=True, slots=True)
class Open:
    """A partition is ours: take its records from now on."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Release:
    """Begin nothing more of a partition; what no lane has begun is the next owner's."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Close:
    """A partition that was fenced is not ours: forget all that is known of it."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Load:
    """So much waits on the retry topics of partitions that became ours, but for those gone since."""

    deferred: DeferredKeys
    gone: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class SetLanes:
    """Have so many lanes from now on; those that are busy end their turns."""

    lanes: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Begin nothing past what was begun. A record that waits for its next try is not waited for."""


Command = Open | Release | Close | Load | SetLanes | Drain
