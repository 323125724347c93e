"""What other threads ask of a processor. Each command is obeyed by the processor's own thread, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laneway._core.deferred_keys import DeferredKeys
    from laneway._core.finished_map import FinishedMap

__all__ = ["Close", "Command", "Drain", "Inherit", "Load", "Open", "Release", "SetLanes"]


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
class Inherit:
    """These records of a partition were finished before: they are not run again."""

    topic: str
    partition: int
    finished: FinishedMap


@dataclass(frozen=True, slots=True)
class SetLanes:
    """Have so many lanes from now on; those that are busy end their turns."""

    lanes: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Begin nothing more; what was begun is finished, and what is dropped is read again by a later processor."""

    is_last: bool = True
    """No other one goes on soon: what lies below the highest record begun is run, so that nothing finished lies past
    it, and a record that waits for its next try is not waited for. If not, everything that no lane has begun is
    dropped, but a record that was tried is kept until its end, because only this processor knows how often it was.
    """


Command = Open | Release | Close | Load | Inherit | SetLanes | Drain
