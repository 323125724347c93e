"""Stores of handled records, so that a record that comes again has no second effect: see docs/once.md."""

from laneway.dedup._client import DedupClient
from laneway.dedup._inline import InlineClient
from laneway.dedup._memory import MemoryDedup
from laneway.dedup._offsets import OffsetDedup
from laneway.dedup._postgres import PostgresDedup
from laneway.dedup._redis import RedisDedup
from laneway.dedup._sqlite import SqliteDedup
from laneway.dedup._stage import HandlerDedup
from laneway.dedup._store import Entry, Store
from laneway.dedup._url import id_source, store_of
from laneway.typing import DedupStore

__all__ = [
    "DedupClient",
    "DedupStore",
    "Entry",
    "HandlerDedup",
    "InlineClient",
    "MemoryDedup",
    "OffsetDedup",
    "PostgresDedup",
    "RedisDedup",
    "SqliteDedup",
    "Store",
    "id_source",
    "store_of",
]
