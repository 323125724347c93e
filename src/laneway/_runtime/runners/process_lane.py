"""ProcessLane: runs turns in a child process that may die, and reports what happened."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from laneway._clock import SystemClock
from laneway._core.batch_pieces import BatchPieces
from laneway._core.call import Call
from laneway._core.turn import TurnReport
from laneway._declare.interceptors import Interceptors
from laneway._runtime.runners.process import ChildProcess
from laneway._runtime.runners.process_frames import (
    CallPiece,
    Prepare,
    Prepared,
    Progress,
    Raised,
    Ready,
    RunFailed,
    RunTurn,
    messages_of,
    rebuilt,
    row_of,
)
from laneway.errors import HandlerDiedError, HandlerTimeoutError, LanewayError, Skip, UnreachableStateError, text_of

if TYPE_CHECKING:
    from threading import Event

    from laneway._core.scheduler import KeyQueue
    from laneway._core.turn import EncodedMessage
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Batch, Record
    from laneway._runtime.runners.process_frames import Answer

    Turn = list[KeyQueue[Record[Any]]]

__all__ = ["ProcessLane", "RunEnded"]

_PAUSE, _PAUSE_MAX = 0.1, 10.0  # seconds before a child that died at once is replaced again, doubling
_MOST_STARTS = 5  # children in a row that die before they are ready


class RunEnded(BaseException):
    """The run is over in the middle of a turn, whose records have no outcome. No handler or retry may catch it."""


class ProcessLane:
    """Runs turns in a child, which is replaced when it dies. One thread uses it; any may `kill` it.

    Args:
        route: whose turns these are.
        main: how a child finds the parent's main module.
        load: the pickled `Load` of a child.
        over: set when the run ends.
    """

    def __init__(self, route: HandlerSpec, main: dict[str, Any], load: bytes, over: Event) -> None:
        self.is_ready = False
        self._route = route
        self._main, self._load = main, load
        self._over = over
        self._limit = route.timeout.total_seconds() if route.timeout else None
        self._decode = route.topic.value.decode if route.interceptors.error or route.interceptors.last else None
        self._lock = Lock()
        self._is_killed = False
        self._child: ChildProcess | None = None
        self._batch = _BatchCall(route, self) if route.is_batch else None
        self._prepare = Prepare([])
        self._prepared: ChildProcess | None = None
        """The child that has its records."""
        self._deaths = 0
        """Children in a row that died before a turn was over."""

    def ready(self) -> bool:
        """Make sure that there is a child; False when the run is over.

        Raises:
            RunEnded: it cannot load or set up what it is to run, or dies of it; the cause says why.
        """
        starts = 0
        while self._child is None:
            # The first one is replaced at once, then pauses grow: a crash at each start must not keep the machine busy.
            pause = min(_PAUSE_MAX, _PAUSE * 2.0 ** min(self._deaths - 2, 30)) if self._deaths > 1 else 0.0
            if self._over.wait(pause) or (child := self._started()) is None:
                return False
            if isinstance(self._answer(child), Ready):
                self.is_ready = True
                return True
            code = child.reap()
            self._drop(child)
            starts += 1
            if starts >= _MOST_STARTS and not self._is_killed:
                raise RunEnded from HandlerDiedError(
                    f"{starts} child processes of handler {self._route.name!r} died one after the other before they "
                    f"were ready; the last one {_in_words(code)}. Look at its setups and at what its module does when "
                    "it is imported"
                )
        return True

    def execute(self, turn: Turn) -> TurnReport:
        """Run a turn.

        Raises:
            RunEnded: the run is over, or must end; the cause, if any, says why.
        """
        if self._batch is None:
            return self._single(turn)
        report = self._batch.batch(turn)
        self._deaths = 0
        for _, record, error in report.members:
            self._show(record, error)
        return report

    def prepare(self, turn: Prepare) -> Prepared:
        """Let a child decode and group the records of a turn; a second one when it dies of that."""
        self._prepare, self._prepared = turn, None
        return self._prepared_again()

    def call_piece(self, places: list[int]) -> Progress:
        """Let a child call the batch handler with some of the prepared records.

        Raises:
            HandlerTimeoutError: the call was killed at its time limit.
            HandlerDiedError: the child died of it, or twice before it had begun.
        """
        for is_last in (False, True):
            if self._prepared is None or self._prepared is not self._child:
                self._prepared_again()
            child = self._living
            child.ask(CallPiece(places))
            while (answer := self._answer(child)) is not None:
                if isinstance(answer, Progress) and answer.begins < 0:
                    return answer
            error, is_to_blame = self._post_mortem(child)
            if is_to_blame or is_last:
                raise error
        raise UnreachableStateError("a batch was called without end. Please open an issue.")

    def kill(self) -> None:
        """End the child, whatever it does, and start no other."""
        with self._lock:
            self._is_killed = True
            if self._child is not None:
                self._child.kill()

    def close(self) -> None:
        """Let the child end, cleanly if it was not killed."""
        if self._child is not None:
            if self.is_ready and not self._is_killed:
                self._child.leave()
            self._child.reap()
            self._drop(self._child)

    def _started(self) -> ChildProcess | None:
        with self._lock:
            if not self._is_killed:
                self._child = ChildProcess(self._route.name, self._main, self._load)
            return self._child

    def _drop(self, child: ChildProcess) -> None:
        with self._lock:
            self._child = None
        self.is_ready = False
        if child.late_at is None:
            self._deaths += 1
        child.close()

    @property
    def _living(self) -> ChildProcess:
        if self._child is None:
            raise UnreachableStateError("a lane without a process was given a turn. Please open an issue.")
        return self._child

    def _answer(self, child: ChildProcess) -> Answer | None:
        """The next answer of a child, None when it is gone."""
        answer = child.receive(self._limit)
        if isinstance(answer, RunFailed):
            raise RunEnded from rebuilt(answer.raised)
        return answer

    def _post_mortem(self, child: ChildProcess) -> tuple[Exception, bool]:
        """Wait until a child is really gone; why it is, and whether the call that it was at is to blame."""
        code = child.reap()
        error: Exception
        is_to_blame = child.at >= 0
        if child.late_at is None:
            error = HandlerDiedError(f"the process of handler {self._route.name!r} {_in_words(code)}")
        else:
            error = HandlerTimeoutError(
                f"handler {self._route.name!r} was killed at its time limit of {self._limit:g} s"
            )
            is_to_blame = child.at == child.late_at  # not the one that began in the moment before the kill
        if words := child.last_words:
            error.add_note(words)
        self._drop(child)
        if self._is_killed:
            raise RunEnded
        return error, is_to_blame

    def _single(self, turn: Turn) -> TurnReport:
        """The outcomes of the records of a turn, each called alone."""
        child, began, report = self._living, time.monotonic(), TurnReport()
        works = [queue.work() for queue in turn]
        places = [(index, record) for index, work in enumerate(works) for record in work]
        report.done = [0] * len(turn)
        child.ask(RunTurn([list(map(row_of, work)) for work in works]))
        while (answer := self._answer(child)) is not None:
            if not isinstance(answer, Progress):
                raise UnreachableStateError("a child gave an answer to another question. Please open an issue.")
            if answer.ended >= 0:
                self._note(report, *places[answer.ended], answer)
            if answer.begins < 0:
                self._deaths = 0
                report.seconds = answer.seconds
                break
        else:
            error, is_to_blame = self._post_mortem(child)
            report.seconds = time.monotonic() - began
            if is_to_blame:
                index, record = places[child.at]
                report.failures[index] = (record, error)
        report.calls = sum(report.done) + len(report.failures)
        return report

    def _note(self, report: TurnReport, index: int, record: Record[Any], ended: Progress) -> None:
        """Add the outcome of a call to the report of its turn."""
        if ended.raised is not None:
            error = _error(ended.raised)
            if not isinstance(error, Skip):
                self._show(record, error)
                report.failures[index] = (record, error)
                return
            report.skipped.append(record)
            report.reasons[id(record)] = error
        elif ended.messages is not None:
            report.outputs.append(((record,), messages_of(ended.messages)))
        else:
            report.handled.append(record)
        report.done[index] += 1

    def _prepared_again(self) -> Prepared:
        for is_last in (False, True):
            if not self.ready():
                raise RunEnded
            child = self._living
            child.ask(self._prepare)
            answer = self._answer(child)
            if isinstance(answer, Prepared):
                self._prepared = child
                return answer
            error, _ = self._post_mortem(child)
            if is_last:
                raise error  # which record it was is not known
        raise UnreachableStateError("a batch was prepared without end. Please open an issue.")

    def _show(self, record: Record[Any], error: Exception) -> None:
        """Decode a record that failed, as error interceptors are shown it.

        Not when the child died of it, because decoding may be what killed it.
        """
        if self._decode is None or record.raw is None or isinstance(error, (HandlerDiedError, HandlerTimeoutError)):
            return
        with suppress(Exception):  # user code, which is perhaps what the record failed at
            record.value = self._decode(record.raw)


class _BatchCall(Call):
    """Runs the turns of a batch handler piece by piece. A child calls each piece; what follows is decided here."""

    def __init__(self, route: HandlerSpec, lane: ProcessLane) -> None:
        # Interceptors and the time limit apply in the child.
        route = replace(route, function=self._call_piece, interceptors=Interceptors(), timeout=None)
        super().__init__(route, SystemClock())
        self._lane = lane
        self._kind = route.kind
        self._places: dict[int, int] = {}

    def gather(self, turn: Turn) -> tuple[TurnReport, BatchPieces]:
        """What to call with, as a child says."""
        report = TurnReport()
        works = [queue.work() for queue in turn]
        if self._kind == "unique":
            for index, work in enumerate(works):
                if len(work) > 1:
                    report.superseded[id(work[-1])] = work[:-1]
                    works[index] = work[-1:]
        records = [record for work in works for record in work]
        self._places = {id(record): place for place, record in enumerate(records)}
        try:
            found = self._lane.prepare(Prepare([list(map(row_of, work)) for work in works]))
        except (HandlerDiedError, HandlerTimeoutError) as error:
            report.members += [(index, record, error) for index, work in enumerate(works) for record in work]
            return report, BatchPieces(turn, [])
        errors = {raised: _error(raised) for _, _, raised in found.failed}  # what failed together is judged together
        report.members += [(index, records[place], errors[raised]) for index, place, raised in found.failed]
        for place, raised in found.skipped:
            report.skipped.append(records[place])
            if raised is not None:
                report.reasons[id(records[place])] = _error(raised)
        report.back.update(id(records[place]) for place in found.back)
        groups = [[records[place] for place in group] for group in found.groups]
        return report, BatchPieces(turn, groups, bisect=self._bisect)

    def encoded(self, answer: Any) -> list[EncodedMessage]:
        """The child has encoded it."""
        return answer  # type: ignore[no-any-return]  # by `_call_piece`

    def _call_piece(self, batch: Batch[Any]) -> list[EncodedMessage] | None:
        done = self._lane.call_piece([self._places[id(record)] for record in batch.records])
        if done.raised is not None:
            raise _error(done.raised)
        batch.fates.extend((batch.records[at], _error(raised)) for at, raised in done.marked)
        return None if done.messages is None else messages_of(done.messages)


def _error(found: Raised) -> Exception:
    error = rebuilt(found)
    return error if isinstance(error, Exception) else LanewayError(text_of(error))


def _in_words(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = "; the kernel does that when memory runs out" if -code == signal.SIGKILL else ""
    return f"died of {name}{hint}"
