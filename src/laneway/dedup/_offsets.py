"""OffsetDedup: the next offset of each partition, kept in the database that the handler writes to."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from laneway.dedup import _postgres, _sqlite
from laneway.dedup._store import masked
from laneway.dedup._transaction import ThreadConnections, current, joined
from laneway.errors import ClaimedError, DeclarationError, DedupError, DedupStoreError, Duplicate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from laneway._declare.record import Record

    Log = tuple[str, int]

__all__ = ["OffsetDedup", "OffsetStage"]

_PAUSE = 1.0  # seconds between tries while the database is away
_TABLE = """
CREATE TABLE IF NOT EXISTS laneway_offsets (
  scope text NOT NULL, topic text NOT NULL, partition integer NOT NULL, next_offset bigint NOT NULL,
  newest bigint NOT NULL, PRIMARY KEY (scope, topic, partition))
"""
_READ = "SELECT next_offset, newest FROM laneway_offsets WHERE scope = ? AND topic = ? AND partition = ?"
_FIRST = "INSERT INTO laneway_offsets VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_NEXT = (
    "UPDATE laneway_offsets SET next_offset = ?, newest = ? "
    "WHERE scope = ? AND topic = ? AND partition = ? AND next_offset = ? AND newest = ?"
)


class _Known(NamedTuple):
    """What the table says of a partition."""

    next_offset: int
    newest: int
    """The highest timestamp so far. A record below the offset with a later one is of a topic that was recreated."""

    def has(self, record: Record[Any]) -> bool:
        return record.offset < self.next_offset and record.timestamp <= self.newest


class _Step(NamedTuple):
    """What a transaction changes."""

    log: Log
    seen: _Known | None
    then: _Known


class OffsetDedup:
    """Keeps one row for each partition, with the next offset, in the transaction of the handler. Records need no id.

    Nothing grows and nothing expires, and a call costs one statement more. It sees redelivered records, not messages
    that a producer has written twice. Records of a partition are handled in order, so lanes do not help.

    Args:
        url: ``postgresql://…`` or ``sqlite:file.db``.

    Example:
        >>> OffsetDedup("sqlite:bank.db")
        OffsetDedup('sqlite:bank.db')
    """

    is_shared = True
    in_order = True

    def __init__(self, url: str) -> None:
        self.url = url
        self._path = _path(url)
        if not self._path and not url.startswith(("postgresql:", "postgres:")):
            raise DeclarationError(f"OffsetDedup({masked(url)!r}): write postgresql://… or sqlite:file.db")
        self._connections = ThreadConnections(partial(_connect, self.url, autocommit=False))

    def check(self) -> None:
        """Create the table."""
        self.connect(autocommit=True).close()

    @contextmanager
    def transaction(self, records: Record[Any] | Iterable[Record[Any]], *, using: Any = None) -> Iterator[Any]:
        """A transaction that moves the next offset behind a record, or behind the records of a batch.

        Effect and offset are one: both are there or neither is. It belongs into the handler of this store. A handler
        that returns without it has had no effect, and the record is finished.

        Args:
            records: the record or the batch.
            using: a connection of your own to the same database, without an open transaction; it is committed. By
                default one that the store keeps for each thread.

        Example::

            @app.batch_handler(clicks, size=1000, dedup=warehouse)
            def load(batch: Batch[Click]) -> None:
                with warehouse.transaction(batch) as sql:
                    sql.cursor().executemany("INSERT INTO click VALUES (%s, %s)", batch.values)
        """
        connection = self._connections.get() if using is None else using
        if self._path:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except _sqlite.ERROR as error:
                raise DedupStoreError(f"{self!r}: {error}", retry_after=0.1) from error
        with joined(self, records, connection, self._mark, self.away):
            yield connection

    def connect(self, *, autocommit: bool) -> Any:
        """A new connection; the table exists afterwards."""
        return _connect(self.url, autocommit=autocommit)

    def away(self, error: BaseException) -> str | None:
        """What is wrong with the database; None when a statement is wrong."""
        return _sqlite.away(error) if self._path else _postgres.away(error)

    def sql(self, statement: str) -> str:
        """A statement with the placeholders of the database."""
        return statement if self._path else statement.replace("?", "%s")

    def stage(self, scope: str, *, is_batch: bool) -> OffsetStage:
        """What a handler's calls go through."""
        return OffsetStage(self, scope, is_batch=is_batch)

    def _mark(self, connection: Any, claims: Any, steps: Sequence[_Step]) -> bool:
        for (topic, partition), seen, then in steps:
            place = (claims.scope, topic, partition)
            if seen is None:
                done = connection.execute(self.sql(_FIRST), (*place, *then))
            else:
                done = connection.execute(self.sql(_NEXT), (*then, *place, *seen))
            if done.rowcount != 1:
                return False
        return True

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the address; connections stay where they are."""
        return {name: value for name, value in self.__dict__.items() if name != "_connections"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin without a connection."""
        self.__dict__.update(state)
        self._connections = ThreadConnections(partial(_connect, self.url, autocommit=False))

    def __eq__(self, other: object) -> bool:
        """Equal when the address is: a worker has a copy of what the code declares."""
        return isinstance(other, OffsetDedup) and self.url == other.url

    def __hash__(self) -> int:
        """Equal stores hash alike."""
        return hash(self.url)

    def __repr__(self) -> str:
        """Without the password."""
        return f"OffsetDedup({masked(self.url)!r})"


class OffsetStage:
    """Which records of a handler are below the next offsets of their partitions. Any thread may call it."""

    def __init__(self, store: OffsetDedup, scope: str, *, is_batch: bool) -> None:
        self.store, self.scope = store, scope
        self._is_batch = is_batch
        self.wake: Callable[[], None] | None = None
        self.away_until = 0.0
        self.pending = self.unclaimed = 0
        self._lock = threading.Lock()
        self._connection: Any = None
        self._known: dict[Log, _Known | None] = {}
        self._called: dict[Log, set[int]] = {}
        """Offsets of records whose turn runs."""
        self._trouble: dict[Log, DedupStoreError] = {}

    def begin(self, records: Sequence[Record[Any]]) -> None:
        """Read the next offsets of partitions that are not known yet."""
        current.set(self)
        with self._lock:
            for record in records:
                log = (record.topic, record.partition)
                self._called.setdefault(log, set()).add(record.offset)
                if log not in self._known:
                    self._read(log)

    async def begin_async(self, records: Sequence[Record[Any]]) -> None:
        """As `begin`, for a lane on an event loop."""
        current.set(self)
        await asyncio.to_thread(self.begin, records)

    def _read(self, log: Log) -> None:
        store = self.store
        try:
            if self._connection is None:
                self._connection = store.connect(autocommit=True)
            row = self._connection.execute(store.sql(_READ), (self.scope, *log)).fetchone()
        except Exception as error:  # noqa: BLE001 - no lane may end because of a database
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            self.away_until = time.monotonic() + _PAUSE
            is_known = isinstance(error, DedupStoreError)
            self._trouble[log] = error if is_known else DedupStoreError(f"{store!r}: {error}")  # type: ignore[assignment]
            return
        self._trouble.pop(log, None)
        self._known[log] = None if row is None else _Known(*row)

    def check(self, record: Record[Any]) -> None:
        """Say whether a record may be called now.

        Raises:
            Duplicate: it is below the next offset.
            DedupStoreError: the database is away.
        """
        log = (record.topic, record.partition)
        if log not in self._known:
            raise self._trouble.get(log) or ClaimedError("its partition's next offset must be read", retry_after=0.02)
        known = self._known[log]
        if known is not None and known.has(record):
            raise Duplicate

    def of(self, records: Sequence[Record[Any]]) -> Sequence[_Step]:
        """How the next offsets move behind some records."""
        steps = []
        by_log: dict[Log, list[Record[Any]]] = {}
        for record in records:
            by_log.setdefault((record.topic, record.partition), []).append(record)
        for log, own in sorted(by_log.items()):
            last, known = max(record.offset for record in own), self._known.get(log)
            offsets = {record.offset for record in own}
            left = [offset for offset in self._called.get(log, ()) if offset < last and offset not in offsets]
            if self._is_batch and any(known is None or offset >= known.next_offset for offset in left):
                raise DedupError(
                    "a transaction of OffsetDedup takes all records of a batch: those that it leaves out would lie "
                    "below the next offset, and never be handled"
                )
            newest = max(record.timestamp for record in own)
            if known is not None and last >= known.next_offset:
                newest = max(newest, known.newest)
            steps.append(_Step(log, known, _Known(last + 1, newest)))
        return steps

    def committed(self, records: Sequence[Record[Any]]) -> None:
        """A transaction of the handler has moved behind these."""
        with self._lock:
            for log, _, then in self.of(records):
                self._known[log] = then

    def forget(self, records: Sequence[Record[Any]]) -> None:
        """Read the next offsets again before the next call of these."""
        with self._lock:
            for record in records:
                self._known.pop((record.topic, record.partition), None)

    def ended(self, records: Iterable[Record[Any]]) -> None:
        """The turn of these records is over."""
        with self._lock:
            for record in records:
                self._called.get((record.topic, record.partition), set()).discard(record.offset)

    def mark(self, records: Sequence[Record[Any]]) -> Sequence[Record[Any]]:
        """The handler's transaction has marked them: there is nothing to write."""
        return records

    def confirmed(self) -> list[Record[Any]]:
        """None: nothing is written here."""
        return []

    def finished(self, records: Iterable[Record[Any]]) -> None:
        """Nothing is held."""

    def leave(self, topic: str, partition: int) -> None:
        """A partition was given away: others may move its offset now."""
        with self._lock:
            self._known.pop((topic, partition), None)

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            connection, self._connection = self._connection, None
            self._known.clear()
        if connection is not None:
            connection.close()


def _connect(url: str, *, autocommit: bool) -> Any:
    if url.startswith("sqlite:"):
        connection: Any = _sqlite.connected(_path(url))
    else:
        connection = _postgres.connected(url, f"OffsetDedup({masked(url)!r})", autocommit=autocommit)
    connection.execute(_TABLE)
    connection.commit()
    return connection


def _path(url: str) -> str:
    """The file of an address of SQLite; empty for others."""
    scheme, _, rest = url.partition(":")
    return rest.removeprefix("//") if scheme == "sqlite" else ""
