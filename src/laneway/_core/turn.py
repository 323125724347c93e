"""What happened in a turn (TurnReport), and how many records one is given (TurnSize)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._core.scheduler import KeyQueue
    from laneway._declare.record import Record

__all__ = ["EncodedMessage", "TurnReport", "TurnSize", "records_of"]

EncodedMessage = tuple[str, bytes | None, bytes | None, Any, int | None, int | None]
"""Topic, key, value, headers, partition, timestamp. The topic may be ``name@cluster``."""


_MOST_A_TURN = 512  # records; more would not be faster, and a turn that fails late would give back more
_FIRST = 3  # calls before the pace is believed
_SLICE = 0.002  # seconds of work a lane takes at once: short enough that no other key waits noticeably


class TurnReport(msgspec.Struct, eq=False):
    """What happened in a turn. Lists for the whole turn, so that a handled record costs no object of its own."""

    done: list[int] = []
    """Queue by queue, the records that need no further call; queues past its end were not begun."""
    handled: list[Record[Any]] = []
    skipped: list[Record[Any]] = []
    duplicates: list[Record[Any]] = []
    """Records whose id is done already."""
    outputs: list[tuple[Sequence[Record[Any]], list[EncodedMessage]]] = []
    """Records with the messages they led to: finished when all of these are acknowledged."""
    failures: dict[int, tuple[Record[Any], Exception]] = {}
    """Index of a queue to the record that stopped it."""
    members: list[tuple[int, Record[Any], Exception]] = []
    """Members of a batch that failed, with the index of their queue."""
    superseded: dict[int, list[Record[Any]]] = {}
    """Id of a record to those of its key that it supersedes, oldest first."""
    back: set[int] = set()
    """Ids of records that were not called: an earlier one of their key is among the members, or it was halted."""
    is_halted: bool = False
    """Whether calls were left out, because one of a batch handler with a breaker failed."""
    reasons: dict[int, Exception] = {}
    """Id of a skipped record to why, when an event is wanted."""
    calls: int = 0
    seconds: float = 0.0

    @property
    def is_smooth(self) -> bool:
        """Whether every record that was called is handled, skipped or has led to messages."""
        return not (self.failures or self.members or self.back)

    @property
    def has_success(self) -> bool:
        """Whether a call has succeeded."""
        return bool(self.handled or self.outputs)

    def older_than(self, records: Sequence[Record[Any]]) -> list[Record[Any]]:
        """The records that these supersede."""
        if not self.superseded:
            return []
        return [old for new in records for old in self.superseded.get(id(new), ())]

    def of_first(self, turn: list[KeyQueue[Record[Any]]]) -> TurnReport:
        """The part about the first queues of a turn. Its lane may be at work still, and add to that of others."""
        ours = {id(record) for queue in turn for record in queue.work()}
        part = TurnReport()
        part.done = self.done[: len(turn)]
        part.handled = [record for record in self.handled.copy() if id(record) in ours]
        part.skipped = [record for record in self.skipped.copy() if id(record) in ours]
        part.duplicates = [record for record in self.duplicates.copy() if id(record) in ours]
        part.outputs = [output for output in self.outputs.copy() if id(output[0][0]) in ours]
        part.failures = {index: found for index, found in self.failures.copy().items() if index < len(turn)}
        part.reasons = self.reasons.copy()
        return part

    def without(self, part: TurnReport) -> TurnReport:
        """The rest, after a part about the first queues was settled."""
        rest, count = TurnReport(), len(part.done)
        rest.done = self.done[count:]
        rest.handled = self.handled[len(part.handled) :]
        rest.skipped = self.skipped[len(part.skipped) :]
        rest.duplicates = self.duplicates[len(part.duplicates) :]
        rest.outputs = self.outputs[len(part.outputs) :]
        rest.failures = {index - count: found for index, found in self.failures.items() if index >= count}
        rest.reasons, rest.calls, rest.seconds = self.reasons, self.calls, self.seconds
        return rest

    def forget_errors(self) -> None:
        """An error holds the frames that it came through, among them one that holds this report: break the circle.

        It would keep every record of the turn in memory until the interpreter looks for such circles.
        """
        self.failures.clear()
        self.members.clear()
        self.reasons.clear()

    @classmethod
    def of(cls, record: Record[Any]) -> TurnReport:
        """Of a turn whose only record was handled."""
        return cls(done=[1], handled=[record], calls=1)


def records_of(turn: Sequence[KeyQueue[Record[Any]]]) -> list[Record[Any]]:
    """The records that the lane of a turn works through."""
    return [record for queue in turn for record in queue.work()]


class TurnSize:
    """Seconds a call takes, smoothed; rises at once and falls slowly, so a slow handler is never given too much.

    Of the first calls only the last counts: the very first may open a connection or import a module.
    """

    __slots__ = ("_calls", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        """0 until the first call is over."""
        self._calls = 0

    @property
    def is_believed(self) -> bool:
        """Whether enough calls were seen, here or before."""
        return self._calls >= _FIRST

    def learn(self, seconds: float) -> None:
        """Take over what is known from before; 0 when nothing is."""
        self.seconds = seconds
        self._calls = _FIRST if seconds else 0

    def saw(self, calls: int, seconds: float) -> None:
        """Learn from calls that ended."""
        if calls:
            pace = seconds / calls
            counts_alone = pace > self.seconds or not self.is_believed
            self._calls += calls
            self.seconds = pace if counts_alone else self.seconds * 0.9 + pace * 0.1

    def most_a_turn(self, ready: int, lanes: int) -> int:
        """As many records as a lane can work through in one slice, but never the work that free lanes could begin."""
        if not self.seconds:
            return 1  # not known yet: several slow calls in a row would keep the other lanes idle
        if self.seconds * _MOST_A_TURN < _SLICE:
            return _MOST_A_TURN
        return max(1, min(int(_SLICE / self.seconds), ready // lanes))
