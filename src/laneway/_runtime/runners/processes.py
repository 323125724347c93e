"""ProcessRunner: lanes in child processes, for handlers that compute, and for time limits that really stop a call."""

from __future__ import annotations

import pickle
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laneway._declare.interceptors import Interceptors, name_of
from laneway._runtime.runners.child import LOADING, Load
from laneway._runtime.runners.process_lane import ProcessLane, RunEnded
from laneway._runtime.runners.threads import LaneRunner
from laneway.errors import DeclarationError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence

    from laneway._clock import Clock
    from laneway._core.processor import Processor
    from laneway._declare.handler import HandlerSpec
    from laneway.typing import Source

    Hooks = tuple[Sequence[Callable[[], Any]], Sequence[Callable[[], Any]]]

__all__ = ["ProcessRunner"]


class ProcessRunner(LaneRunner):
    """Runs a sync handler's turns in up to *processes* child processes.

    Each child has a thread here, its lane, that gives it turns and waits for answers. The reader's thread owns
    the source and the sender. The processor is guarded by one lock, which no thread holds while it waits for a child.

    A call that takes longer than the handler's time limit is stopped: its process is killed, its record fails with
    `HandlerTimeoutError`, and only when the process is gone may the next record of its key begin. A process that dies
    by itself fails the record that it was at with `HandlerDiedError`. The outcomes of the records before it in the same
    turn are known, because a child sends each outcome before it begins the next call.

    Args:
        processor: where turns begin and end; it has as many lanes as there are processes.
        route: whose function to call; it, its codec, interceptors and kind are pickled by reference.
        clock: the time.
        lock: guards the processor; it is the runner's.
        processes: how many children there may be; each is started when there is work for it.
        hooks: setups, run in each child before its first record, and cleanups, run when it ends cleanly.
        is_kept: let the children live when a run is over, for further ones: see `take_on` and `close`.
        pickler: has `dumps` for what a child runs; not `pickle` where there is no main module to import.

    Raises:
        DeclarationError: when the handler cannot run in another process, with what to do.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        processor: Processor,
        route: HandlerSpec,
        clock: Clock,
        lock: threading.Lock | None = None,
        *,
        processes: int,
        hooks: Hooks = ((), ()),
        is_kept: bool = False,
        pickler: Any = pickle,
    ) -> None:
        _check(route, processes)
        super().__init__(processor, clock, lock, processes)
        self._route = route
        self._is_kept = is_kept
        self._load = _pickled(Load(_for_child(route), *map(tuple, hooks)), pickler)
        self._main = _main_module(self._load) if pickler is pickle else {"sys_argv": sys.argv}
        self._lanes: list[ProcessLane] = []

    def run(self, source: Source) -> None:
        """Work until the source is exhausted and every record has reached its end.

        When it raises, no child is left, kept or not, and the runner cannot be used again.
        """
        is_clean = False
        try:
            self._read(source)
            is_clean = True
        finally:
            if not (is_clean and self._is_kept):
                self._end(is_clean=is_clean)

    def take_on(self, processor: Processor) -> None:
        """Work for another processor of the same handler in the next run; every turn of the last one is settled."""
        with self._lock:
            self._processor = processor

    def close(self) -> None:
        """Let children that were kept clean up and end; no run is under way."""
        self._end(is_clean=True)

    def _lane(self) -> None:
        # A child inherits this: a signal to all processes must not end it before it can say that it ignores it.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        lane = ProcessLane(self._route, self._main, self._load, self._over)
        self._lanes.append(lane)
        has_worked = False
        try:
            # A child that had to go is replaced before the next turn is taken, so that no record waits for its start.
            while lane.ready() and (turn := self._next_turn(has_worked=has_worked)) is not None:
                self._settle(turn, lane.execute(turn))
                has_worked = True
        except RunEnded as end:
            self._break(end.__cause__)
        except BaseException as error:  # noqa: BLE001 - a bug in laneway: end the run
            self._break(error)
        finally:
            lane.close()

    def _end(self, *, is_clean: bool) -> None:
        """When this returns no child is left."""
        self._end_lanes()
        try:
            for lane in self._lanes:
                if not (is_clean and lane.is_ready):
                    lane.kill()  # it runs a call, which must stop, or is not ready yet and has nothing to clean up
            for thread in self._threads:
                thread.join()
        except BaseException:
            for lane in self._lanes:
                lane.kill()  # the wait was interrupted
            raise


def _check(route: HandlerSpec, processes: int) -> None:
    where = f"handler {route.name!r}"
    if processes < 1:
        raise DeclarationError(f"{where}: processes={processes}; at least 1 is needed to run anything")
    if route.is_async:
        raise DeclarationError(f"{where}: processes= is for a plain def that computes; an async handler uses lanes=")
    if route.kind == "columnar":
        raise DeclarationError(f"{where}: processes= is for handlers of records; a columnar handler takes tables")
    if LOADING.is_set():
        raise DeclarationError(
            f'{where}: the app was run while a child process imported it; put the run below if __name__ == "__main__":'
        )


def _for_child(route: HandlerSpec) -> HandlerSpec:
    """A route without what stays in the parent, which need not be picklable."""
    return replace(
        route,
        topic=replace(route.topic, key=None),
        order_by=None,
        interceptors=Interceptors(route.interceptors.consume, route.interceptors.produce),
        step_functions={},
        error_function=None,
        rerun=None,
    )


def _pickled(load: Load, pickler: Any) -> bytes:
    try:
        return pickler.dumps(load)  # type: ignore[no-any-return]
    except Exception as error:
        found = next((what for what, part in _parts(load) if not _is_picklable(part)), "something of it")
        raise DeclarationError(
            f"handler {load.route.name!r}: {found} cannot be sent to a process ({type(error).__name__}: {error}); "
            "define it at the top level of a module, not in a function and not as a lambda"
        ) from error


def _parts(load: Load) -> Iterator[tuple[str, object]]:
    route = load.route
    yield "its function", route.function
    yield f"the codec {route.topic.value!r}", route.topic.value
    yield f"its kind {route.grouping!r}", route.grouping
    for interceptor in (*route.interceptors.consume, *route.interceptors.produce):
        yield f"interceptor {name_of(interceptor)!r}", interceptor
    for function in (*load.setups, *load.cleanups):
        yield f"setup or cleanup {name_of(function)!r}", function


def _is_picklable(part: object) -> bool:
    try:
        pickle.dumps(part, 5)
    except Exception:  # noqa: BLE001 - user code
        return False
    return True


def _main_module(load: bytes) -> dict[str, Any]:
    """How a child imports what the parent was started as; left out when nothing in *load* is defined there."""
    found: dict[str, Any] = {"sys_argv": sys.argv}
    if b"__main__" in load:
        import multiprocessing  # noqa: F401 - with it, what a child defines in its copy of the module is known here

        module: Any = sys.modules["__main__"]
        name, path = getattr(module.__spec__, "name", None), getattr(module, "__file__", None)
        if name:
            found["init_main_from_name"] = name
        elif path:
            found["init_main_from_path"] = str(Path(path).absolute())
    return found
