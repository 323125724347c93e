"""Frames: what a runner and the processes of its lanes send each other. Each is a length and one msgspec value."""

from __future__ import annotations

import builtins
import sys
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from laneway import errors
from laneway._core.decide import asked_delay
from laneway._core.headers import Failure
from laneway._declare.record import Origin, Record
from laneway.errors import RetryAfter, SchemaRegistryError, UnreachableStateError, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway._core.turn import EncodedMessage
    from laneway._declare.retry import Retry

__all__ = [
    "Answer",
    "CallPiece",
    "Prepare",
    "Prepared",
    "Progress",
    "Raised",
    "Ready",
    "Request",
    "Row",
    "RunFailed",
    "RunTurn",
    "decode_answer",
    "decode_request",
    "frame_of",
    "messages_of",
    "packed",
    "rebuilt",
    "record_of",
    "row_of",
    "take_frame",
]

_LENGTH = 4  # bytes before each frame
_KNOWN = {"builtins": builtins, "laneway.errors": errors}

Row = tuple[
    str, int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int, int, int, Origin | None, int
]
"""A record without its value, which the child decodes itself."""

_FIELDS = [name for name in Record.__struct_fields__ if name != "value"]
_VALUE, _RAW = Record.__struct_fields__.index("value"), _FIELDS.index("raw")
_make: Callable[..., Record[Any]] = Record
row_of: Callable[[Record[Any]], Row] = attrgetter(*_FIELDS)


def record_of(row: Row) -> Record[Any]:
    """The record of a row, not decoded yet."""
    return _make(*row[:_VALUE], row[_RAW], *row[_VALUE:])


class Raised(msgspec.Struct, array_like=True, frozen=True):
    """An exception as data: its text, and what decides what follows for its record."""

    module: str
    name: str
    base: tuple[str, str]
    """The nearest of its base classes that every process knows: module and name."""
    text: str
    trace: str
    is_retriable: bool
    """What the handler's policy says of the exception itself, whose attributes stay in the child."""
    delay: float | None
    """Seconds that it asks to wait."""

    @classmethod
    def of(cls, error: BaseException, retry: Retry) -> Raised:
        """Describe an exception."""
        kind = type(error)
        known = [base for base in kind.__mro__ if base.__module__ in _KNOWN and issubclass(base, BaseException)]
        base = next(base for base in known if not issubclass(base, BaseExceptionGroup))  # no text makes a group
        delay = asked_delay(error)
        seconds = None if delay is None else delay.total_seconds()
        text = "" if isinstance(error, SystemExit) and error.code is None else text_of(error)
        return cls(
            # The name under which a child knows the parent's main module.
            "__main__" if kind.__module__ == "__mp_main__" else kind.__module__,
            kind.__qualname__,
            (base.__module__, base.__qualname__),
            text,
            Failure.of(error).trace.encode("utf-8", "replace").decode(),
            retry.is_retriable(error),
            error.retry_after if isinstance(error, SchemaRegistryError) else seconds,
        )


class RunTurn(msgspec.Struct, tag=True, array_like=True):
    """To a child: call the handler for these records, key by key."""

    keys: list[list[Row]]


class Prepare(msgspec.Struct, tag=True, array_like=True):
    """To a child: decode and group the records of a batch handler's turn."""

    keys: list[list[Row]]


class CallPiece(msgspec.Struct, tag=True, array_like=True):
    """To a child: call the batch handler with those of the prepared records."""

    places: list[int]


class Ready(msgspec.Struct, tag=True, array_like=True):
    """From a child: it has loaded and set up what it runs."""


class Progress(msgspec.Struct, tag=True, array_like=True):
    """From a child: the outcome of the call that ended, if any, and which one begins."""

    begins: int
    """Place of the record, -1 when no further call begins."""
    ended: int = -1
    raised: Raised | None = None
    messages: bytes | None = None
    """As `packed` makes them; None when the handler returned None."""
    marked: list[tuple[int, Raised]] = msgspec.field(default_factory=list)
    seconds: float = 0.0
    """How long all calls took; with the last one."""


class Prepared(msgspec.Struct, tag=True, array_like=True):
    """From a child: which records are called together, and the outcomes of those that are not called."""

    groups: list[list[int]]
    failed: list[tuple[int, int, Raised]]
    """Index of the key, place of the record, and why."""
    skipped: list[tuple[int, Raised | None]]
    back: list[int]


class RunFailed(msgspec.Struct, tag=True, array_like=True):
    """From a child: the whole run must end."""

    raised: Raised


Request = RunTurn | Prepare | CallPiece
Answer = Ready | Progress | Prepared | RunFailed

_Message = tuple[str, Any, Any, list[tuple[Any, Any]], Any, Any]
_encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
_decode_messages = msgspec.msgpack.Decoder(list[_Message]).decode


def frame_of(value: Request | Answer) -> bytes:
    """A value as it is sent."""
    data = _encode(value)
    return len(data).to_bytes(_LENGTH, "big") + data


def take_frame(buffer: bytearray) -> bytes | None:
    """Remove the first frame from what was received; None when it is not there in full yet."""
    end = _LENGTH + int.from_bytes(buffer[:_LENGTH], "big")
    if len(buffer) < max(end, _LENGTH):
        return None
    data = bytes(buffer[_LENGTH:end])
    del buffer[:end]
    return data


def packed(messages: list[EncodedMessage]) -> bytes:
    """Messages as they travel.

    Raises:
        Exception: one has something in it that cannot.
    """
    return _encode([(*found[:3], [(name, text) for name, text in found[3]], *found[4:]) for found in messages])


def messages_of(data: bytes) -> list[EncodedMessage]:
    """The messages that were packed."""
    return _decode_messages(data)


def rebuilt(found: Raised) -> BaseException:
    """An exception with the name, kind and text of the one that was raised in a child; its trace is a note."""
    base = getattr(_KNOWN[found.base[0]], found.base[1])
    if base is SystemExit:
        return SystemExit(int(found.text) if found.text.lstrip("-").isdigit() else found.text or None)
    error = None
    with suppress(Exception):  # user code; an instance of the class itself, because `retriable` may name that
        error = _made_as(_class_of(found, base), found)
    if error is None:
        error = _made_as(base, found)
    # Not by setattr: an exception may be a frozen dataclass.
    error.__dict__["__notes__"] = [found.trace.rstrip()]
    error.__dict__["laneway_is_retriable"] = found.is_retriable
    if isinstance(error, RetryAfter):
        error.__dict__["delay"] = found.delay
    if isinstance(error, SchemaRegistryError):
        error.__dict__["retry_after"] = found.delay or 0.0
    return error


def _class_of(found: Raised, base: type[BaseException]) -> type[BaseException]:
    """The class itself where this process knows it."""
    place: Any = sys.modules.get(found.module)
    for part in found.name.split("."):
        place = getattr(place, part, None)
    is_usable = isinstance(place, type) and issubclass(place, base) and not issubclass(place, BaseExceptionGroup)
    return place if is_usable else base


def _made_as(kind: type[BaseException], found: Raised) -> BaseException:
    error = _instance(kind, found.text)
    if (kind.__module__, kind.__qualname__) == (found.module, found.name) and text_of(error) == found.text:
        return error
    names: dict[str, Any] = {"__module__": found.module, "__qualname__": found.name, "__str__": _text}
    return _instance(type(found.name.rpartition(".")[2], (kind,), names), found.text)


def _instance(kind: type[BaseException], text: str) -> BaseException:
    error = kind.__new__(kind, text)
    if not isinstance(error, BaseException):
        raise UnreachableStateError(f"{kind.__name__} makes no exception. Please open an issue.")
    error.args = (text,)
    return error


def _text(error: BaseException) -> str:
    return str(error.args[0])
