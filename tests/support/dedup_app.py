"""An app whose handler writes one row for each record, for `laneway run support.dedup_app:app`; see IT_* below.

IT_STORE is the address of the store. With an SQL store the row is written in the store's transaction; with Redis into
the SQLite file IT_EFFECTS, on its own. The process kills itself once at the record IT_DIES, before its effect or after
it (IT_PHASE), when the file IT_ARMED exists.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laneway import App, Batch, Record, Retry, Topic
from laneway.dedup import OffsetDedup, store_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["app"]

_url = os.environ.get("IT_STORE", "memory:")
_effects = os.environ.get("IT_EFFECTS", "")
_armed = Path(os.environ.get("IT_ARMED", "armed"))
_dies = os.environ.get("IT_DIES", "").encode()
_seconds = float(os.environ.get("IT_SECONDS", "0"))
_lock = threading.Lock()


def own_id(record: Record[Any]) -> Any:
    """The value is the id."""
    return record.raw


store: Any = (
    OffsetDedup(_url)
    if os.environ.get("IT_OFFSETS")
    else store_of(_url, id=own_id, lease=os.environ.get("IT_LEASE", "2s"))
)
topic: Topic[Any] = Topic(os.environ.get("IT_TOPIC", "it"))
app = App(os.environ.get("IT_APP", "it"), guarantee="effectively_once", dedup=store)
_options: dict[str, Any] = {"retry": Retry(attempts=100, backoff="20ms", backoff_max="200ms")}


def _may_die(phase: str, values: Sequence[bytes]) -> None:
    if _dies in values and os.environ.get("IT_PHASE") == phase:
        try:
            _armed.unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def work(records: Record[Any] | Batch[Any], values: list[bytes]) -> None:
    _may_die("claimed", values)
    time.sleep(_seconds)
    rows = [(value.decode(),) for value in values]
    if hasattr(store, "transaction"):
        with store.transaction(records) as sql:
            mark = "?" if isinstance(sql, sqlite3.Connection) else "%s"
            sql.cursor().executemany(f"INSERT INTO effect VALUES ({mark})", rows)  # noqa: S608
    else:
        with _lock, closing(sqlite3.connect(_effects, timeout=20)) as sql, sql:
            sql.executemany("INSERT INTO effect VALUES (?)", rows)
    _may_die("effect", values)


if os.environ.get("IT_KIND") == "batch":

    @app.batch_handler(topic, size=50, within="20ms", lanes=2, **_options)
    def handle(batch: Batch[Any]) -> None:
        work(batch, [value for value in batch.values if value is not None])

elif os.environ.get("IT_OFFSETS"):

    @app.handler(topic, **_options)
    def handle(record: Record[Any]) -> None:
        work(record, [record.value])

else:

    @app.handler(topic, lanes=8, **_options)
    def handle(record: Record[Any]) -> None:
        work(record, [record.value])
