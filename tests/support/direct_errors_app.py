"""An app whose records all fail at first and are run again from the error topic, on the direct engine.

All it needs comes in IT_* variables. A call of a parked record takes IT_SECONDS until the file IT_GATE exists, and no
time after that; a record whose value ends in ``bad`` fails again. Calls of parked records that began and those that
succeeded are written to histories of their own, and so is what the engine reports of its partitions. With IT_EVERY
parked records are run every so many seconds.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laneway import App, ErrorConsumer, Record, Topic
from laneway.devkit.history import Recorder
from laneway.events import OffsetsCommitted, PartitionsAssigned, PartitionsRevoked
from support.ownership import OwnershipRecorder

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["Every", "app", "every"]


class Every:
    """A schedule that no cron can write."""

    def __init__(self, seconds: float) -> None:
        self._pause = timedelta(seconds=seconds)

    def next_after(self, moment: datetime) -> datetime:
        return moment + self._pause


def every(seconds: float) -> ErrorConsumer:
    """Handles everything that is parked, every so many seconds."""
    made = ErrorConsumer(stop_when_new="0s", max_errors=None)
    object.__setattr__(made, "schedule", Every(seconds))
    return made


_folder = os.environ.get("IT_HISTORY", ".")
_done, _begun, _ownership = Recorder(_folder), Recorder(f"{_folder}/begun"), OwnershipRecorder(_folder)
_seconds = float(os.environ.get("IT_SECONDS", "0"))
_gate = Path(os.environ.get("IT_GATE", "gate"))
_every = float(os.environ.get("IT_EVERY", "0"))

app = App(os.environ.get("IT_APP", "it"))
app.errors = every(_every) if _every else ErrorConsumer(stop_when_new="0s", max_errors=None)

app.on(PartitionsAssigned)(lambda event: _ownership.assigned(event.topic, event.partitions))
app.on(PartitionsRevoked)(lambda event: _ownership.revoked(event.topic, event.partitions, is_lost=event.is_lost))
app.on(OffsetsCommitted)(lambda event: _ownership.committed(event.topic, event.offsets))


@app.handler(Topic(os.environ.get("IT_TOPIC", "it")), lanes=int(os.environ.get("IT_LANES", "8")))
def handle(record: Record[Any]) -> None:
    """Fail when the record comes from its own topic."""
    if record.origin is None:
        raise ConnectionError("not yet")
    began = time.monotonic()
    _begun.write(record, began, began)
    if not _gate.exists():
        time.sleep(_seconds)
    if (record.raw or b"").endswith(b"bad"):
        raise ValueError("never")
    _done.write(record, began)
