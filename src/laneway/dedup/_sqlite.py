"""SqliteDedup: ids in a SQLite file, for the processes of one machine."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from laneway.dedup._store import Entry, Refusal, Reply, Store, as_time
from laneway.dedup._transaction import ThreadConnections, joined
from laneway.errors import DedupStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from laneway._declare.record import Record
    from laneway.dedup._transaction import Claim, Claims

__all__ = ["ERROR", "SqliteDedup", "away", "connected"]

T = TypeVar("T")

ERROR = sqlite3.Error
_PATIENCE = 5.0  # seconds to wait for another writer
_AWAY = frozenset(
    (
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_NOLFS,
    )
)  # fmt: skip
"""Errors that say something about the machine and nothing about the statement."""

_TABLES = """
CREATE TABLE IF NOT EXISTS laneway_dedup (
  scope TEXT NOT NULL, id TEXT NOT NULL, payload BLOB NOT NULL, owner TEXT NOT NULL, token INTEGER NOT NULL,
  is_done INTEGER NOT NULL, until REAL NOT NULL, PRIMARY KEY (scope, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS laneway_dedup_token (token INTEGER NOT NULL);
INSERT INTO laneway_dedup_token SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM laneway_dedup_token);
"""
# One statement for all ids of a call takes a third of the time of one for each.
_CLAIM = """
INSERT INTO laneway_dedup (scope, id, payload, owner, token, is_done, until)
SELECT ?1, asked.value, substr(?2, ?3 * asked.key + 1, ?3), ?4, ?5, 0, ?6 FROM json_each(?7) AS asked WHERE true
ON CONFLICT (scope, id) DO UPDATE SET payload = excluded.payload, owner = excluded.owner, token = excluded.token,
  is_done = 0, until = excluded.until
WHERE until <= ?8 OR (owner = excluded.owner AND NOT is_done)
"""
# The tokens are those of this session, so any of them on an id says that the id is ours.
_OURS = """
WHERE scope = ?2 AND id IN (SELECT value FROM json_each(?3)) AND token IN (SELECT value FROM json_each(?4))
"""
_FINISH = "UPDATE laneway_dedup SET is_done = 1, owner = '', until = ?1" + _OURS
_RENEW = "UPDATE laneway_dedup SET until = ?1" + _OURS + "AND NOT is_done"
_RELEASE = "DELETE FROM laneway_dedup" + _OURS + "AND NOT is_done AND ?1"
_FIND = """
SELECT id, payload, token, is_done, until FROM laneway_dedup
WHERE scope = ? AND id IN (SELECT value FROM json_each(?))
"""


class SqliteDedup(Store):
    """Keeps ids in a SQLite file (write-ahead log, each commit flushed to the disk). The folder must be local.

    Args:
        path: the file; created with its tables if it does not exist.
        options: those of every store: ``id``, ``ttl``, ``lease``, ``on_outage``.

    Example:
        >>> SqliteDedup("billing.db", ttl="30d")
        SqliteDedup('billing.db')
    """

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        super().__init__(**options)
        self.path = os.fspath(path)
        self._connections = ThreadConnections(partial(connected, self.path))

    def session(self, scope: str, owner: str) -> _SqliteSession:
        """Open the file, and create it if it does not exist."""
        return _SqliteSession(self, scope, owner)

    @contextmanager
    def transaction(
        self, records: Record[Any] | Iterable[Record[Any]], *, using: sqlite3.Connection | None = None
    ) -> Iterator[sqlite3.Connection]:
        """A transaction in the same file that marks a record, or the records of a batch, as done when it commits.

        The effect and the mark are one: both are there or neither is. It belongs into the handler of this store.

        Args:
            records: the record, the batch, or some records of it.
            using: a connection of your own to the same file, without an open transaction; it is committed. By default
                one that the store keeps for each thread.

        Example::

            @app.handler(transfers, dedup=bank)
            def transfer(record: Record[Transfer]) -> None:
                with bank.transaction(record) as sql:
                    sql.execute("UPDATE account SET balance = balance - ? WHERE id = ?", record.value.debit)
        """
        connection = self._connections.get() if using is None else using
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise DedupStoreError(f"{self!r}: {error}", retry_after=0.1) from error
        with joined(self, records, connection, _mark(self), away):
            yield connection

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the options; connections stay where they are."""
        return {name: value for name, value in self.__dict__.items() if name != "_connections"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin without a connection."""
        self.__dict__.update(state)
        self._connections = ThreadConnections(partial(connected, self.path))

    def __eq__(self, other: object) -> bool:
        """Equal when the address is: a worker has a copy of what the code declares."""
        return isinstance(other, SqliteDedup) and self.path == other.path

    def __hash__(self) -> int:
        """Equal stores hash alike."""
        return hash(self.path)

    def __repr__(self) -> str:
        """As in code."""
        return f"SqliteDedup({self.path!r})"


class _SqliteSession:
    def __init__(self, store: SqliteDedup, scope: str, owner: str) -> None:
        self._store, self._scope, self._owner = store, scope, owner
        self._ttl, self._lease = store.ttl.total_seconds(), store.lease.total_seconds()
        self._connection = self._guarded(lambda: connected(store.path))

    def claim(self, ids: Sequence[str], payloads: Sequence[bytes]) -> Reply:
        """See `Session`."""
        return self._guarded(lambda: self._claim(ids, payloads))

    def _claim(self, ids: Sequence[str], payloads: Sequence[bytes]) -> Reply:
        sql, scope, owner, refused = self._connection, self._scope, self._owner, {}
        with _writing(sql):
            [token] = sql.execute("UPDATE laneway_dedup_token SET token = token + 1 RETURNING token").fetchone()
            now = time.time()  # after the wait for other writers
            until = now + self._lease
            asked = json.dumps(list(ids))
            hashes, width = b"".join(payloads), len(payloads[0])
            count = sql.execute(_CLAIM, (scope, hashes, width, owner, token, until, asked, now)).rowcount
            if count != len(ids):
                found = {row[0]: row[1:] for row in sql.execute(_FIND, (scope, asked))}
                for at, (id_, payload) in enumerate(zip(ids, payloads, strict=True)):
                    known, of, is_done, end = found[id_]
                    if of == token and not is_done:
                        continue
                    if not is_done:
                        refused[at] = Refusal("claimed", end - now)
                    else:
                        refused[at] = Refusal("done" if known in (payload, b"") else "other payload")
        return Reply(token, refused)

    def finish(self, ids: Sequence[str], payloads: Sequence[bytes], tokens: Sequence[int]) -> list[str]:
        """See `Session`."""
        return self._guarded(lambda: _finished(self._connection, self._scope, self._ttl, ids, payloads, tokens))

    def release(self, ids: Sequence[str], tokens: Sequence[int]) -> None:
        """See `Session`."""
        self._write(_RELEASE, (1, self._scope, *_json(ids, tokens)))

    def renew(self, ids: Sequence[str], tokens: Sequence[int]) -> None:
        """See `Session`."""
        self._write(_RENEW, (time.time() + self._lease, self._scope, *_json(ids, tokens)))

    def get(self, id_: str) -> Entry | None:
        """See `Session`."""
        statement = "SELECT is_done, until, token, payload, owner FROM laneway_dedup WHERE scope = ? AND id = ?"
        row = self._guarded(lambda: self._connection.execute(statement, (self._scope, id_)).fetchone())
        if row is None or row[1] <= time.time():
            return None
        return Entry("done" if row[0] else "claimed", as_time(row[1]), *row[2:])

    def put(self, id_: str, payload: bytes) -> None:
        """See `Session`."""
        statement = "INSERT OR REPLACE INTO laneway_dedup VALUES (?, ?, ?, '', 0, 1, ?)"
        self._write(statement, (self._scope, id_, payload, time.time() + self._ttl))

    def delete(self, id_: str) -> bool:
        """See `Session`."""
        return self._write("DELETE FROM laneway_dedup WHERE scope = ? AND id = ?", (self._scope, id_)) > 0

    def purge(self) -> int:
        """See `Session`."""
        # First found, then deleted: a search that writes would keep all others from writing.
        find = "SELECT scope, id FROM laneway_dedup WHERE until <= ? LIMIT 5000"
        found = self._guarded(lambda: self._connection.execute(find, (time.time(),)).fetchall())
        statement = "DELETE FROM laneway_dedup WHERE scope = ? AND id = ? AND until <= ?"
        for scope, id_ in found:
            self._write(statement, (scope, id_, time.time()))
        return len(found)

    def close(self) -> None:
        """See `Session`."""
        self._connection.close()

    def _write(self, statement: str, values: Sequence[Any]) -> int:
        def write() -> int:
            with _writing(self._connection):
                return self._connection.execute(statement, values).rowcount

        return self._guarded(write)

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except sqlite3.Error as error:
            raise DedupStoreError(f"{self._store!r}: {error}") from error


def connected(path: str) -> sqlite3.Connection:
    """A connection that begins and commits transactions when it is asked to, with the tables of laneway."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    sql = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    sql.execute("PRAGMA journal_mode = WAL")
    # With NORMAL a power failure could take back what is committed, also the effect of a record whose offset is safe.
    sql.execute("PRAGMA synchronous = FULL")
    with _writing(sql):
        for statement in filter(str.strip, _TABLES.split(";")):
            sql.execute(statement)
    return sql


def _finished(
    sql: sqlite3.Connection,
    scope: str,
    ttl: float,
    ids: Sequence[str],
    payloads: Sequence[bytes],
    tokens: Sequence[int],
) -> list[str]:
    """Mark ids as done in a transaction of its own; those that another owner has claimed."""
    until, lost, asked = time.time() + ttl, [], _json(ids, tokens)
    with _writing(sql):
        if sql.execute(_FINISH, (until, scope, *asked)).rowcount != len(ids):
            # One that has vanished, because it was deleted, is done all the same.
            absent = "INSERT OR IGNORE INTO laneway_dedup VALUES (?, ?, ?, '', ?, 1, ?)"
            sql.executemany(absent, [(scope, *row, until) for row in zip(ids, payloads, tokens, strict=True)])
            found = {row[0]: row for row in sql.execute(_FIND, (scope, asked[0]))}
            lost = [id_ for id_, token in zip(ids, tokens, strict=True) if found[id_][2] != token]
    return lost


def away(error: BaseException) -> str | None:
    """What is wrong with the file or the machine; None when a statement is wrong."""
    if isinstance(error, sqlite3.OperationalError) and (error.sqlite_errorcode & 0xFF) in _AWAY:
        return str(error)
    return None


def _mark(store: SqliteDedup) -> Callable[[sqlite3.Connection, Claims, Sequence[Claim]], bool]:
    statement = _FINISH + "AND NOT is_done"

    def mark(sql: sqlite3.Connection, claims: Claims, found: Sequence[Claim]) -> bool:
        until = time.time() + store.ttl.total_seconds()
        asked = _json([claim.id for claim in found], [claim.token for claim in found])
        return sql.execute(statement, (until, claims.scope, *asked)).rowcount == len(found)

    return mark


def _json(ids: Sequence[str], tokens: Sequence[int]) -> tuple[str, str]:
    return json.dumps(list(ids)), json.dumps(list(set(tokens)))


@contextmanager
def _writing(sql: sqlite3.Connection) -> Iterator[None]:
    """A transaction that takes the lock of writers at once: one that has read before could not get it any more."""
    sql.execute("BEGIN IMMEDIATE")
    try:
        yield
        sql.execute("COMMIT")
    except BaseException:
        if sql.in_transaction:
            sql.execute("ROLLBACK")
        raise
