"""Builds an archive of Kafka's loaded classes, which later starts reuse."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

from laneway.devkit.broker._config import archive_path
from laneway.devkit.broker._ephemeral import ephemeral
from laneway.devkit.broker._home import home_directory, locked
from laneway.devkit.broker._jars import require_jars
from laneway.devkit.broker._java import find_java
from laneway.errors import BrokerError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["build_archive", "find_archive"]

_PATIENCE = timedelta(minutes=2)  # the archive is written when the node ends


def find_archive(home: Path | None = None) -> Path | None:
    """The archive for this machine's Java and Kafka, if it was built."""
    path = archive_path(find_java(), require_jars(home_directory(home)))
    return path if path.exists() else None


def build_archive(home: Path | None = None) -> Path:
    """Start a node that writes its loaded classes to the archive when it stops; takes about ten seconds, once.

    Raises:
        BrokerError: with the reason and the fix.
    """
    path = archive_path(find_java(), require_jars(home_directory(home)))
    with locked(path.with_suffix(".lock")):
        if path.exists():
            return path
        fresh = path.with_suffix(f".{os.getpid()}")
        options = (f"-XX:ArchiveClassesAtExit={fresh}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
        with ephemeral(java_options=options, home=home) as running:
            running.nodes[0].stop(_PATIENCE)
        if not fresh.exists():
            raise BrokerError(f"The JVM has not written {fresh}. Fix: none needed; nodes only start more slowly")
        fresh.replace(path)
    return path
