"""How often the garbage collector runs while hundreds of thousands of records are created and dropped."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["collect_rarely", "collecting_rarely"]

_RARE = (50_000, 20, 100)  # a collection every 700 objects took a third of the time of an async record


def collect_rarely() -> None:
    """Collect rarely from now on, in a process of laneway's own."""
    gc.set_threshold(*_RARE)


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect rarely for a while, in the user's process. A larger threshold of the user's stays."""
    before = gc.get_threshold()
    if 0 < before[0] < _RARE[0]:
        collect_rarely()
    try:
        yield
    finally:
        if gc.get_threshold() == _RARE:  # otherwise the user changed it meanwhile
            gc.set_threshold(*before)
