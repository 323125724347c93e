"""What runs in the process of a lane: the user's function, and the notes on how far it has come."""

from __future__ import annotations

import faulthandler
import gc
import inspect
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from laneway._clock import SystemClock
from laneway._core.call import Call
from laneway._core.scheduler import KeyQueue
from laneway._declare.breaker import is_failure
from laneway._declare.interceptors import name_of
from laneway._declare.record import Record
from laneway._garbage import collect_rarely
from laneway._runtime.runners.process_journal import Carried, Journal, carried, rebuilt
from laneway.errors import DeclarationError, EngineError, text_of

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable
    from typing import BinaryIO

    from laneway._core.turn import TurnReport
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Batch

__all__ = [
    "DUMP",
    "FAILED",
    "LOADING",
    "READY",
    "TURN",
    "Fields",
    "Known",
    "Load",
    "Members",
    "Start",
    "TurnNote",
    "fields_of",
    "main",
]

LOADING = threading.Event()
"""Set while a child imports the user's modules, which must not run an app then."""
READY, TURN, FAILED = b"r", b"t", b"!"
"""What a child says: that it can work, that a turn is over, that the run must end. The journal has the rest."""
DUMP = signal.SIGUSR1
"""Makes a child note where its handler is; sent before it is killed."""

_SLICE = 0.002  # seconds after which what was not begun is given back, as `Call` does
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG

_NAMES = [name for name in Record.__struct_fields__ if name != "value"]
_make: Callable[..., Record[Any]] = Record
_VALUE, _RAW = Record.__struct_fields__.index("value"), _NAMES.index("raw")

Fields = tuple[Any, ...]
"""A record without its value, which the child decodes itself."""
fields_of: Callable[[Record[Any]], Fields] = attrgetter(*_NAMES)
Members = tuple[tuple[int, int], ...]
"""The records of one call of a batch handler: partition and offset of each."""
Known = dict[Members, Carried | bytes]
"""What came of calls of a turn, so that they are not repeated: an error, or pickled what was returned and marked."""


class Start(NamedTuple):
    """What a child receives first."""

    parent: int
    files: tuple[int, int]
    """Of the journal."""
    main: dict[str, Any]
    """The parent's arguments, and how to import its main module if that is needed."""
    load: bytes
    """A pickled `Load`, which may need that module."""


class Load(NamedTuple):
    """What a child runs."""

    route: HandlerSpec
    setups: tuple[Callable[[], Any], ...]
    cleanups: tuple[Callable[[], Any], ...]


class TurnNote(NamedTuple):
    """What became of a batch handler's turn: a `TurnReport` with places for its records and numbers for its errors."""

    errors: list[Carried]
    finished: list[int]
    skipped: list[int]
    outputs: list[tuple[list[int], Any]]
    members: list[tuple[int, int, int]]
    older: dict[int, list[int]]
    back: list[int]
    is_halted: bool
    reasons: dict[int, int]
    calls: int


def main(line: socket.socket, reader: BinaryIO) -> None:
    """Run turns until the parent hangs up."""
    start: Start = pickle.load(reader)  # noqa: S301 - sent by our own parent
    journal = Journal(*start.files)
    _belong_to(start.parent, line, journal)
    try:
        load = _loaded(start)
        work: _Singles | _Batches = (_Batches if load.route.is_batch else _Singles)(load.route, journal)
        _say(line, READY)
        while (turn := _received(reader)) is not None:
            work.run(*turn)
            _say(line, TURN)
        _clean_up(load)
    except BaseException as error:  # noqa: BLE001 - a setup that failed, an exit asked for, a bug of ours
        journal.write(carried(error))
        _say(line, FAILED)


def _belong_to(parent: int, line: socket.socket, journal: Journal) -> None:
    """Leave signals to the parent, never outlive it, and have something to say when the interpreter crashes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Not SIG_IGN, which programs that the handler starts would inherit.
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    os.register_at_fork(after_in_child=_heed_signals)
    for file in (line.fileno(), *journal.files):
        os.set_inheritable(file, False)  # a program of the handler's would keep the line open
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    faulthandler.enable(journal.files[1], all_threads=False)
    faulthandler.register(DUMP, journal.files[1])


def _heed_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _loaded(start: Start) -> Load:
    """Import what is to run, and set it up."""
    from multiprocessing import spawn

    LOADING.set()
    try:
        spawn.prepare(start.main)
        load: Load = pickle.loads(start.load)  # noqa: S301 - sent by our own parent
    except Exception as error:
        raise DeclarationError(
            f"a child process cannot load the handler: {_in_words(error)}; handlers that run in processes, and what "
            "they need, are defined at the top level of a module that can be imported"
        ) from error
    finally:
        LOADING.clear()
    for setup in load.setups:
        try:
            _call(setup)
        except Exception as error:
            raise EngineError(f"setup {name_of(setup)!r} failed in a child process: {_in_words(error)}") from error
    # What is there now stays.
    gc.collect()
    gc.freeze()
    collect_rarely()
    return load


def _clean_up(load: Load) -> None:
    for cleanup in load.cleanups:
        try:
            _call(cleanup)
        except Exception:  # noqa: BLE001 - the others are to run too, and no record depends on it
            traceback.print_exc()


def _call(function: Callable[[], Any]) -> None:
    report = function()
    if inspect.isawaitable(report):
        _loop().run_until_complete(report)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    import asyncio

    return asyncio.new_event_loop()


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {text_of(error)}"


def _say(line: socket.socket, word: bytes) -> None:
    try:
        line.sendall(word)
    except OSError:
        os._exit(1)  # the parent is gone


def _received(reader: BinaryIO) -> tuple[Any, ...] | None:
    try:
        turn: tuple[Any, ...] = pickle.load(reader)  # noqa: S301 - sent by our own parent
    except (EOFError, pickle.UnpicklingError):
        return None  # it hung up, perhaps in the middle of a turn
    return turn


def _record(fields: Fields) -> Record[Any]:
    return _make(*fields[:_VALUE], fields[_RAW], *fields[_VALUE:])


class _Singles:
    """Calls a handler record by record.

    Each is a turn of its own for `Call`, so that what came of it can be noted before the next one begins.
    """

    def __init__(self, route: HandlerSpec, journal: Journal) -> None:
        self._call = Call(route, SystemClock()).single
        self._halts = route.breaker is not None
        self._retry = route.retry
        self._journal = journal
        self._slot: KeyQueue[Record[Any]] = KeyQueue(None, [], lane=0, taken=1, is_busy=True)

    def run(self, turn: list[list[Fields]]) -> None:
        """Work through the keys of a turn until its slice is over."""
        began, place = time.monotonic(), 0
        for work in turn:
            if not self._goes_on(work, place, began + _SLICE):
                break
            place += len(work)
        self._journal.seconds = time.monotonic() - began

    def _goes_on(self, work: list[Fields], first: int, end: float) -> bool:
        """Work through one key; whether the next one is to be begun."""
        journal = self._journal
        for place, fields in enumerate(work, first):
            now = time.monotonic()
            if now > end and journal.ended:
                return False
            journal.begin(place, now)
            error = self._one(place, _record(fields))
            journal.end(place)
            if error is not None:
                return not (self._halts and is_failure(error, self._retry))
        return True

    def _one(self, place: int, record: Record[Any]) -> Exception | None:
        """Call for a record and note what came of it, unless it is just finished; its failure, if it failed."""
        self._slot.items = [record]
        report = self._call([self._slot])
        if report.handled:
            return None
        if report.failures:
            error = report.failures[0][1]
        else:
            try:
                self._journal.write((place, *_noted(report)))
            except Exception as refused:  # noqa: BLE001 - a message that cannot be pickled is the record's failure
                error = refused
            else:
                return None
        self._journal.write((place, "failed", carried(error)))
        return error


def _noted(report: TurnReport) -> tuple[str, Any]:
    if report.outputs:
        return ("sent", report.outputs[0][1])
    reason = next(iter(report.reasons.values()), None)
    return ("skipped", None if reason is None else carried(reason))


class _Batches:
    """Calls a batch handler.

    A turn may take several calls. When the child dies at one of them, the turn is sent again to the next child, with
    what came of the calls so far: that goes through `Call` as if it had happened there.
    """

    def __init__(self, route: HandlerSpec, journal: Journal) -> None:
        self._function = route.function
        self._call = Call(replace(route, function=self._once), SystemClock()).batch
        self._is_cut = route.bisect or route.grouping is not None
        self._journal = journal
        self._known: Known = {}
        self._calls = 0

    def run(self, turn: list[list[Fields]], known: Known) -> None:
        """Call for all records of a turn."""
        self._known, self._calls = known, 0
        queues = [KeyQueue(None, list(map(_record, work)), lane=0, taken=len(work), is_busy=True) for work in turn]
        report = self._call(queues)
        try:
            self._journal.write(_note_of(queues, report))
        except Exception as error:  # noqa: BLE001 - messages that cannot be pickled are a failure of the handler
            self._journal.write(carried(error))
        self._journal.seconds = report.seconds

    def _once(self, batch: Batch[Any]) -> Any:
        shown = list(batch.records)
        members = tuple([(record.partition, record.offset) for record in shown])
        if members in self._known:
            return _repeated(self._known[members], batch, shown)
        self._journal.write((members, None))
        self._journal.begin(self._calls, time.monotonic())
        try:
            answer = self._function(batch)
            self._note(members, partial(_returned, answer, batch, shown))
        except Exception as error:
            self._note(members, partial(carried, error))
            raise
        finally:
            self._journal.end(self._calls)
            self._calls += 1
        return answer

    def _note(self, members: Members, outcome: Callable[[], Carried | bytes]) -> None:
        """Note what came of a call, if another one may follow; a call whose outcome cannot be noted may be repeated."""
        if self._is_cut:
            with suppress(Exception):
                self._journal.write((members, outcome()))


def _returned(answer: object, batch: Batch[Any], shown: list[Record[Any]]) -> bytes:
    places = {id(record): place for place, record in enumerate(shown)}
    return pickle.dumps((answer, [(places[id(record)], error) for record, error in batch.fates]), 5)


def _repeated(outcome: Carried | bytes, batch: Batch[Any], shown: list[Record[Any]]) -> Any:
    """Do what a call did that is not to be made again."""
    if isinstance(outcome, Carried):
        raise rebuilt(outcome)
    answer, fates = pickle.loads(outcome)  # noqa: S301 - made by a child before us
    batch.fates.extend((shown[place], error) for place, error in fates)
    return answer


def _note_of(queues: list[KeyQueue[Record[Any]]], report: TurnReport) -> TurnNote:
    places = {id(record): place for place, record in enumerate([one for queue in queues for one in queue.items])}
    numbers: dict[int, int] = {}
    errors: list[Carried] = []

    def number(error: Exception) -> int:
        # One number for one error: what failed together is judged together.
        if id(error) not in numbers:
            numbers[id(error)] = len(errors)
            errors.append(carried(error))
        return numbers[id(error)]

    def all_of(records: Any) -> list[int]:
        return [places[id(record)] for record in records]

    return TurnNote(
        finished=all_of(report.handled),
        skipped=all_of(report.skipped),
        outputs=[(all_of(records), posted) for records, posted in report.outputs],
        members=[(index, places[id(record)], number(error)) for index, record, error in report.members],
        older={places[found]: all_of(records) for found, records in report.superseded.items()},
        back=[places[found] for found in report.back],
        is_halted=report.is_halted,
        reasons={places[found]: number(error) for found, error in report.reasons.items()},
        calls=report.calls,
        errors=errors,
    )
