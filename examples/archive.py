"""Batches of readings into SQLite, each batch in one transaction.

$ ARCHIVE=readings.db laneway run archive:app --once
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass

from laneway import App, Batch, Json, Topic

PATH = os.environ.get("ARCHIVE", "readings.db")


@dataclass
class Reading:
    sensor: str
    value: float


readings = Topic("readings", value=Json(Reading))
app = App("archive")


@app.setup
def prepare() -> None:
    """Runs once in each worker process, before its first record."""
    with closing(_connect()) as database, database:
        database.execute(
            "create table if not exists reading "
            "(part integer, position integer, sensor text, value real, primary key (part, position))"
        )


# Up to 500 readings per batch, collected for at most a second. The batches of a partition run one after the other.
@app.batch_handler(readings, size=500, within="1s")
def archive(batch: Batch[Reading]) -> None:
    rows = [(r.partition, r.offset, r.value.sensor, r.value.value) for r in batch if not r.is_tombstone]
    with closing(_connect()) as database, database:
        # After a crash some records run again. Partition and offset are the primary key, so they change nothing.
        database.executemany("insert or replace into reading values (?, ?, ?, ?)", rows)


def _connect() -> sqlite3.Connection:
    return sqlite3.connect(PATH, timeout=30)  # other workers write, too


if __name__ == "__main__":
    app.run()
