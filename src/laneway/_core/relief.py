"""Relief: what a lane need not keep while one of its calls takes far too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway._core.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laneway._clock import Clock
    from laneway._core.scheduler import KeyQueue
    from laneway._declare.record import Record

    Turn = list[KeyQueue[Record[Any]]]

__all__ = ["Relief"]

_LONG = 0.1  # seconds; a turn is meant to take 2 ms


class Relief:
    """Looks after turns of several keys, so that a call that hangs holds up its own key and no other.

    What the lane has not begun of such a turn is taken back, and what it has finished is settled; only the queue that
    it is at stays with it. The desk owns it.

    Args:
        clock: the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._out: dict[int, tuple[float, Turn]] = {}
        """Turns that are out, by their ids, and since when; the oldest first."""
        self._settled: dict[int, tuple[int, int, int, int]] = {}
        """Turns of which a part was settled: how many queues, records finished and skipped, and messages."""
        self.ask: Callable[[Turn], tuple[Turn, Result] | None] | None = None
        """Gives what the lane of a turn has not begun, and will not, and its result so far; a runner that can sets it.

        Its answer is None when the lane has not come to the turn yet, or is through with it.
        """

    @property
    def next_wake(self) -> float | None:
        """When the oldest turn has been out for too long."""
        return next(iter(self._out.values()))[0] + _LONG if self._out else None

    def began(self, turn: Turn) -> None:
        """A turn of several keys is out."""
        if self.ask is not None:
            self._out[id(turn)] = (self._clock.monotonic(), turn)

    def ended(self, turn: Turn, result: Result) -> bool:
        """A turn is over; what of it was settled already is taken out of its result. Whether that had succeeded."""
        self._out.pop(id(turn), None)
        settled = self._settled.pop(id(turn), None)
        if settled is None:
            return False
        queues, finished, skipped, outputs = settled
        del result.done[:queues], result.finished[:finished], result.skipped[:skipped], result.outputs[:outputs]
        result.failures = {index - queues: found for index, found in result.failures.items() if index >= queues}
        return bool(finished or skipped or outputs)

    def due(self, now: float) -> Iterator[tuple[Turn, Turn, Result]]:
        """Of each turn that takes too long: what was not begun, what is over, and the result of the latter."""
        while self._out and self.ask is not None:
            name, (since, turn) = next(iter(self._out.items()))
            if now - since < _LONG:
                return
            del self._out[name]
            found = self.ask(turn)
            if found is None:
                self._out[name] = (now, turn)
                continue
            back, result = found
            del turn[len(turn) - len(back) :]
            # The lane will ask for no further queue, so the list may be cut at its front, too. One stays, if only for
            # its partition.
            count = min(len(result.done), len(turn) - 1)
            over = turn[:count]
            del turn[:count]
            part = self._part(over, result)
            self._settled[name] = (count, len(part.finished), len(part.skipped), len(part.outputs))
            yield back, over, part

    @staticmethod
    def _part(over: Turn, result: Result) -> Result:
        """The result of queues at the beginning of a turn. Its lane may be at work again, and add to that of others."""
        ours = {id(record) for queue in over for record in queue.work()}
        part = Result()
        part.done = result.done[: len(over)]
        part.finished = [record for record in result.finished.copy() if id(record) in ours]
        part.skipped = [record for record in result.skipped.copy() if id(record) in ours]
        part.outputs = [output for output in result.outputs.copy() if id(output[0][0]) in ours]
        part.failures = {index: found for index, found in result.failures.copy().items() if index < len(over)}
        part.reasons = result.reasons.copy()
        return part
