"""BatchPieces: which records are called together: all of a turn, the groups of a kind, or halves of what failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway._declare.record import Record
from laneway.errors import DeclarationError, Reject, RetryAfter, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from laneway._core.scheduler import KeyQueue
    from laneway._declare.ordering import Grouping

__all__ = ["BatchPieces", "groups_of"]


class BatchPieces:
    """Gives the records of a turn piece by piece, each when the one before has its outcome.

    Once a record has failed, later ones of its key that were not called yet are given back to the scheduler: they must
    not run before it has had its verdict.

    Args:
        turn: the queues of the records.
        pieces: what to call with, in this order.
        bisect: call the halves of a piece that failed, then their halves, down to single records.
    """

    def __init__(
        self, turn: list[KeyQueue[Record[Any]]], pieces: list[list[Record[Any]]], *, bisect: bool = False
    ) -> None:
        self._turn = turn
        self._waiting = pieces[::-1]
        self._bisect = bisect
        self._places: dict[int, tuple[int, int]] = {}
        """Id of a record to the index of its queue and its place there; made at the first failure."""
        self._stopped: dict[int, int] = {}
        """Index of a queue to the place of the first of its records that failed."""
        self.now: list[Record[Any]] = []
        self.calls = 0
        self.back: set[int] = set()
        """Ids of the records that are given back."""

    def __iter__(self) -> Iterator[list[Record[Any]]]:
        """What to call with next."""
        while self._waiting:
            self.now = self._waiting.pop()
            if self._stopped:
                self.now = self._without_stopped(self.now)
            if self.now:
                self.calls += 1
                yield self.now

    def halve(self, error: Exception) -> bool:
        """The call failed: call both halves next, the first one first; False when all of its records have failed."""
        # Reject and RetryAfter are the handler's word on every record of the call: there is nothing to look for.
        if not self._bisect or len(self.now) == 1 or isinstance(error, (Reject, RetryAfter)):
            return False
        middle = len(self.now) // 2
        self._waiting += (self.now[middle:], self.now[:middle])
        return True

    def failed(self, records: Sequence[Record[Any]], error: Exception) -> list[tuple[int, Record[Any], Exception]]:
        """These records failed: each with the index of its queue."""
        if not self._places:
            for index, queue in enumerate(self._turn):
                for place, record in enumerate(queue.work()):
                    self._places[id(record)] = (index, place)
        members = []
        for record in records:
            index, place = self._places[id(record)]
            self._stopped[index] = min(place, self._stopped.get(index, place))
            members.append((index, record, error))
        return members

    def _without_stopped(self, piece: list[Record[Any]]) -> list[Record[Any]]:
        """What may still run; a record before the one that failed may, wherever a kind has put it."""
        may_run = []
        for record in piece:
            index, place = self._places[id(record)]
            if place > self._stopped.get(index, place):
                self.back.add(id(record))
            else:
                may_run.append(record)
        return may_run


def groups_of(kind: Grouping, records: list[Record[Any]], handler: str) -> list[list[Record[Any]]]:
    """Cut records as a kind says, and check that it has kept every one of them.

    Raises:
        DeclarationError: when it has not, or has raised.
    """
    left = {id(record) for record in records}
    ours = frozenset(left)
    groups: list[list[Record[Any]]] = []
    problem = ""
    try:
        for group in kind.split(tuple(records)):
            groups.append(list(group))
            problem = _claim(groups[-1], left, ours)
            if problem:
                break  # a kind that repeats records may do so without end
    except Exception as error:
        raise _wrong(kind, handler, f"raised {type(error).__name__}: {text_of(error)}") from error
    if not problem and left:
        lost = next(record for record in records if id(record) in left)
        problem = f"left out {len(left)} of {len(records)} records, the first of them {_name(lost)}"
    if problem:
        raise _wrong(kind, handler, problem)
    return groups


def _claim(group: list[Record[Any]], left: set[int], ours: frozenset[int]) -> str:
    """Take the records of a group from those that are left; what is wrong with it, if anything."""
    for record in group:
        if id(record) not in ours:
            return f"gave {_name(record)}, which is not one of the records it was given"
        if id(record) not in left:
            return f"gave {_name(record)} twice"
        left.discard(id(record))
    return ""


def _wrong(kind: Grouping, handler: str, what: str) -> DeclarationError:
    return DeclarationError(
        f"the kind {type(kind).__name__} of handler {handler!r} {what}; its split() is to put each record that it is "
        "given, not a copy of it, into exactly one group"
    )


def _name(record: object) -> str:
    if isinstance(record, Record):
        return f"{record.topic}, partition {record.partition}, offset {record.offset}"
    return f"something of type {type(record).__name__}"
