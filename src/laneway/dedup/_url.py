"""Stores by their address, as configurations and commands name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from laneway._declare.ordering import by_field, by_header
from laneway.dedup._memory import MemoryDedup
from laneway.dedup._postgres import PostgresDedup
from laneway.dedup._redis import RedisDedup
from laneway.dedup._sqlite import SqliteDedup
from laneway.dedup._store import masked, origin
from laneway.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway._declare.record import Record
    from laneway.dedup._store import Store

__all__ = ["id_source", "store_of"]


def id_source(text: str) -> Callable[[Record[Any]], Any]:
    """What gives the id of a record: ``header:NAME``, ``field:PATH`` or ``origin``."""
    kind, _, name = text.partition(":")
    if kind == "header":
        return by_header(name)
    return by_field(name) if kind == "field" else origin


def store_of(url: str, **options: Any) -> Store:
    """The store at an address.

    Args:
        url: ``redis://…``, ``rediss://…``, ``postgresql://…``, ``sqlite:file.db``, ``sqlite:///absolute/file.db`` or
            ``memory:``.
        options: those of every store: ``id``, ``ttl``, ``lease``, ``on_outage``.
    """
    scheme, _, rest = url.partition(":")
    if scheme in ("redis", "rediss", "unix"):
        return RedisDedup(url, **options)
    if scheme in ("postgresql", "postgres"):
        return PostgresDedup(url, **options)
    if scheme == "sqlite" and rest:
        return SqliteDedup(unquote(rest.removeprefix("//")), **options)
    if scheme == "memory":
        return MemoryDedup(**options)
    raise DeclarationError(
        f"{masked(url)!r} is not the address of a dedup store: write redis://…, postgresql://…, "
        "sqlite:file.db or memory:"
    )
