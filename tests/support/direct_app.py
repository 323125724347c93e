"""An app for `laneway run support.direct_app:app --engine direct`; all it needs comes in IT_* variables.

Calls that began and calls that ended are written to histories of their own, and so is what the engine reports of its
partitions. A record with the value ``blocked`` is not done before the file IT_GATE exists. With a topic IT_REPLIES
each call leads to a message there, which names the folder of its history.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from laneway import App, Message, Record, Topic
from laneway.devkit.history import Recorder
from laneway.events import OffsetsCommitted, PartitionsAssigned, PartitionsRevoked
from support.ownership import OwnershipRecorder

__all__ = ["BLOCKED", "app"]

BLOCKED = b"blocked"

_folder = os.environ.get("IT_HISTORY", ".")
_done, _begun, _ownership = Recorder(_folder), Recorder(f"{_folder}/begun"), OwnershipRecorder(_folder)
_seconds = float(os.environ.get("IT_SECONDS", "0"))
_gate = Path(os.environ.get("IT_GATE", "gate"))
_topic: Topic[Any] = Topic(os.environ.get("IT_TOPIC", "it"))
_replies: Topic[Any] | None = Topic(os.environ["IT_REPLIES"]) if "IT_REPLIES" in os.environ else None
_lanes = int(os.environ.get("IT_LANES", "10"))

app = App(os.environ.get("IT_APP", "it"))
app.on(PartitionsAssigned)(lambda event: _ownership.assigned(event.topic, event.partitions))
app.on(PartitionsRevoked)(lambda event: _ownership.revoked(event.topic, event.partitions, is_lost=event.is_lost))
app.on(OffsetsCommitted)(lambda event: _ownership.committed(event.topic, event.offsets))


async def wait(record: Record[Any]) -> Message[Any] | None:
    """Take some time, as if a service were asked; a record that is blocked waits for its gate."""
    began = time.monotonic()
    _begun.write(record, began, began)
    await asyncio.sleep(_seconds)
    while record.value == BLOCKED and not _gate.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.05)
    _done.write(record, began)
    return _reply(record)


def work(record: Record[Any]) -> Message[Any] | None:
    """As `wait`, on a lane's thread."""
    began = time.monotonic()
    _begun.write(record, began, began)
    time.sleep(_seconds)
    while record.value == BLOCKED and not _gate.exists():
        time.sleep(0.05)
    _done.write(record, began)
    return _reply(record)


def _reply(record: Record[Any]) -> Message[Any] | None:
    return None if _replies is None else _replies.message(Path(_folder).name.encode(), key=record.key)


_kind = os.environ.get("IT_KIND", "async")
if _kind == "processes":
    app.handler(_topic, processes=_lanes)(work)
else:
    app.handler(_topic, lanes=_lanes)({"async": wait, "sync": work}[_kind])
