"""An app with a ladder, for `laneway run support.ladder_app:app`; all it needs comes in IT_* variables.

One record in ten fails: by a hash of its value, half of these at their first call only and half always. Calls that
succeed and calls that fail are written to histories of their own, below IT_HISTORY.
"""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from typing import Any

from laneway import App, Record, Retry, Topic
from laneway.devkit.history import Recorder
from support import doors

__all__ = ["app", "fate"]

_folder = os.environ.get("IT_HISTORY", ".")
_done, _failed = Recorder(os.path.join(_folder, "done")), Recorder(os.path.join(_folder, "failed"))  # noqa: PTH118
_seconds = float(os.environ.get("IT_SECONDS", "0.005"))
_mode: Any = os.environ.get("IT_MODE", "unordered")
_steps = os.environ.get("IT_STEPS", "1s,2s").split(",")

if "IT_COMMIT_INTERVAL" in os.environ:
    doors.set_commit_interval(float(os.environ["IT_COMMIT_INTERVAL"]))

app = App(os.environ.get("IT_APP", "it"))


def fate(value: bytes) -> str:
    """How a record with this value ends."""
    return {3: "recovers", 13: "parked"}.get(zlib.crc32(value) % 20, "handled")


@app.handler(
    Topic(os.environ.get("IT_TOPIC", "it")),
    lanes=int(os.environ.get("IT_LANES", "40")),
    retry=Retry.steps(*_steps, mode=_mode),
)
async def handle(record: Record[Any]) -> None:
    """Take some time, then fail if that is the record's fate."""
    began = time.monotonic()
    await asyncio.sleep(_seconds)
    destiny = fate(record.value)
    if destiny == "parked" or (destiny == "recovers" and record.attempt == 1):
        _failed.write(record, began)
        raise ConnectionError(destiny)
    _done.write(record, began)
