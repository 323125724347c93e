"""Money moves between accounts, each movement once, whatever is killed or written twice.

$ BANK=bank.db laneway run bank:app --once
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass

from laneway import App, Json, Record, Reject, Retry, Topic, by_field
from laneway.dedup import SqliteDedup

PATH = os.environ.get("BANK", "bank.db")
SLOW = float(os.environ.get("BANK_SLOW", "0"))  # seconds a movement takes, to have time for a kill
ACCOUNTS, START = 50, 1_000


@dataclass
class Movement:
    id: str
    source: str
    target: str
    cents: int


movements = Topic("movements", value=Json(Movement))
# The store is in the file of the accounts, so a movement and the mark that it is done are one transaction.
bank = SqliteDedup(PATH, id=by_field("id"), lease="5s")
app = App("bank", guarantee="effectively_once", dedup=bank)


@app.setup
def prepare() -> None:
    """Runs once in each worker process, before its first record."""
    with closing(sqlite3.connect(PATH, timeout=30)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("create table if not exists account (id text primary key, cents integer check (cents >= 0))")
        rows = [(f"account-{number}", START) for number in range(ACCOUNTS)]
        database.executemany("insert or ignore into account values (?, ?)", rows)


@app.handler(movements, lanes=4, retry=Retry(attempts=3))
def move(record: Record[Movement]) -> None:
    movement = record.value
    with bank.transaction(record) as sql:
        taken = sql.execute(
            "update account set cents = cents - ?1 where id = ?2 and cents >= ?1", (movement.cents, movement.source)
        )
        if not taken.rowcount:
            raise Reject(f"{movement.source} has less than {movement.cents} cents")
        time.sleep(SLOW)
        sql.execute("update account set cents = cents + ? where id = ?", (movement.cents, movement.target))


if __name__ == "__main__":
    app.run()
