"""An app with a ladder whose records say how often they fail, for `laneway run support.fault_app:app`.

The first word of a value is the number of calls that fail, or -1 for a record that is rejected; when the second is
"gate", its first call waits for the file IT_GATE. More IT_* variables: IT_STEPS and IT_MODE of the ladder, IT_SECONDS
a call takes, IT_LANES. Calls that succeed, that fail and that wait are written to histories of their own, below
IT_HISTORY.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from laneway import App, Record, Reject, Retry, Topic
from laneway.devkit.history import Recorder

__all__ = ["app", "failures_of"]

_folders = [Path(os.environ.get("IT_HISTORY", ".")) / kind for kind in ("done", "failed", "waiting")]
_done, _failed, _waiting = (Recorder(str(folder)) for folder in _folders)
_seconds = float(os.environ.get("IT_SECONDS", "0"))
_gate = Path(os.environ.get("IT_GATE", "gate"))
_mode: Any = os.environ.get("IT_MODE", "unordered")

app = App(os.environ.get("IT_APP", "it"))


def failures_of(value: bytes) -> int:
    """How many calls of a record with this value fail."""
    return int(value.split()[0])


@app.setup
def make_folders() -> None:
    """Here and not at the import: a test imports this module too."""
    for folder in _folders:
        folder.mkdir(parents=True, exist_ok=True)


@app.handler(
    Topic(os.environ.get("IT_TOPIC", "it")),
    lanes=int(os.environ.get("IT_LANES", "8")),
    retry=Retry.steps(*os.environ.get("IT_STEPS", "1s").split(","), mode=_mode),
)
async def handle(record: Record[Any]) -> None:
    """Take some time, then fail if it is one of the calls that do."""
    began = time.monotonic()
    if record.attempt == 1 and record.value.split()[1:2] == [b"gate"]:
        _waiting.write(record, began)
        while not _gate.exists():  # noqa: ASYNC110, ASYNC240 - a quick look
            await asyncio.sleep(0.02)
    await asyncio.sleep(_seconds)
    failures = failures_of(record.value)
    if failures < 0:
        _failed.write(record, began)
        raise Reject("planted")
    if record.attempt <= failures:
        _failed.write(record, began)
        raise ConnectionError("planted")
    _done.write(record, began)
