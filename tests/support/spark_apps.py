"""Apps that the scenarios run with `laneway run support.spark_apps:app`; all they need comes in IT_* variables.

IT_APP and IT_TOPIC name the app and its topic; IT_HISTORY is the folder of the calls. The rest is optional:
IT_SECONDS a call takes, IT_LANES, IT_KIND (sync, async), IT_GATE a file that calls wait for, IT_OUTPUT a topic that
gets a copy of each record, IT_HOOKS a file in which setup and cleanup hooks are written down, IT_CORES
how many cores the driver may use, IT_PROCESSES. A record whose value begins with ``poison`` is rejected.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from laneway import App, Message, Record, Reject, Topic
from laneway.devkit.history import Recorder

__all__ = ["app", "handle", "handle_async"]

_seconds = float(os.environ.get("IT_SECONDS", "0.01"))
_lanes = int(os.environ.get("IT_LANES", "8"))
_gate = os.environ.get("IT_GATE", "")
_output = os.environ.get("IT_OUTPUT", "")
_recorder = Recorder(os.environ.get("IT_HISTORY", "."))

if os.environ.get("IT_CORES"):  # of this process; those of a cluster's executors do not have the variable
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(os.environ["IT_CORES"])])

app = App(os.environ.get("IT_APP", "it"))


def _answer(record: Record[Any], began: float) -> Message[Any] | None:
    _recorder.write(record, began)
    if (record.raw or b"").startswith(b"poison"):
        raise Reject("poison")
    if _output:
        return Topic(_output).message(record.raw, key=record.key, headers=record.headers)
    return None


def _note(word: str) -> None:
    with Path(os.environ["IT_HOOKS"]).open("a") as notes:
        notes.write(f"{os.getpid()} {word}\n")


async def _note_later(word: str) -> None:
    await asyncio.sleep(0.01)
    _note(word)


if os.environ.get("IT_HOOKS"):
    app.setup(lambda: _note("setup"))
    app.cleanup(lambda: _note("cleanup"))
    app.cleanup(lambda: _note_later("async cleanup"))


def handle(record: Record[Any]) -> Message[Any] | None:
    """Take the time asked for, write the call down, answer."""
    began = time.monotonic()
    while _gate and not Path(_gate).exists():
        time.sleep(0.05)
    time.sleep(_seconds)
    return _answer(record, began)


async def handle_async(record: Record[Any]) -> Message[Any] | None:
    """As `handle`, on an event loop."""
    began = time.monotonic()
    while _gate and not Path(_gate).exists():  # noqa: ASYNC110, ASYNC240 - a quick look
        await asyncio.sleep(0.05)
    await asyncio.sleep(_seconds)
    return _answer(record, began)


app.handler(Topic(os.environ.get("IT_TOPIC", "it")), lanes=_lanes, processes=int(os.environ.get("IT_PROCESSES", "0")))(
    handle_async if os.environ.get("IT_KIND") == "async" else handle
)
