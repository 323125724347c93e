"""What runs in the process of a lane: the user's function, and a report of each call."""

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
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from laneway._clock import SystemClock
from laneway._core.call import Call
from laneway._core.scheduler import KeyQueue
from laneway._declare.breaker import is_failure
from laneway._declare.interceptors import name_of
from laneway._declare.record import Batch
from laneway._declare.retry import Retry
from laneway._garbage import collect_rarely
from laneway._runtime.runners.process_frames import (
    Answer,
    CallPiece,
    Prepare,
    Prepared,
    Progress,
    Raised,
    Ready,
    RunFailed,
    RunTurn,
    decode_request,
    frame_of,
    packed,
    record_of,
)
from laneway.errors import DeclarationError, EngineError, Skip, text_of

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway._runtime.runners.process_frames import Request, Row

__all__ = ["DUMP", "LOADING", "Load", "Start", "main"]

LOADING = threading.Event()
"""Set while a child imports the user's modules, which must not run an app then."""
DUMP = signal.SIGUSR1
"""Makes a child write where its handler is; sent before it is killed."""

_SLICE = 0.002  # seconds after which what was not begun is given back, as `Call` does
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class Start(NamedTuple):
    """What a child receives first."""

    parent: int
    crash: int
    """Descriptor for what the interpreter says of a crash."""
    main: dict[str, Any]
    """The parent's arguments, and how to import its main module if that is needed."""
    load: bytes
    """A pickled `Load`, which may need that module."""


class Load(NamedTuple):
    """What a child runs."""

    route: HandlerSpec
    setups: Sequence[Callable[[], Any]]
    cleanups: Sequence[Callable[[], Any]]


def main(line: socket.socket, reader: BinaryIO) -> None:
    """Run turns until the parent hangs up."""
    start: Start = pickle.load(reader)  # noqa: S301 - sent by our own parent
    _belong_to(start, line)
    retry = Retry()
    try:
        load = _loaded(start)
        retry = load.route.retry
        calls = _Calls(load.route, line)
        _send(line, Ready())
        while (request := _received(reader)) is not None:
            calls.obey(request)
        _clean_up(load)
    except BaseException as error:  # noqa: BLE001 - a setup that failed, an exit asked for, a bug in laneway
        _send(line, RunFailed(Raised.of(error, retry)))


def _belong_to(start: Start, line: socket.socket) -> None:
    """Leave signals to the parent, never outlive it, and have something to say when the interpreter crashes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Not SIG_IGN, which programs that the handler starts would inherit.
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    os.register_at_fork(after_in_child=_heed_signals)
    for file in (line.fileno(), start.crash):
        os.set_inheritable(file, False)  # a program of the handler's would keep the line open
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != start.parent:
        os._exit(1)
    faulthandler.enable(start.crash, all_threads=False)
    faulthandler.register(DUMP, start.crash)


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
            _run_hook(setup)
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
            _run_hook(cleanup)
        except Exception:  # noqa: BLE001 - the others are to run too, and no record depends on it
            traceback.print_exc()


def _run_hook(function: Callable[[], Any]) -> None:
    result = function()
    if inspect.isawaitable(result):
        _loop().run_until_complete(result)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    import asyncio

    return asyncio.new_event_loop()


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {text_of(error)}"


def _send(line: socket.socket, answer: Answer) -> None:
    data = frame_of(answer)
    try:
        line.sendall(data)
    except OSError:
        os._exit(1)  # the parent is gone


def _received(reader: BinaryIO) -> Request | None:
    size = int.from_bytes(reader.read(4), "big")
    data = reader.read(size)
    # It hung up, perhaps in the middle of a request.
    return decode_request(data) if size and len(data) == size else None


class _Calls:
    """Calls a handler as the parent asks. The outcome of a call is sent before the next one begins."""

    def __init__(self, route: HandlerSpec, line: socket.socket) -> None:
        self._call = Call(route, SystemClock())
        self._halts = route.breaker is not None
        self._limit = route.timeout.total_seconds() if route.timeout else None
        self._retry = route.retry
        self._line = line
        self._one: KeyQueue[Record[Any]] = KeyQueue(None, [], lane=0, taken=1, is_busy=True)
        self._has_failed = self._is_halted = False
        """Whether the last record failed, and no other may be called before the breaker has decided."""
        self._records: list[Record[Any]] = []
        """Those of the turn of a batch handler."""

    def obey(self, request: Request) -> None:
        """Do what the parent asks."""
        match request:
            case RunTurn(keys):
                self._run(keys)
            case Prepare(keys):
                self._prepare(keys)
            case CallPiece(places):
                self._call_piece(places)

    def _run(self, keys: list[list[Row]]) -> None:
        """Work through the keys of a turn until its slice is over. The rest of a key waits when a record fails."""
        began, place, progress = time.monotonic(), 0, Progress(-1)
        for key in keys:
            for at, row in enumerate(key, place):
                if self._is_halted or (progress.ended >= 0 and time.monotonic() - began > _SLICE):
                    break
                progress.begins = at
                _send(self._line, progress)
                progress = self._one_record(record_of(row))
                progress.ended = at
                if self._has_failed:
                    break
            place += len(key)
        progress.begins, progress.seconds = -1, time.monotonic() - began
        self._is_halted = False
        _send(self._line, progress)

    def _one_record(self, record: Record[Any]) -> Progress:
        """Call for a record, as a turn of its own."""
        self._one.items = [record]
        report, error = self._call.single([self._one]), None
        if report.handled:
            self._has_failed = False
            return Progress(-1)
        if report.failures:
            error = report.failures[0][1]
        elif report.outputs:
            try:
                self._has_failed = False
                return Progress(-1, messages=packed(report.outputs[0][1]))
            except Exception as refused:  # noqa: BLE001 - a message that cannot travel is the record's failure
                error = refused
        self._has_failed = error is not None
        self._is_halted = error is not None and self._halts and is_failure(error, self._retry)
        error = error or next(iter(report.reasons.values()), None) or Skip()
        return Progress(-1, raised=Raised.of(error, self._retry))

    def _prepare(self, keys: list[list[Row]]) -> None:
        """Decode and group what a batch handler is called with."""
        queues = [KeyQueue(None, list(map(record_of, key)), lane=0, taken=len(key), is_busy=True) for key in keys]
        self._records = [record for queue in queues for record in queue.items]
        places = {id(record): place for place, record in enumerate(self._records)}
        report, pieces = self._call.gather(queues)

        def raised(error: Exception | None) -> Raised | None:
            return None if error is None else Raised.of(error, self._retry)

        answer = Prepared(
            [[places[id(record)] for record in piece] for piece in pieces],
            [(index, places[id(record)], Raised.of(error, self._retry)) for index, record, error in report.members],
            [(places[id(record)], raised(report.reasons.get(id(record)))) for record in report.skipped],
            [places[name] for name in report.back],
        )
        _send(self._line, answer)

    def _call_piece(self, places: list[int]) -> None:
        """Call a batch handler."""
        _send(self._line, Progress(0))
        began = time.monotonic()
        progress = Progress(-1, 0)
        records = [self._records[place] for place in places]
        batch = Batch(records.copy())  # a handler may sort or empty its list
        try:
            answer = self._call.function(batch)
            if self._limit is not None:
                self._call.check_limit(began, self._limit)
            marks = self._call.fates(records, batch) if batch.fates else {}
            progress.messages = None if answer is None else packed(self._call.encoded(answer))
            progress.marked = [
                (at, Raised.of(marks[id(record)], self._retry))
                for at, record in enumerate(records)
                if id(record) in marks
            ]
        except Exception as error:  # noqa: BLE001 - user code
            progress.raised = Raised.of(error, self._retry)
        progress.seconds = time.monotonic() - began
        _send(self._line, progress)
