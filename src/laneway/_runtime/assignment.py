"""Assignment: what gives a loop its partitions; FixedAssignment: partitions that are given once, without a group."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from laneway._runtime.broker_monitor import BrokerView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laneway._kafka import Place
    from laneway._runtime.handler_worker import HandlerWorker
    from laneway._runtime.partition import Partitions

__all__ = ["Assignment", "DueView", "FixedAssignment", "LogWatch", "LoopCommitter", "NothingToRecover", "PlannedDue"]


class LogWatch(Protocol):
    """Handles logs that are not those that were read."""

    ends: dict[Place, int]
    """Where the logs of recreated topics ended when that was noticed."""

    def suspect(self, topic: str, seen: Mapping[Place, int]) -> None:
        """A retry topic seems to have been recreated."""

    def settle_suspects(self) -> None:
        """Find out whether it was."""

    def lose(self, topic: str, count: int) -> None:
        """Count records that were deleted before they could be read."""


class LoopCommitter(Protocol):
    """Says what is finished, while a loop runs and at its end."""

    count: int
    """Records that were read since the last commit."""
    is_done: bool
    """Whether everything finished was committed at the end."""

    def tend(self, now: float) -> None:
        """Act on answers, and commit when it is time."""

    def commit_now(self, now: float) -> bool:
        """Commit, and return when the broker has it; False when it has not."""
        ...

    def commit_last(self, now: float) -> bool:
        """Commit for the last time; asked until it says True."""


class Assignment(Protocol):
    """Gives a loop its partitions; only the loop's thread calls it."""

    partitions: Partitions
    is_leaving: bool
    """Whether to give partitions back without waiting for calls."""
    has_joined: threading.Event
    """Set when it is known which partitions there are."""

    @property
    def logs(self) -> LogWatch:
        """Handles logs that are not those that were read."""

    def begin(self) -> None:
        """The loop begins."""

    def has_read(self) -> None:
        """The source was asked for records; what was read is not given to handlers yet."""

    def committer(self, now: float) -> LoopCommitter:
        """What commits for the loop."""


class DueView(Protocol):
    """Knows what is due of delayed topics."""

    @property
    def view(self) -> BrokerView:
        """What is known now."""

    @property
    def recreated(self) -> deque[tuple[str, Mapping[Place, int]]]:
        """Retry topics that seem to be recreated, and how far their logs went before."""


class FixedAssignment:
    """Partitions that are given once; the planner commits and watches the logs.

    Args:
        partitions: the partitions.
        workers: topic, of retries too, to those of the handlers that read it.
    """

    def __init__(self, partitions: Partitions, workers: Mapping[str, Sequence[HandlerWorker]]) -> None:
        self.partitions = partitions
        self.is_leaving = False
        self.has_joined = threading.Event()
        self.ends: dict[Place, int] = {}
        self.count = 0
        self.is_done = True
        self._workers = workers

    @property
    def logs(self) -> FixedAssignment:
        """Itself: the planner handles them."""
        return self

    def begin(self) -> None:
        """Everything is known already."""
        self.has_joined.set()

    def has_read(self) -> None:
        """No other process can have the partitions."""

    def committer(self, now: float) -> FixedAssignment:
        """Itself: what is finished is reported at the end."""
        del now
        return self

    def tend(self, now: float) -> None:
        """Nothing is committed meanwhile."""

    def commit_now(self, now: float) -> bool:
        """Nothing is committed here."""
        del now
        return True

    def commit_last(self, now: float) -> bool:
        """Nothing is committed here."""
        del now
        return True

    def suspect(self, topic: str, seen: Mapping[Place, int]) -> None:
        """The planner does that."""

    def settle_suspects(self) -> None:
        """The planner does that."""

    def lose(self, topic: str, count: int) -> None:
        """Count records that were deleted before they could be read."""
        self._workers[topic][0].lose(count)


class PlannedDue:
    """What is due, as it was planned.

    Args:
        due: up to where partitions may be read.
    """

    def __init__(self, due: Mapping[Place, int]) -> None:
        self.view = BrokerView(due={place: (0, end) for place, end in due.items()})
        self.recreated: deque[tuple[str, Mapping[Place, int]]] = deque()


class NothingToRecover:
    """A recovery for partitions of which everything was looked up before."""

    is_idle = True

    def begin(
        self, source: str, partitions: list[int], starts: Mapping[Place, tuple[int, int]], *, unclean: list[int]
    ) -> list[int]:
        """Nothing is looked up."""
        del source, partitions, starts, unclean
        return []

    def end(self, source: str, partition: int) -> None:
        """Nothing is looked up."""

    def done(self) -> list[Place]:
        """Nothing was looked up."""
        return []
