"""Records calls: successful and failed ones separately."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from laneway.devkit.history import Recorder, read_history
from laneway.observe import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from laneway._declare.record import Record
    from laneway.devkit.history import Event

__all__ = ["EVENT_SIZE", "VARIABLE", "Calls", "noted"]

VARIABLE = "LANEWAY_DEMO_HISTORY"
"""Environment variable of the folder; Spark's workers inherit it. Without it nothing is written."""
EVENT_SIZE = 40
"""Bytes of one call in a history file; a test keeps it true."""


class Calls:
    """The history in one folder, as the driver reads it."""

    def __init__(self, folder: Path) -> None:
        self._succeeded, self._failed = folder / "succeeded", folder / "failed"
        self._succeeded.mkdir()
        self._failed.mkdir()

    @property
    def succeeded(self) -> list[Event]:
        """Calls that returned."""
        return list(read_history(self._succeeded))

    @property
    def failed(self) -> list[Event]:
        """Calls that raised."""
        return list(read_history(self._failed))

    def counts(self) -> Tally:
        """How many calls have succeeded so far, without reading them."""
        return Tally(handled=sum(file.stat().st_size for file in self._succeeded.iterdir()) // EVENT_SIZE)


@contextmanager
def noted(record: Record[Any]) -> Iterator[None]:
    """Record the call in the block."""
    recorders = _recorders()
    start = time.monotonic()
    try:
        yield
    except Exception:
        if recorders is not None:
            recorders[1].write(record, start)
        raise
    if recorders is not None:
        recorders[0].write(record, start)


@cache
def _recorders() -> tuple[Recorder, Recorder] | None:
    folder = os.environ.get(VARIABLE)
    return None if not folder else (Recorder(f"{folder}/succeeded"), Recorder(f"{folder}/failed"))
