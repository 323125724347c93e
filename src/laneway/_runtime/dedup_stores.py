"""Stores of handled records: what the configuration changes about them, and what is checked at the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from laneway.dedup import id_source, store_of
from laneway.errors import DeclarationError, DedupStoreError
from laneway.observe import logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laneway._declare.app import App
    from laneway._declare.handler import HandlerSpec
    from laneway.settings import DedupSettings

__all__ = ["check_stores", "dedup_changes"]

_log = logger("dedup")


def dedup_changes(app: str, route: HandlerSpec, given: Mapping[str, Any], settings: DedupSettings) -> dict[str, Any]:
    """What the configuration changes about the store of a handler.

    Args:
        app: the app's name.
        route: the handler, as declared.
        given: its own settings.
        settings: those of all handlers.

    Raises:
        DeclarationError: a setting has no effect on the handler, or needs a store.
    """
    guarantee, declared = given.get("guarantee"), cast("Any", route.dedup)
    if guarantee == "at_least_once":
        return {"dedup": None}
    if declared is None and guarantee is None:
        if "dedup_id" in given:
            raise DeclarationError("it has no effect: the handler has no dedup store; add guarantee: effectively_once")
        return {}
    options = settings.model_dump(exclude_none=True, exclude={"store", "id"})
    source = given.get("dedup_id") or settings.id
    if declared is not None and declared.in_order:
        if "dedup_id" in given:
            raise DeclarationError(f"it has no effect: {declared!r} needs no ids; remove it")
        return {}
    if source is not None:
        options["id"] = id_source(source)
    if settings.store is not None:
        kept = {} if declared is None else {name: getattr(declared, name) for name in declared.options}
        return _fields(app, route, store_of(settings.store.reveal(), **{**kept, **options}))
    if declared is None:
        raise DeclarationError(
            "there is no dedup store; add a section dedup with store: redis://…, postgresql://… or sqlite:…"
        )
    return _fields(app, route, declared.changed(**options)) if options else {}


def _fields(app: str, route: HandlerSpec, store: Any) -> dict[str, Any]:
    return {"dedup": store, "scope": route.scope or f"{app}.{route.name}"}


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
