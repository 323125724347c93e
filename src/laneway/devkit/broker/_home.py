"""Folders of fetched files and of development clusters, and a lock between processes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from laneway._home import home_directory
from laneway.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["KAFKA_VERSION", "clusters_directory", "home_directory", "jars_directory", "locked"]

KAFKA_VERSION = "4.3.1"


def jars_directory(home: Path) -> Path:
    """The folder of the Kafka jars below *home*."""
    return home / "kafka" / KAFKA_VERSION / "libs"


def clusters_directory(home: Path) -> Path:
    """The folder with one subfolder per named cluster."""
    return home / "clusters"


@contextmanager
def locked(lock: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes during the block.

    Two terminals that start the same cluster, or fetch the same jars, would otherwise overwrite each other's files.
    """
    try:
        import fcntl
    except ImportError as error:
        raise BrokerError(
            "The development broker runs on Linux and macOS only. Fix: on Windows use WSL, or point bootstrap "
            "servers at a Kafka that is already running"
        ) from error
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = lock.open("w", encoding="utf-8")
    except OSError as error:
        raise BrokerError(
            f"Cannot write to {lock.parent}: {error.strerror}. Fix: set LANEWAY_HOME to a folder you may write to"
        ) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
