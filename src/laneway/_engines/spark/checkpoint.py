"""Spark's private folder: whether it can be written."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from laneway.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["require_writable"]

_PROBE = 64 * 1024  # bytes; a batch writes some KB, before its handlers are called and again when they are done


def require_writable(folder: Path) -> None:
    """Write some KB into the folder, so that a full disk shows before any handler runs.

    Raises:
        CheckpointError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=".laneway-probe-", dir=folder, buffering=0) as probe:
            written = probe.write(os.urandom(_PROBE))
            if written < _PROBE:  # a second write raises the error
                probe.write(os.urandom(_PROBE - written))
            os.fsync(probe.fileno())
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(
            f"Spark's temporary folder {folder} cannot be written: {reason}. Make room and allow writing there, or "
            f"name another folder in the environment variable TMPDIR"
        ) from error
