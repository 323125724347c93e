"""An app whose records all fail at first and are run again from the error topic; configured by IT_* variables.

IT_APP and IT_TOPIC name the app and its topic; IT_HISTORY is the folder of the calls that succeed, IT_SECONDS what each
call of a parked record takes. A record whose value ends in ``bad`` fails again.
"""

from __future__ import annotations

import os
import time
from typing import Any

from laneway import App, Record, Topic
from laneway.devkit.history import Recorder

__all__ = ["app", "handle"]

_seconds = float(os.environ.get("IT_SECONDS", "0"))
_recorder = Recorder(os.environ.get("IT_HISTORY", "."))

app = App(os.environ.get("IT_APP", "it"))


@app.handler(Topic(os.environ.get("IT_TOPIC", "it")), lanes=8)
def handle(record: Record[Any]) -> None:
    """Fail when the record comes from its own topic."""
    if record.origin is None:
        raise ConnectionError("not yet")
    began = time.monotonic()
    time.sleep(_seconds)
    if (record.raw or b"").endswith(b"bad"):
        raise ValueError("never")
    _recorder.write(record, began)
