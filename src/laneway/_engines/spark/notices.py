"""What a task says in mid-batch, when its row must wait: a copy that cannot be written, a breaker that is open."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["Notices", "notice"]

_FILE = "notices"


def notice(folder: str, text: str) -> None:
    """Say something now. Spark passes a worker's stderr on to the driver, and on a cluster to the executor's log.

    Where driver and worker share a disk the driver also learns of it, and shows it as the engine's state.

    Args:
        folder: the stream's control folder.
        text: one line.
    """
    sys.stderr.write(f"laneway: {text}\n")
    sys.stderr.flush()
    if os.path.isdir(folder):  # noqa: PTH112 - a look, not a path to be built on
        line = " ".join(text.split()).encode("utf-8", "replace")[:2_000] + b"\n"
        number = os.open(f"{folder}/{_FILE}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(number, line)
        finally:
            os.close(number)


class Notices:
    """Reads, in the driver, what the tasks of a stream have said."""

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / _FILE
        self._read = 0

    def new(self) -> list[str]:
        """What was said since the last look."""
        try:
            with self._path.open("rb") as lines:
                lines.seek(self._read)
                found = lines.read()
        except OSError:
            return []
        whole = found[: found.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode("utf-8", "replace").splitlines()
