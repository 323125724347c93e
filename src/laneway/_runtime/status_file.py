"""What processes of this machine that run apps say about themselves, in a file each."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import psutil

from laneway._home import home_directory

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["StatusFile", "statuses"]

_VERSION = 1
_STALE = 3600.0  # seconds
_numbers = count(1)  # one process may run several engines


class StatusFile:
    """One engine's status file, read by ``laneway why``. A folder that is not writable has no other effect.

    Args:
        app: the app's name.
        folder: its folder; ``run`` in laneway's home by default.
    """

    def __init__(self, app: str, folder: Path | None = None) -> None:
        self._folder = folder or _folder()
        self._path = self._folder / f"{app}.{os.getpid()}.{next(_numbers)}.json"
        statuses(app, self._folder)  # tidies up
        self._known = {"version": _VERSION, "app": app, "pid": os.getpid(), "began": _began(os.getpid())}

    def write(self, said: Mapping[str, Any]) -> None:
        """Replace the content atomically."""
        text = json.dumps({**self._known, "at": time.time(), **said})
        fresh = self._path.with_suffix(".new")
        with suppress(OSError):
            # Readable by this user only: it contains keys of records.
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(fresh, "w", opener=lambda path, flags: os.open(path, flags, 0o600), encoding="utf-8") as file:
                file.write(text)
            fresh.replace(self._path)

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
            self._path.with_suffix(".new").unlink(missing_ok=True)


def statuses(app: str, folder: Path | None = None) -> list[dict[str, Any]]:
    """The status of each live process of this machine that runs the app."""
    found = []
    for path in sorted((folder or _folder()).glob("*.json")):
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            is_current = said["version"] == _VERSION
            is_alive = _began(int(said["pid"])) == said["began"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # of another version, or being removed
        if not is_alive:
            _tidy(path)
        elif is_current and said.get("app") == app:
            found.append(said)
    return found


def _folder() -> Path:
    return home_directory() / "run"


def _tidy(path: Path) -> None:
    """Remove files of killed processes; only old ones, because another machine may share the folder."""
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > _STALE:
            path.unlink()


def _began(pid: int) -> float | None:
    """When a process started: its id may have been reused."""
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None
