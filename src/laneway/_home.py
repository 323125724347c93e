"""The folder for files that laneway fetches or builds once."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["home_directory"]


def home_directory(home: Path | None = None) -> Path:
    """*home*, or ``LANEWAY_HOME``, or ``laneway`` in the user's cache folder; does not create it."""
    if home is not None:
        return home.absolute()
    chosen = os.environ.get("LANEWAY_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "laneway"
