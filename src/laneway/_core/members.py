"""Members: the records of a batch that failed, each judged for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway._declare.retry import Defer, TryAgain
from laneway.errors import RetryAfter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laneway._clock import Clock
    from laneway._core.copies import Copies
    from laneway._core.result import Result
    from laneway._core.scheduler import KeyQueue, Scheduler
    from laneway._declare.record import Record
    from laneway._declare.retry import Park, Verdict

__all__ = ["Members"]

_Judged = tuple["Record[Any]", Exception, "Verdict"]


class Members:
    """Settles the queues of a batch of which something failed. The desk owns it.

    Args:
        scheduler: where the queues go back to.
        copies: where records go that are not tried again in their place.
        clock: the time.
        judge: gives the verdict on a record and its error.
        again: told of each record that is tried again.
        supersede: told of records whose newest one has reached its end.
    """

    def __init__(
        self,
        scheduler: Scheduler[Record[Any]],
        copies: Copies,
        clock: Clock,
        *,
        judge: Callable[[Record[Any], Exception], Verdict],
        again: Callable[[Record[Any], Exception, TryAgain], None],
        supersede: Callable[[Sequence[Record[Any]]], None],
    ) -> None:
        self._scheduler = scheduler
        self._copies = copies
        self._clock = clock
        self._judge = judge
        self._again = again
        self._supersede = supersede

    def settle(self, turn: list[KeyQueue[Record[Any]]], result: Result) -> None:
        """Members of a batch failed: each is judged for itself, and those that go on are tried again together."""
        errors: dict[int, dict[int, Exception]] = {}
        for index, record, error in result.members:
            errors.setdefault(index, {})[id(record)] = error
        verdicts: dict[tuple[int, int], Verdict] = {}
        now = self._clock.monotonic()  # one for all keys: a microsecond between them would tear the batch apart
        for index, queue in enumerate(turn):
            found = errors.get(index, {})
            if found or not result.back.isdisjoint(map(id, queue.work())):
                # In the order of the key: that of the members has those first that cannot be decoded.
                failed = [(record, found[id(record)]) for record in queue.work() if id(record) in found]
                self._fail(queue, failed, verdicts, now, result)
            else:
                self._scheduler.settle(queue, queue.taken)

    def _fail(
        self,
        queue: KeyQueue[Record[Any]],
        failed: list[tuple[Record[Any], Exception]],
        verdicts: dict[tuple[int, int], Verdict],
        now: float,
        result: Result,
    ) -> None:
        until, older, back = now, result.older, result.back
        again: set[int] = set()
        copied: list[tuple[Record[Any], Exception, Defer | Park]] = []
        judged: list[_Judged] = []
        for record, error in failed:
            # One verdict for the same error and calls: a random pause each would tear the batch apart.
            name = (id(error), record.attempt - record.before)
            if name not in verdicts:
                verdicts[name] = self._judge(record, error)
            judged.append((record, error, verdicts[name]))
        for record, error, verdict in self._in_order(judged) if self._copies.route.parks_behind else judged:
            if isinstance(verdict, TryAgain):
                self._again(record, error, verdict)
                until = max(until, now + verdict.pause.total_seconds())
                again.add(id(record))
            else:
                copied.append((record, error, verdict))

        gone = [record for record, *_ in copied]

        def settle() -> None:  # knows the records only: their errors hold the frames of the call
            left = [record for record in queue.work() if id(record) in again or id(record) in back]
            if left:
                # In the order of the key. What a record supersedes waits with it.
                self._scheduler.retain(queue, [old for new in left for old in (*older.get(id(new), ()), new)])
            if again:
                self._scheduler.postpone(queue, 0, until)
            else:
                self._scheduler.settle(queue, 0 if left else queue.taken)
            self._supersede([old for new in gone for old in older.get(id(new), ())])

        self._copies.send_all(copied, settle)

    def _in_order(self, judged: list[_Judged]) -> list[_Judged]:
        """Keep the order of a key whose later records queue behind earlier ones, when their handler asks for delays.

        No record may go to a higher step than an earlier one of its partition, or to any step while an earlier one
        waits in place: it would be called before it. So the earlier one goes as high, or the later one waits too.
        """
        waits: dict[int, TryAgain] = {}
        highest: dict[int, int] = {}
        for at, (record, error, verdict) in enumerate(judged):
            earlier = waits.get(record.partition)
            if isinstance(verdict, TryAgain):
                waits[record.partition] = verdict
            elif isinstance(verdict, Defer) and earlier is not None:
                asked = (
                    self._copies.route.retry.delays[verdict.step - 1]
                    if isinstance(error, RetryAfter)
                    else earlier.pause
                )
                judged[at] = (record, error, TryAgain(max(earlier.pause, asked)))
        for at, (record, error, verdict) in reversed(list(enumerate(judged))):
            if isinstance(verdict, Defer):
                step = highest[record.partition] = max(verdict.step, highest.get(record.partition, 0))
                judged[at] = (record, error, Defer(step))
        return judged
