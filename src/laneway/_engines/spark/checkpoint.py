"""The folder of a checkpoint: whether it is on this machine, and whether it can be written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from laneway.errors import CheckpointError

__all__ = ["is_local", "require_writable"]

_PROBE = 64 * 1024  # bytes; a batch writes some KB, before its handlers are called and again when they are done


def is_local(checkpoint: str) -> bool:
    """Whether it is a folder and not the address of another file system."""
    return "://" not in checkpoint or checkpoint.startswith("file:")


def require_writable(checkpoint: str) -> None:
    """Write a little into a local folder, now: a full disk would show only when the handlers of a batch have run.

    Raises:
        CheckpointError: it cannot be written.
    """
    if not is_local(checkpoint):
        return
    folder = Path(checkpoint.removeprefix("file://").removeprefix("file:"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=".laneway-probe-", dir=folder, buffering=0) as probe:
            written = probe.write(os.urandom(_PROBE))
            if written < _PROBE:  # a second write tells why
                probe.write(os.urandom(_PROBE - written))
            os.fsync(probe.fileno())
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(
            f"the checkpoint folder {folder} cannot be written: {reason}. Make room and allow writing there, or give "
            f"another folder as spark.checkpoint"
        ) from error
