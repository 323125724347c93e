"""Transactions of a handler that mark its record as done: the effect and the mark are one."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from laneway._declare.record import Record
from laneway.errors import ClaimedError, DedupError, DedupStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["Claim", "Claims", "ThreadConnections", "current", "joined"]


class Claim(NamedTuple):
    """One record, as a store knows it."""

    id: str
    payload: bytes
    token: int


class Claims(Protocol):
    """The claims of the call that runs."""

    store: Any
    scope: str

    def of(self, records: Sequence[Record[Any]]) -> Sequence[Any]:
        """What a transaction of some records marks, in one order for all processes."""
        ...

    def committed(self, records: Sequence[Record[Any]]) -> None:
        """The marks of these records are committed."""
        ...

    def forget(self, records: Sequence[Record[Any]]) -> None:
        """What the store knows of these records is unknown: it is asked again before the next call."""
        ...


current: ContextVar[Claims | None] = ContextVar("laneway_claims", default=None)
"""Set while a handler with a store is called, in its thread or task."""


class ThreadConnections:
    """One connection for each thread that asks; a thread that ends closes its own, and none survives a fork."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._kept = threading.local()

    def get(self) -> Any:
        """That of this thread."""
        kept = getattr(self._kept, "own", None)
        if kept is None or kept.process != os.getpid() or getattr(kept.connection, "closed", False):
            kept = self._kept.own = _Kept(self._connect())
        return kept.connection


class _Kept:
    def __init__(self, connection: Any) -> None:
        self.connection, self.process = connection, os.getpid()

    def __del__(self) -> None:
        if self.process == os.getpid():
            self.connection.close()


@contextmanager
def joined(
    store: Any,
    records: Record[Any] | Iterable[Record[Any]],
    connection: Any,
    mark: Callable[[Any, Claims, Sequence[Any]], bool],
    unavailable: Callable[[BaseException], str | None],
) -> Iterator[Any]:
    """A transaction of *connection*, which is committed with the marks of the records, or rolled back.

    Args:
        store: that of the handler.
        records: one record or several.
        connection: has begun a transaction, or begins one with its first statement.
        mark: writes the marks; whether all claims are still ours.
        unavailable: says what is wrong if an error means that the database is away, whatever was executed.

    Raises:
        ClaimedError: another process has claimed a record meanwhile; nothing was changed.
        DedupStoreError: the database is away; whether the commit has happened is found out before the next call.
    """
    claims = current.get()
    if claims is None or claims.store != store:
        raise DedupError(f"no handler with dedup={store!r} is called here; transaction() is for its handler")
    chosen = [records] if isinstance(records, Record) else list(records)
    try:
        found = claims.of(chosen)
        yield connection
        is_ours = mark(connection, claims, found)
        if is_ours:
            connection.commit()
        else:
            connection.rollback()
    except BaseException as error:
        reason = unavailable(error)
        _roll_back(connection)
        if reason is None:
            raise
        claims.forget(chosen)
        raise DedupStoreError(f"{store!r}: {reason}", retry_after=0.1) from error
    if not is_ours:
        claims.forget(chosen)
        raise ClaimedError("another process has claimed the record while it was handled", retry_after=0.02)
    claims.committed(chosen)


def _roll_back(connection: Any) -> None:
    try:
        connection.rollback()
    except Exception:  # noqa: BLE001 - the connection is gone, and the transaction with it
        return
