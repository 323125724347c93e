"""The app of the scenarios with a breaker: its dependency is down while the file IT_UP is not there.

IT_APP, IT_TOPIC and IT_HISTORY are as for `support.spark_apps`; calls in vain leave a byte each in IT_VAIN.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from laneway import App, Breaker, Record, Topic
from laneway.devkit.history import Recorder

__all__ = ["app", "handle"]

_up, _vain = Path(os.environ.get("IT_UP", "up")), os.environ.get("IT_VAIN", "vain")
_recorder = Recorder(os.environ.get("IT_HISTORY", "."))

app = App(os.environ.get("IT_APP", "it"))


@app.handler(Topic(os.environ.get("IT_TOPIC", "it")), lanes=4, breaker=Breaker(1, "500ms", "2s"))
def handle(record: Record[Any]) -> None:
    """Write the call down when the dependency is up."""
    began = time.monotonic()
    if not _up.exists():
        with Path(_vain).open("ab") as file:
            file.write(b".")
        raise ConnectionError("the dependency is down")
    time.sleep(0.002)
    _recorder.write(record, began)
