"""ProcessLane: runs turns in a child process that may die, and reports what happened."""

from __future__ import annotations

import pickle
import signal
import time
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

from laneway._core.turn import TurnReport
from laneway._runtime.runners.child import FAILED, READY, TURN, Fields, Known, Members, TurnNote, fields_of
from laneway._runtime.runners.process import Child
from laneway._runtime.runners.process_journal import Carried, Journal, carried, rebuilt
from laneway.errors import HandlerDiedError, HandlerTimeoutError, LanewayError, UnreachableStateError, text_of

if TYPE_CHECKING:
    from threading import Event

    from laneway._core.scheduler import KeyQueue
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record

    Turn = list[KeyQueue[Record[Any]]]

__all__ = ["ProcessLane"]

_PAUSE, _PAUSE_MAX = 0.1, 10.0  # seconds before a child that died at once is replaced again, doubling
_MOST_STARTS = 5  # children in a row that die before they are ready
_FINISHED, _UNKNOWN = ("finished", None), ("", None)


class ProcessLane:
    """Runs turns in a child, which is replaced when it dies. One thread uses it; any may `kill` it.

    Args:
        route: whose turns these are.
        main: how a child finds the parent's main module.
        load: the pickled `Load` of a child.
        over: set when the run ends.
    """

    def __init__(self, route: HandlerSpec, main: dict[str, Any], load: bytes, over: Event) -> None:
        self.execute = self._batch if route.is_batch else self._single
        """Runs a turn and gives the report; None when the lane was killed."""
        self.is_ready = False
        self._route = route
        self._main, self._load = main, load
        self._over = over
        self._limit = route.timeout.total_seconds() if route.timeout else None
        self._decode = route.topic.value.decode if route.interceptors.error or route.interceptors.last else None
        self._lock = Lock()
        self._is_killed = False
        self._child: Child | None = None
        self._deaths = 0
        """Children in a row that died before a turn was over."""

    def ready(self) -> bool:
        """Make sure that there is a child; False when the run is over.

        Raises:
            LanewayError: it cannot load or set up what it is to run, or dies of it.
        """
        starts = 0
        while self._child is None:
            # The first one is replaced at once, then pauses grow: a crash at each start must not keep the machine busy.
            pause = min(_PAUSE_MAX, _PAUSE * 2.0 ** min(self._deaths - 2, 30)) if self._deaths > 1 else 0.0
            if self._over.wait(pause) or (child := self._started()) is None:
                return False
            word = child.word()
            if word == READY:
                self.is_ready = True
                return True
            self._check(child, word)
            code = child.reap()
            self._let_go(child)
            starts += 1
            if starts >= _MOST_STARTS and not self._is_killed:
                raise HandlerDiedError(
                    f"{starts} child processes of handler {self._route.name!r} died one after the other before they "
                    f"were ready; the last one {_in_words(code)}. Look at its setups and at what its module does when "
                    "it is imported"
                )
        return True

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
            self._let_go(self._child)

    def _started(self) -> Child | None:
        with self._lock:
            if not self._is_killed:
                self._child = Child(self._route.name, self._main, self._load)
            return self._child

    def _let_go(self, child: Child) -> None:
        with self._lock:
            self._child = None
        self.is_ready = False
        if not child.was_late:
            self._deaths += 1
        child.close()

    def _check(self, child: Child, word: bytes) -> None:
        """Raise what ends the run."""
        if word == FAILED:
            *_, found = child.journal.entries()
            raise rebuilt(found)

    def _post_mortem(self, child: Child) -> tuple[Exception, bool]:
        """Wait until a child is really gone; why it is, and whether the call that it was at is to blame."""
        code = child.reap()
        journal, limit = child.journal, self._limit
        error: Exception
        if child.was_late and limit is not None:
            error = HandlerTimeoutError(f"handler {self._route.name!r} was killed at its time limit of {limit:g} s")
            # Not the one that began in the moment before the kill.
            is_to_blame = journal.is_in_call and child.was_late - journal.began >= limit
        else:
            error = HandlerDiedError(f"the process of handler {self._route.name!r} {_in_words(code)}")
            is_to_blame = journal.is_in_call
        if journal.last_words:
            error.add_note(journal.last_words)
        return error, is_to_blame

    def _single(self, turn: Turn) -> TurnReport | None:
        child, sent = self._living, time.monotonic()
        word = child.ask(pickle.dumps((_work_of(turn),), 5), self._limit)
        if word == TURN:
            self._deaths = 0
            return self._of_singles(turn, child.journal, None)
        self._check(child, word)
        error, is_to_blame = self._post_mortem(child)
        report = self._of_singles(turn, child.journal, error if is_to_blame else None)
        report.seconds = time.monotonic() - sent
        self._let_go(child)
        return None if self._is_killed else report

    def _batch(self, turn: Turn) -> TurnReport | None:
        """StopRequests the turn is over, each child learns which calls it need not make, and their outcomes."""
        known: Known = {}
        work, sent, in_vain = _work_of(turn), time.monotonic(), 0
        while self.ready():
            child = self._living
            word = child.ask(pickle.dumps((work, known), 5), self._limit)
            if word == TURN:
                self._deaths = 0
                report = self._of_batch(turn, child.journal)
                report.seconds = time.monotonic() - sent if known else child.journal.seconds
                return report
            self._check(child, word)
            error, is_to_blame = self._post_mortem(child)
            last = _add_known(known, child.journal)
            in_vain += not is_to_blame and not child.was_late
            self._let_go(child)
            if is_to_blame:
                known[last] = carried(error)
            if in_vain > 1 or len(known) > 2 * sum(map(len, work)):
                # Not in a call, so it is not known which record it was; or calls are never the same ones twice.
                return None if self._is_killed else self._of_failed_batch(turn, error)
        return None

    @property
    def _living(self) -> Child:
        if self._child is None:
            raise UnreachableStateError("a lane without a process was given a turn. Please open an issue.")
        return self._child

    def _of_singles(self, turn: Turn, journal: Journal, error: Exception | None) -> TurnReport:
        """What became of a turn; the call under way, if any, has failed with *error*."""
        report, note = TurnReport(), {place: (kind, what) for place, kind, what in journal.entries()}
        ended, first = journal.ended, 0
        for index, queue in enumerate(turn):
            work, count = queue.work(), 0
            for place, record in enumerate(work, first):
                kind, what = note.get(place, _FINISHED if place < ended else _UNKNOWN)
                if kind == "finished":
                    report.handled.append(record)
                elif kind == "sent":
                    report.outputs.append(((record,), what))
                elif kind == "skipped":
                    report.skipped.append(record)
                    if what is not None:
                        report.reasons[id(record)] = _error(what)
                else:
                    if kind == "failed":
                        report.failures[index] = (self._shown(record), _error(what))
                    break
                count += 1
            if error is not None and journal.at == first + count and count < len(work):
                report.failures.setdefault(index, (work[count], error))
            report.done.append(count)
            first += len(work)
        report.calls = sum(report.done) + len(report.failures)
        report.seconds = journal.seconds
        return report

    def _of_batch(self, turn: Turn, journal: Journal) -> TurnReport:
        """What became of a turn that is over."""
        *_, note = journal.entries()
        if not isinstance(note, TurnNote):
            return self._of_failed_batch(turn, _error(note))
        records = [record for queue in turn for record in queue.work()]
        errors = [_error(found) for found in note.errors]

        def all_of(places: list[int]) -> list[Record[Any]]:
            return [records[place] for place in places]

        report = TurnReport()
        report.done = [queue.taken for queue in turn]
        report.handled, report.skipped = all_of(note.finished), all_of(note.skipped)
        report.outputs = [(all_of(places), posted) for places, posted in note.outputs]
        report.members = [(index, self._shown(records[place]), errors[number]) for index, place, number in note.members]
        report.superseded = {id(records[place]): all_of(places) for place, places in note.older.items()}
        report.back = set(map(id, all_of(note.back)))
        report.is_halted = note.is_halted
        report.reasons = {id(records[place]): errors[number] for place, number in note.reasons.items()}
        report.calls = note.calls
        return report

    def _of_failed_batch(self, turn: Turn, error: Exception) -> TurnReport:
        """Every record of a turn has failed, whatever was done before; none is finished, so none can be lost."""
        report = TurnReport()
        for index, queue in enumerate(turn):
            work = queue.work()
            if self._route.kind == "unique":
                report.superseded[id(work[-1])] = work[:-1]
                work = work[-1:]
            report.members += [(index, record, error) for record in work]
        report.done = [queue.taken for queue in turn]
        report.calls = 1
        return report

    def _shown(self, record: Record[Any]) -> Record[Any]:
        """A record that failed, as error interceptors are shown it: decoded.

        Not when the child died of it, because decoding may be what killed it.
        """
        if self._decode is not None and record.raw is not None:
            with suppress(Exception):  # user code, which is perhaps what the record failed at
                record.value = self._decode(record.raw)
        return record


def _work_of(turn: Turn) -> list[list[Fields]]:
    return [list(map(fields_of, queue.work())) for queue in turn]


def _add_known(known: Known, journal: Journal) -> Members:
    """Learn what came of a turn's calls; the records of the last one that began."""
    last: Members = ()
    for entry in journal.entries():
        if isinstance(entry, tuple) and len(entry) == 2:
            last, outcome = entry
            if outcome is not None:
                known[last] = outcome
    return last


def _error(found: Carried) -> Exception:
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
