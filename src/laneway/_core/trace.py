"""The trace of an exception as text, cheap enough to be made for every record that fails."""

from __future__ import annotations

import re
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType, TracebackType

__all__ = ["as_lines", "one_line", "trace_of"]

_MOST_KEPT = 200  # stacks; a handler fails in few places
_DEEPEST = 40  # frames of a stack that is kept
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "\\": "\\"}
_kept: dict[tuple[tuple[CodeType, int], ...], str] = {}


def trace_of(error: BaseException, last_line: str) -> str:
    """What the interpreter would print of an exception.

    Formatting a stack takes 100 µs, because the source is read and parsed for it. Records that fail mostly fail at the
    same place, so the text of a stack is kept and only the last line differs.

    Args:
        error: the exception.
        last_line: its type and text.
    """
    has_more = error.__cause__ or error.__context__ or isinstance(error, (BaseExceptionGroup, SyntaxError))
    stack = None if has_more or getattr(error, "__notes__", None) else _stack(error.__traceback__)
    if stack is None:
        # The last frames only: an exception object that is raised again and again grows by some each time.
        return "".join(traceback.format_exception(error, limit=-_DEEPEST))
    frames = _kept.get(stack)
    if frames is None:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        frames = _kept[stack] = "".join(traceback.format_tb(error.__traceback__))
    head = "Traceback (most recent call last):\n" if frames else ""
    return f"{head}{frames}{last_line}\n"


def one_line(trace: str) -> str:
    """A trace as a header holds it: without line ends, so that tools print a record's headers on one line."""
    return trace.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def as_lines(header: str) -> str:
    """The trace in a header; one with line ends in it is of an older version, which wrote traces as they are."""
    if "\n" in header:
        return header
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[0]), header)


def _stack(place: TracebackType | None) -> tuple[tuple[CodeType, int], ...] | None:
    found: list[tuple[CodeType, int]] = []
    while place is not None:
        found.append((place.tb_frame.f_code, place.tb_lasti))
        if len(found) > _DEEPEST:
            return None
        place = place.tb_next
    return tuple(found)
