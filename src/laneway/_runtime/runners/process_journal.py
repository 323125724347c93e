"""What crosses the border between a runner and the processes of its lanes: progress, outcomes and errors."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import sys
import tempfile
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from laneway._core.headers import Failure
from laneway.errors import RetryAfter, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Carried", "Journal", "carried", "rebuilt"]

_HEAD = 4096  # bytes before the entries: a page, which is what can be mapped
_KEPT = 1 << 20  # bytes of entries whose memory is kept for the next turn
_LONGEST = 4_000  # characters of what the interpreter says of a crash; no more fits into a parked copy
_BEGUN, _ENDED, _LENGTH, _BEGAN, _SECONDS = range(5)
_CARRIED = "__laneway_carried__"
_KNOWN = ("builtins", "laneway.errors")
_DELAYS = (int, float, str, timedelta)


class Journal:
    """What a child has done of its turn. It lies in memory that both processes see, so it outlives a killed child.

    The child writes, the parent reads, and clears it while the child waits for a turn. An outcome is there before the
    next call begins, so a kill leaves no more than one unknown. No process is woken for it: that would cost more than a
    fast call.

    Args:
        file: descriptor of the shared memory.
        words: descriptor of a file for what the interpreter says of a crash.
    """

    def __init__(self, file: int, words: int) -> None:
        self.files = (file, words)
        self._memory = mmap.mmap(file, _HEAD)
        self._view = memoryview(self._memory)
        self._counts = self._view.cast("q")
        self._times = self._view.cast("d")

    @classmethod
    def new(cls) -> Journal:
        """One for a child that is to be started."""
        file = _shared_file()
        os.ftruncate(file, _HEAD)
        return cls(file, _shared_file())

    @property
    def is_in_call(self) -> bool:
        """Whether the child is at a call."""
        return self._counts[_BEGUN] > self._counts[_ENDED]

    @property
    def at(self) -> int:
        """The place of the call that began last; -1 when none did."""
        return self._counts[_BEGUN] - 1

    @property
    def ended(self) -> int:
        """The place after that of the call that ended last."""
        return self._counts[_ENDED]

    @property
    def began(self) -> float:
        """When the last call began, by the monotonic clock of the machine."""
        return self._times[_BEGAN]

    @property
    def seconds(self) -> float:
        """How long all calls of the turn took; 0 until it is over."""
        return self._times[_SECONDS]

    @seconds.setter
    def seconds(self, seconds: float) -> None:
        self._times[_SECONDS] = seconds

    def clear(self) -> None:
        """A turn begins."""
        if self._counts[_LENGTH] > _KEPT:
            os.ftruncate(self.files[0], _HEAD)
        self._counts[_BEGUN] = self._counts[_ENDED] = self._counts[_LENGTH] = 0
        self._times[_SECONDS] = 0.0

    def begin(self, place: int, now: float) -> None:
        """A call begins."""
        # The time first: one that is too new makes the parent wait, one that is too old would make it kill.
        self._times[_BEGAN] = now
        self._counts[_BEGUN] = place + 1

    def end(self, place: int) -> None:
        """A call is over, and its outcome is written."""
        self._counts[_ENDED] = place + 1

    def write(self, entry: object) -> None:
        """Add an entry; it counts from when this returns."""
        data = pickle.dumps(entry, 5)
        length = self._counts[_LENGTH]
        if os.pwrite(self.files[0], data, _HEAD + length) < len(data):
            raise OSError("no room for what came of a call")
        self._counts[_LENGTH] = length + len(data)

    def entries(self) -> Iterator[Any]:
        """What was written, in order."""
        length = self._counts[_LENGTH]
        if not length:
            return
        data = io.BytesIO(os.pread(self.files[0], length, _HEAD))
        while data.tell() < length:
            yield pickle.load(data)  # noqa: S301 - written by our own child

    @property
    def last_words(self) -> str:
        """What the interpreter said when it crashed or was to be killed."""
        return os.pread(self.files[1], _LONGEST, 0).decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Release the memory."""
        for view in (self._counts, self._times, self._view):
            view.release()
        self._memory.close()
        for file in self.files:
            os.close(file)


def _shared_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("laneway")
    with tempfile.TemporaryFile() as file:  # a system without it: a file that has no name any more
        return os.dup(file.fileno())


class Carried(NamedTuple):
    """An exception on its way to another process."""

    pickled: bytes | None
    """None when it cannot be pickled, or not be made again of it."""
    module: str
    name: str
    base: type[BaseException]
    """What it is a kind of, among what every process knows: that decides what follows for its record."""
    text: str
    trace: str
    delay: Any = None
    """What a `RetryAfter` asks for."""


def carried(error: BaseException) -> Carried:
    """Pack an exception, its trace included."""
    found = error.__dict__.get(_CARRIED)
    if isinstance(found, Carried):
        return found  # it has come from another process: its trace is of there
    kind = type(error)
    return Carried(
        _pickled(error),
        # The name under which a child knows the parent's main module.
        "__main__" if kind.__module__ == "__mp_main__" else kind.__module__,
        kind.__qualname__,
        _base_of(kind),
        text_of(error),
        Failure.of(error).trace,
        error.delay if isinstance(error, RetryAfter) and isinstance(error.delay, _DELAYS) else None,
    )


def rebuilt(found: Carried) -> BaseException:
    """The exception that was packed; one of the same name, kind and text when it cannot be made again.

    Its trace is a note, so that a parked copy says where in the child it was raised.
    """
    error = _unpickled(found.pickled)
    if error is None:
        error = _stand_in(found)
    # Not by setattr: an exception may be a frozen dataclass.
    error.__dict__["__notes__"] = [*error.__dict__.get("__notes__", ()), found.trace.rstrip()]
    error.__dict__[_CARRIED] = found
    return error


def _pickled(error: BaseException) -> bytes | None:
    try:
        data = pickle.dumps(error, 5)
        again = pickle.loads(data)  # noqa: S301 - made a line above
    except Exception:  # noqa: BLE001 - user code
        return None
    # One whose arguments are not its text may be made again without complaint, as something else.
    return data if type(again) is type(error) and text_of(again) == text_of(error) else None


def _unpickled(data: bytes | None) -> BaseException | None:
    if data is None:
        return None
    try:
        error = pickle.loads(data)  # noqa: S301 - written by our own child
    except Exception:  # noqa: BLE001 - user code, or a module that only the child has
        return None
    return error if isinstance(error, BaseException) else None


def _base_of(kind: type[BaseException]) -> type[BaseException]:
    known = [base for base in kind.__mro__ if base.__module__ in _KNOWN and issubclass(base, BaseException)]
    # A group cannot be made of a text.
    return next(base for base in known if not issubclass(base, BaseExceptionGroup))


def _stand_in(found: Carried) -> BaseException:
    with suppress(Exception):  # user code; it is a kind of the class itself, because `retriable` may name that
        return _made_as(_class_of(found) or found.base, found)
    return _made_as(found.base, found)


def _class_of(found: Carried) -> type[BaseException] | None:
    place: Any = sys.modules.get(found.module)
    for part in found.name.split("."):
        place = getattr(place, part, None)
    # A group cannot be made of a text.
    is_usable = isinstance(place, type) and issubclass(place, found.base) and not issubclass(place, BaseExceptionGroup)
    return place if is_usable else None


def _made_as(base: type[BaseException], found: Carried) -> BaseException:
    names: dict[str, Any] = {"__module__": found.module, "__qualname__": found.name, "__str__": _text_of_stand_in}
    kind: type[BaseException] = type(found.name.rpartition(".")[2], (base,), names)
    error = kind.__new__(kind, found.text)
    error.args = (found.text,)
    if isinstance(error, RetryAfter):
        error.delay = found.delay
    return error


def _text_of_stand_in(error: BaseException) -> str:
    return str(error.args[0])
