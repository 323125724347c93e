"""Garbage: how often the interpreter looks for cycles while records are made and dropped by the hundred thousand."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["collect_rarely", "collecting_rarely"]

_RARE = (50_000, 20, 100)  # to look every 700 objects took a third of the time that an async record takes


def collect_rarely() -> None:
    """Look for cycles rarely from now on: in a process that is ours."""
    gc.set_threshold(*_RARE)


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Look for cycles rarely for a while: in a process that is the user's. One who does so less often is left alone."""
    before = gc.get_threshold()
    if 0 < before[0] < _RARE[0]:
        collect_rarely()
    try:
        yield
    finally:
        if gc.get_threshold() == _RARE:  # else somebody else has changed it meanwhile, and means it
            gc.set_threshold(*before)
