"""Result: what became of a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._declare.record import Record

__all__ = ["Posted", "Result"]

Posted = tuple[str, bytes | None, bytes | None, Any, int | None, int | None]
"""An encoded message: topic, key, value, headers, partition, timestamp. The topic may be ``name@cluster``."""


class Result:
    """What became of a turn.

    `done` counts, queue by queue, the records that need no further call; queues past its end were not begun.
    """

    __slots__ = (
        "back",
        "calls",
        "done",
        "failures",
        "finished",
        "is_halted",
        "members",
        "older",
        "outputs",
        "reasons",
        "seconds",
        "skipped",
    )

    def __init__(self) -> None:
        self.done: list[int] = []
        self.finished: list[Record[Any]] = []
        self.skipped: list[Record[Any]] = []
        self.outputs: list[tuple[Sequence[Record[Any]], list[Posted]]] = []
        """Records with the messages they led to: finished when all of these are acknowledged."""
        self.failures: dict[int, tuple[Record[Any], Exception]] = {}
        """Index of a queue to the record that stopped it."""
        self.members: list[tuple[int, Record[Any], Exception]] = []
        """Members of a batch that failed, with the index of their queue."""
        self.older: dict[int, list[Record[Any]]] = {}
        """Id of a record to those of its key that it supersedes, oldest first."""
        self.back: set[int] = set()
        """Ids of records that were not called: an earlier one of their key is among the members, or it was halted."""
        self.is_halted = False
        """Whether calls were left out, because one of a batch handler with a breaker failed."""
        self.reasons: dict[int, Exception] = {}
        """Id of a skipped record to why, when somebody wants to know."""
        self.calls = 0
        self.seconds = 0.0

    def let_go(self) -> None:
        """Forget the errors, once everything is settled.

        An error holds the frames that it came through, among them the one that made this result: a circle, which would
        keep every record of the turn until the interpreter looks for such.
        """
        self.failures.clear()
        self.members.clear()
        self.reasons.clear()

    @classmethod
    def of(cls, record: Record[Any]) -> Result:
        """Of a turn whose only record was handled."""
        result = cls()
        result.done.append(1)
        result.finished.append(record)
        result.calls = 1
        return result
