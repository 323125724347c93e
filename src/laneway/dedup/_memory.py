"""MemoryDedup: ids in the memory of one process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from laneway._clock import SystemClock
from laneway.dedup._store import Entry, Refusal, Reply, Store, as_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._clock import Clock

__all__ = ["MemoryDedup"]

_SYSTEM = SystemClock()


class _Row:
    __slots__ = ("is_done", "owner", "payload", "token", "until")

    def __init__(self, payload: bytes, token: int, owner: str, until: float, *, is_done: bool) -> None:
        self.payload, self.token, self.owner, self.until, self.is_done = payload, token, owner, until, is_done


class MemoryDedup(Store):
    """Keeps ids in memory, for tests and for apps of one process whose repeats come soon. A restart forgets them.

    It takes the options of every store: ``id``, ``ttl``, ``lease``, ``on_outage``.

    Example:
        >>> from laneway import by_header
        >>> MemoryDedup(id=by_header("event-id"), ttl="1h")
        MemoryDedup()
    """

    is_shared = False

    def __init__(self, *, clock: Clock = _SYSTEM, **options: Any) -> None:
        super().__init__(**options)
        self.clock = clock
        self._rows: dict[tuple[str, str], _Row] = {}
        self._lock = threading.Lock()
        self._token = 0

    def session(self, scope: str, owner: str) -> _MemorySession:
        """A session on the same ids."""
        return _MemorySession(self, scope, owner)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the options; what is in memory stays in its process."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_rows", "clock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin empty."""
        self.__dict__.update(state)
        self.clock, self._rows, self._lock = _SYSTEM, {}, threading.Lock()

    def __repr__(self) -> str:
        """Without options."""
        return "MemoryDedup()"


class _MemorySession:
    def __init__(self, store: MemoryDedup, scope: str, owner: str) -> None:
        self._store, self._scope, self._owner = store, scope, owner
        self._rows, self._lock = store._rows, store._lock  # noqa: SLF001 - its own store

    def claim(self, ids: Sequence[str], payloads: Sequence[bytes]) -> Reply:
        """See `Session`."""
        store, now, refused = self._store, self._store.clock.wall(), {}
        until = now + store.lease.total_seconds()
        with self._lock:
            store._token += 1  # noqa: SLF001 - its own store
            token = store._token  # noqa: SLF001
            for at, (id_, payload) in enumerate(zip(ids, payloads, strict=True)):
                row = self._rows.get((self._scope, id_))
                if row is None or row.until <= now or (row.owner == self._owner and not row.is_done):
                    self._rows[self._scope, id_] = _Row(payload, token, self._owner, until, is_done=False)
                elif not row.is_done:
                    refused[at] = Refusal("claimed", row.until - now)
                else:
                    refused[at] = Refusal("done" if row.payload in (payload, b"") else "other payload")
        return Reply(token, refused)

    def finish(self, ids: Sequence[str], payloads: Sequence[bytes], tokens: Sequence[int]) -> list[str]:
        """See `Session`."""
        lost, until = [], self._store.clock.wall() + self._store.ttl.total_seconds()
        with self._lock:
            for id_, payload, token in zip(ids, payloads, tokens, strict=True):
                row = self._rows.get((self._scope, id_))
                if row is None or row.token == token:
                    self._rows[self._scope, id_] = _Row(payload, token, "", until, is_done=True)
                else:
                    lost.append(id_)
        return lost

    def release(self, ids: Sequence[str], tokens: Sequence[int]) -> None:
        """See `Session`."""
        with self._lock:
            for name, row in self._ours(ids, tokens):
                if not row.is_done:
                    del self._rows[name]

    def renew(self, ids: Sequence[str], tokens: Sequence[int]) -> None:
        """See `Session`."""
        until = self._store.clock.wall() + self._store.lease.total_seconds()
        with self._lock:
            for _, row in self._ours(ids, tokens):
                if not row.is_done:
                    row.until = until

    def get(self, id_: str) -> Entry | None:
        """See `Session`."""
        row = self._rows.get((self._scope, id_))
        if row is None or row.until <= self._store.clock.wall():
            return None
        return Entry("done" if row.is_done else "claimed", as_time(row.until), row.token, row.payload, row.owner)

    def put(self, id_: str, payload: bytes) -> None:
        """See `Session`."""
        until = self._store.clock.wall() + self._store.ttl.total_seconds()
        with self._lock:
            self._rows[self._scope, id_] = _Row(payload, 0, "", until, is_done=True)

    def delete(self, id_: str) -> bool:
        """See `Session`."""
        with self._lock:
            return self._rows.pop((self._scope, id_), None) is not None

    def purge(self) -> int:
        """See `Session`."""
        now = self._store.clock.wall()
        with self._lock:
            over = [name for name, row in self._rows.items() if row.until <= now]
            for name in over:
                del self._rows[name]
        return len(over)

    def close(self) -> None:
        """See `Session`."""

    def _ours(self, ids: Sequence[str], tokens: Sequence[int]) -> list[tuple[tuple[str, str], _Row]]:
        found = []
        for id_, token in zip(ids, tokens, strict=True):
            row = self._rows.get((self._scope, id_))
            if row is not None and row.token == token:
                found.append(((self._scope, id_), row))
        return found
