"""What the JVM and the workers print, passed on without the noise."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["OutputFilter"]

_NOISE = (
    "WARNING: Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level",
    "Setting Spark log level",
    "To adjust logging level",
)


class OutputFilter:
    """Captures the output of processes started inside `catching`, and copies the useful lines to our stderr.

    Dropped are Spark's greeting of five lines and the tracebacks of its helper processes at shutdown; prints of
    handlers and log lines arrive the same way and are kept.
    """

    def __init__(self) -> None:
        self._is_muted = False

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Processes started in this block write to the filter for as long as they live."""
        read, write = os.pipe()
        threading.Thread(target=self._follow, args=(read,), name="laneway-spill", daemon=True).start()
        sys.stdout.flush()
        sys.stderr.flush()
        kept = os.dup(1), os.dup(2)
        try:
            os.dup2(write, 1)
            os.dup2(write, 2)
            yield
        finally:
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
            for number in (*kept, write):
                os.close(number)

    def mute(self, *, on: bool = True) -> None:
        """Drop everything from now on: Spark is shutting down."""
        self._is_muted = on and not os.environ.get("LANEWAY_DEBUG")

    def _follow(self, read: int) -> None:
        with os.fdopen(read, encoding="utf-8", errors="replace") as lines:
            for text in _without_farewells(lines):
                if not self._is_muted and not text.startswith(_NOISE):
                    sys.stderr.write(text)
                    sys.stderr.flush()


def _without_farewells(lines: Iterable[str]) -> Iterator[str]:
    """Drop the tracebacks of idle pyspark workers that Spark stops after a minute."""
    block = ""
    for line in lines:
        if line.startswith("Traceback (most recent call last)"):
            if block:
                yield block
            block = line
        elif not block:
            yield line
        else:
            block += line
            if not line.startswith(" "):
                if not ("pyspark/daemon.py" in block and line.startswith("BrokenPipeError")):
                    yield block
                block = ""
    if block:
        yield block
