"""PostgresDedup: ids in a table of PostgreSQL."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from laneway.dedup._store import Entry, Refusal, Reply, Store, masked
from laneway.dedup._transaction import ThreadConnections, joined
from laneway.errors import DeclarationError, DedupStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from laneway._declare.record import Record
    from laneway.dedup._transaction import Claim, Claims

__all__ = ["PostgresDedup", "away", "connected"]

T = TypeVar("T")

_PATIENCE = 5  # seconds for a connection, and for a statement

_TABLES = """
CREATE SEQUENCE IF NOT EXISTS laneway_dedup_token;
CREATE TABLE IF NOT EXISTS laneway_dedup (
  scope text NOT NULL, id text NOT NULL, payload bytea NOT NULL, owner text NOT NULL, token bigint NOT NULL,
  is_done boolean NOT NULL, until timestamptz NOT NULL, PRIMARY KEY (scope, id)) WITH (fillfactor = 60);
"""
# What was not taken is looked up only when something was not: for fresh ids that would cost half as much again.
_CLAIM = """
WITH token AS MATERIALIZED (SELECT nextval('laneway_dedup_token') AS token),
taken AS (
  INSERT INTO laneway_dedup AS d (scope, id, payload, owner, token, is_done, until)
  SELECT %(scope)s, asked.id, asked.payload, %(owner)s, (SELECT token FROM token), false,
    clock_timestamp() + %(lease)s
  FROM unnest(%(ids)s::text[], %(payloads)s::bytea[]) AS asked (id, payload)
  ON CONFLICT (scope, id) DO UPDATE SET payload = excluded.payload, owner = excluded.owner, token = excluded.token,
    is_done = false, until = excluded.until
  WHERE d.until <= clock_timestamp() OR (d.owner = excluded.owner AND NOT d.is_done)
  RETURNING id)
SELECT (SELECT token FROM token), CASE WHEN (SELECT count(*) FROM taken) < cardinality(%(ids)s::text[]) THEN (
  SELECT json_agg(json_build_array(rest.id, d.is_done, encode(d.payload, 'hex'),
    extract(epoch FROM d.until - clock_timestamp())))
  FROM (SELECT unnest(%(ids)s::text[]) AS id EXCEPT SELECT id FROM taken) AS rest
  LEFT JOIN laneway_dedup d ON d.scope = %(scope)s AND d.id = rest.id) END
"""
# The tokens are those of this session, so any of them on an id says that the id is ours.
_OURS = "WHERE scope = %(scope)s AND id = ANY(%(ids)s) AND token = ANY(%(tokens)s)"
_FINISH = "UPDATE laneway_dedup SET is_done = true, owner = '', until = clock_timestamp() + %(ttl)s " + _OURS
_ABSENT = """
INSERT INTO laneway_dedup SELECT %(scope)s, id, payload, '', token, true, clock_timestamp() + %(ttl)s
FROM unnest(%(ids)s::text[], %(payloads)s::bytea[], %(each)s::bigint[]) AS absent (id, payload, token)
ON CONFLICT DO NOTHING
"""
_LOST = """
SELECT id FROM laneway_dedup
WHERE scope = %(scope)s AND id = ANY(%(ids)s) AND NOT (token = ANY(%(tokens)s))
"""
_OPEN = _OURS + " AND NOT is_done"
_RELEASE = "DELETE FROM laneway_dedup " + _OPEN
_RENEW = "UPDATE laneway_dedup SET until = clock_timestamp() + %(lease)s " + _OPEN
_GET = """
SELECT is_done, until, token, payload, owner FROM laneway_dedup
WHERE scope = %(scope)s AND id = %(id)s AND until > clock_timestamp()
"""
_PUT = """
INSERT INTO laneway_dedup VALUES (%(scope)s, %(id)s, %(payload)s, '', 0, true, clock_timestamp() + %(ttl)s)
ON CONFLICT (scope, id) DO UPDATE SET payload = excluded.payload, owner = '', token = 0, is_done = true,
  until = excluded.until
"""
_DELETE = "DELETE FROM laneway_dedup WHERE scope = %(scope)s AND id = %(id)s"
_PURGE = """
DELETE FROM laneway_dedup WHERE ctid = ANY(ARRAY(
  SELECT ctid FROM laneway_dedup WHERE until <= clock_timestamp() LIMIT 5000 FOR UPDATE SKIP LOCKED))
"""


class PostgresDedup(Store):
    """Keeps ids in a table of PostgreSQL, ``laneway_dedup``, which it creates.

    Needs ``pip install laneway[postgres]``.

    Args:
        dsn: the address, ``postgresql://user:password@host/database`` or ``host=… dbname=…``.
        options: those of every store: ``id``, ``ttl``, ``lease``, ``on_outage``.

    Example:
        >>> PostgresDedup("postgresql://shop:secret@db/shop", ttl="30d")
        PostgresDedup('postgresql://shop:***@db/shop')
    """

    def __init__(self, dsn: str, **options: Any) -> None:
        super().__init__(**options)
        self.dsn = dsn
        self._connections = ThreadConnections(partial(connected, self.dsn, repr(self), autocommit=False))

    def session(self, scope: str, owner: str) -> _PostgresSession:
        """Connect, and create the table if it does not exist."""
        return _PostgresSession(self, scope, owner)

    @contextmanager
    def transaction(self, records: Record[Any] | Iterable[Record[Any]], *, using: Any = None) -> Iterator[Any]:
        """A transaction that marks a record, or the records of a batch, as done when it commits.

        The effect and the mark are one: both are there or neither is. It belongs into the handler of this store.
        It blocks; an async handler calls it in a function for ``asyncio.to_thread``.

        Args:
            records: the record, the batch, or some records of it.
            using: a psycopg connection of your own to the same database, without an open transaction and not in
                autocommit mode; it is committed. By default one that the store keeps for each thread.

        Example::

            @app.handler(transfers, dedup=bank)
            def transfer(record: Record[Transfer]) -> None:
                with bank.transaction(record) as sql:
                    sql.execute("UPDATE account SET balance = balance - %s WHERE id = %s", record.value.debit)
        """
        connection = self._connections.get() if using is None else using
        if connection.autocommit:
            raise DeclarationError("transaction(using=…) needs a connection that is not in autocommit mode")
        with joined(self, records, connection, _mark(self), away):
            yield connection

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the options; connections stay where they are."""
        return {name: value for name, value in self.__dict__.items() if name != "_connections"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin without a connection."""
        self.__dict__.update(state)
        self._connections = ThreadConnections(partial(connected, self.dsn, repr(self), autocommit=False))

    def __eq__(self, other: object) -> bool:
        """Equal when the address is: a worker has a copy of what the code declares."""
        return isinstance(other, PostgresDedup) and self.dsn == other.dsn

    def __hash__(self) -> int:
        """Equal stores hash alike."""
        return hash(self.dsn)

    def __repr__(self) -> str:
        """Without the password."""
        return f"PostgresDedup({masked(self.dsn)!r})"


class _PostgresSession:
    def __init__(self, store: PostgresDedup, scope: str, owner: str) -> None:
        self._store, self._owner = store, owner
        self._values = {"scope": scope, "owner": owner, "lease": store.lease, "ttl": store.ttl}
        self._connection = connected(store.dsn, repr(store), autocommit=True)
        try:
            self._guarded(self._prepare)
        except DedupStoreError:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        execute = self._connection.execute
        if execute("SELECT to_regclass('laneway_dedup') IS NULL").fetchone()[0]:
            # Two that create a table at once get an error, even with IF NOT EXISTS.
            with self._connection.transaction():
                execute("SELECT pg_advisory_xact_lock(hashtext('laneway_dedup'))")
                execute(_TABLES)
        # A table that was empty a moment ago would be read as a whole, as the planner takes it for small.
        for setting in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin"):
            execute(f"SET {setting} = off")

    def claim(self, ids: Sequence[str], payloads: Sequence[bytes]) -> Reply:
        """See `Session`."""
        [(token, rest)] = self._rows(_CLAIM, ids=list(ids), payloads=list(payloads))
        refused = {}
        if rest:
            places = {id_: at for at, id_ in enumerate(ids)}
            for id_, is_done, payload, seconds in rest:
                at = places[id_]
                if is_done:
                    refused[at] = Refusal("done" if payload in (payloads[at].hex(), "") else "other payload")
                else:  # without a row another owner has claimed it since this statement began
                    refused[at] = Refusal("claimed", max(0.02, seconds or 0.0))
        return Reply(token, refused)

    def finish(self, ids: Sequence[str], payloads: Sequence[bytes], tokens: Sequence[int]) -> list[str]:
        """See `Session`."""
        values = {"ids": list(ids), "tokens": sorted(set(tokens))}
        if self._count(_FINISH, **values) == len(ids):
            return []
        # One that has vanished, because it was deleted, is done all the same.
        self._count(_ABSENT, payloads=list(payloads), each=list(tokens), **values)
        return [row[0] for row in self._rows(_LOST, **values)]

    def release(self, ids: Sequence[str], tokens: Sequence[int]) -> None:
        """See `Session`."""
        self._count(_RELEASE, ids=list(ids), tokens=sorted(set(tokens)))

    def renew(self, ids: Sequence[str], tokens: Sequence[int]) -> None:
        """See `Session`."""
        self._count(_RENEW, ids=list(ids), tokens=sorted(set(tokens)))

    def get(self, id_: str) -> Entry | None:
        """See `Session`."""
        found = self._rows(_GET, id=id_)
        return Entry("done" if found[0][0] else "claimed", *found[0][1:]) if found else None

    def put(self, id_: str, payload: bytes) -> None:
        """See `Session`."""
        self._count(_PUT, id=id_, payload=payload)

    def delete(self, id_: str) -> bool:
        """See `Session`."""
        return self._count(_DELETE, id=id_) > 0

    def purge(self) -> int:
        """See `Session`."""
        return self._count(_PURGE)

    def close(self) -> None:
        """See `Session`."""
        self._connection.close()

    def _rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._guarded(lambda: self._connection.execute(statement, {**self._values, **values}).fetchall())

    def _count(self, statement: str, **values: Any) -> int:
        return self._guarded(lambda: int(self._connection.execute(statement, {**self._values, **values}).rowcount))

    def _guarded(self, work: Callable[[], T]) -> T:
        import psycopg

        try:
            return work()
        except psycopg.Error as error:
            raise DedupStoreError(f"{self._store!r}: {_text(error)}") from error


def connected(dsn: str, store: str, *, autocommit: bool) -> Any:
    """A connection that gives up on a server that is frozen.

    Raises:
        DedupStoreError: the server does not answer.
        DeclarationError: psycopg is not installed, or the address is none.
    """
    try:
        import psycopg
    except ImportError as error:
        raise DeclarationError("PostgreSQL needs psycopg: pip install 'laneway[postgres]'") from error
    try:
        connection = psycopg.connect(
            dsn, autocommit=autocommit, connect_timeout=_PATIENCE, tcp_user_timeout=_PATIENCE * 1000
        )
        if autocommit:
            connection.execute(f"SET statement_timeout = '{_PATIENCE}s'")
    except psycopg.ProgrammingError as error:
        raise DeclarationError(f"{store}: {_text(error)}") from error
    except psycopg.Error as error:
        raise DedupStoreError(f"{store}: {_text(error)}") from error
    return connection


def away(error: BaseException) -> str | None:
    """What is wrong with the server or the connection; None when a statement is wrong."""
    import psycopg

    return _text(error) if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) else None


def _mark(store: PostgresDedup) -> Callable[[Any, Claims, Sequence[Claim]], bool]:
    def mark(connection: Any, claims: Claims, found: Sequence[Claim]) -> bool:
        values = {
            "scope": claims.scope,
            "ttl": store.ttl,
            "ids": [claim.id for claim in found],
            "tokens": sorted({claim.token for claim in found}),
        }
        return bool(connection.execute(_FINISH + " AND NOT is_done", values).rowcount == len(found))

    return mark


def _text(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
