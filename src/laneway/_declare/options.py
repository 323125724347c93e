"""Options that handlers have in common: their defaults, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from laneway._declare.handler import Buffer
from laneway._declare.retry import Retry
from laneway._declare.units import Duration, as_duration
from laneway.errors import DeclarationError

if TYPE_CHECKING:
    from datetime import timedelta

    from laneway._declare.breaker import Breaker
    from laneway.typing import DedupStore

__all__ = [
    "GUARANTEES",
    "Guarantee",
    "checked_store",
    "common_options",
    "dedup_fields",
    "duration_option",
    "is_manual",
]

Guarantee = Literal["at_least_once", "effectively_once"]
"""How often the effect of a record is there: once or more, or once as far as a dedup store knows."""
GUARANTEES: tuple[Guarantee, ...] = ("at_least_once", "effectively_once")


def checked_store(
    guarantee: Guarantee | None, dedup: DedupStore | None, where: str, common: DedupStore | None = None
) -> DedupStore | None:
    """The store of a handler or an app; None with ``at_least_once``.

    Args:
        guarantee: what is asked for; None if nothing is.
        dedup: its own store.
        where: what it is, for messages.
        common: the store of its app, for a handler without one.
    """
    if guarantee is not None and guarantee not in GUARANTEES:
        raise DeclarationError(f"{where}: guarantee={guarantee!r}; use {' or '.join(map(repr, GUARANTEES))}")
    if dedup is not None and not (hasattr(dedup, "is_shared") and hasattr(dedup, "check")):
        raise DeclarationError(
            f'{where}: dedup={dedup!r}; give a store of laneway.dedup, such as SqliteDedup("ids.db")'
        )
    if guarantee == "at_least_once":
        if dedup is not None:
            raise DeclarationError(f"{where}: dedup={dedup!r} has no effect with guarantee='at_least_once'")
        return None
    store = dedup if dedup is not None else common
    if guarantee == "effectively_once" and store is None:
        raise DeclarationError(
            f"{where}: guarantee='effectively_once' needs dedup=, such as RedisDedup(url) or PostgresDedup(dsn)"
        )
    return store


def dedup_fields(store: DedupStore | None, scope: str, kind: str) -> dict[str, Any]:
    """What a handler with a store has of it."""
    if store is None:
        return {}
    fields = {"dedup": store, "scope": scope}
    if store.in_order and kind in ("batch", "custom"):
        fields["order"] = "partition"  # so batches of one partition never run at once
    return fields


def common_options(
    retry: Retry | None, timeout: Duration | None, breaker: Breaker | None, buffer: Buffer | None
) -> dict[str, Any]:
    """Options of every kind of handler, with their defaults."""
    limit = None if timeout is None else duration_option(timeout, "timeout")
    return {"retry": retry or Retry(), "timeout": limit, "breaker": breaker, "buffer": buffer or Buffer()}


def duration_option(value: Duration, name: str) -> timedelta:
    """A parsed duration.

    Raises:
        DeclarationError: it is none; the message has the option's name.
    """
    try:
        return as_duration(value)
    except ValueError as error:
        raise DeclarationError(f"{name}: {error}") from error


def is_manual(acknowledge: str) -> bool:
    """Whether a handler acknowledges its records itself."""
    if acknowledge not in ("auto", "manual"):
        raise DeclarationError(f"acknowledge={acknowledge!r}; use 'auto' or 'manual'")
    return acknowledge == "manual"
