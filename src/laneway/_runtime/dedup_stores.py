"""Stores of handled records: what the configuration changes about them, and what is checked at the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway.errors import DeclarationError, DedupStoreError
from laneway.observe import logger

if TYPE_CHECKING:
    from laneway._declare.app import App

__all__ = ["check_stores"]

_log = logger("dedup")


def check_stores(app: App, *, is_one_process: bool) -> None:
    """Refuse stores that cannot keep their promise. One that does not answer is waited for later, by its records.

    Raises:
        DeclarationError: what is wrong with one.
    """
    checked: list[Any] = []
    for route in app.routes:
        store = route.dedup
        if store is None or any(store is known for known in checked):
            continue
        checked.append(store)
        if not (store.is_shared or is_one_process):
            raise DeclarationError(
                f"handler {route.name!r}: {store!r} is the memory of one process, and Spark runs several; use "
                "SqliteDedup on one machine, RedisDedup or PostgresDedup on several"
            )
        try:
            store.check()
        except DedupStoreError as error:
            _log.warning("%s; records wait until it answers", error)
