"""What an app is when the configuration has had its say."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laneway._error_consumer import ErrorConsumer
from laneway._record import declared_topics
from laneway._route import Buffer
from laneway.errors import DeclarationError
from laneway.retry import Breaker
from laneway.settings import Settings, load

if TYPE_CHECKING:
    from laneway._app import App
    from laneway._route import Route

__all__ = ["cluster_of", "configured", "effective", "producers_elsewhere", "warn_unused_topics"]

_log = logging.getLogger("laneway")

_RETRY_FIELDS = {"attempts", "backoff", "backoff_max"}


def effective(settings: Settings | None, overrides: dict[str, Any]) -> Settings:
    """The settings given, or those of ``laneway.yaml`` and the environment, under the engine's own arguments."""
    chosen = {key: value for key, value in overrides.items() if value is not None}
    if settings is None:
        named = os.environ.get("LANEWAY_CONFIG")
        path = Path(named) if named else Path("laneway.yaml")
        found = path if named or path.exists() else None
        profile = os.environ.get("LANEWAY_PROFILE", "default")
        return load(found, profile=profile, environ=os.environ, overrides=chosen)
    return settings.with_overrides(chosen) if chosen else settings


def configured(app: App, settings: Settings) -> App:
    """The app with what the configuration says about its handlers and topics."""
    changes: dict[str, dict[str, Any]] = {}
    for route in app.routes:
        found = settings.handlers.get(route.name)
        if found is not None:
            changes[route.name] = _changes(route, found)
    unknown = set(settings.handlers) - {route.name for route in app.routes}
    if unknown:
        known = ", ".join(route.name for route in app.routes)
        raise DeclarationError(
            f"the configuration names handlers {sorted(unknown)} that app {app.name!r} lacks; it has: {known}"
        )
    for route in app.routes:
        cluster = _cluster_read_by(route, settings)
        changes.setdefault(route.name, {}).update(cluster=cluster, addresses=_addresses(cluster, settings))
    off = {name for name, handler in settings.handlers.items() if handler.enabled is False}
    topics = {name: topic.name for name, topic in settings.topics.items() if topic.name}
    copy = app.configured(changes, topics, off)
    copy.errors = _error_consumer(app.errors, settings)
    return copy


def cluster_of(route: Route, settings: Settings) -> str:
    """Name of the cluster that a handler of a configured app reads from."""
    return route.cluster or settings.default_cluster


def producers_elsewhere(routes: list[Route], settings: Settings) -> dict[str, dict[str, Any]]:
    """Options of producers for the other clusters that messages of these handlers may go to, by the cluster's name."""
    targets = (address.partition("@")[2] for route in routes for address in route.addresses.values())
    return {name: dict(settings.cluster(name).producer_options()) for name in targets if name}


def warn_unused_topics(app: App, settings: Settings) -> None:
    """Log a warning for each name under ``topics`` that the code does not seem to have.

    Which topics a handler returns messages to shows only when it does so. What can be known before are the topics that
    handlers read and every `Topic` that was made until now.

    Args:
        app: as the code declares it.
        settings: the configuration.
    """
    known = {route.topic.name for route in app.routes} | declared_topics()
    for name in settings.topics:
        if name not in known:
            _log.warning(
                "topics.%s in the configuration: no handler of app %r reads this topic, and the code has made no "
                "Topic(%r) so far, so the entry has no effect. Correct the name, or remove the entry; if a handler "
                "makes this Topic only when it runs, make it at the top level of its module",
                name,
                app.name,
                name,
            )


def _cluster_read_by(route: Route, settings: Settings) -> str:
    """The cluster named for the handler, or for its topic, or the default one."""
    handler, topic = settings.handlers.get(route.name), settings.topics.get(route.topic.name)
    named = (handler and handler.cluster) or (topic and topic.cluster)
    return named or route.cluster or settings.default_cluster


def _addresses(cluster: str, settings: Settings) -> dict[str, str]:
    """Where messages of a handler that reads from *cluster* go, for each topic that the configuration names."""
    found = {}
    for name, topic in settings.topics.items():
        target = topic.cluster or settings.default_cluster
        found[name] = topic.name if target == cluster else f"{topic.name}@{target}"
    return found


def _error_consumer(declared: ErrorConsumer | None, settings: Settings) -> ErrorConsumer | None:
    """What the code declares, with what the configuration changes about it."""
    given = settings.errors.model_dump(exclude_none=True)
    if not given:
        return declared
    if given.get("max_errors") == 0:
        given["max_errors"] = None
    return replace(declared or ErrorConsumer(), **given)


def _changes(route: Route, found: Any) -> dict[str, Any]:
    given = {
        name: value for name, value in found.model_dump(exclude_none=True).items() if name in found.model_fields_set
    }
    changes = {
        name: given[name]
        for name in ("lanes", "timeout", "size", "within", "order", "strict", "error_topic", "oversize", "processes")
        if name in given
    }
    if _RETRY_FIELDS & set(given):
        changes["retry"] = replace(route.retry, **{name: given[name] for name in _RETRY_FIELDS & set(given)})
    named = {"breaker_failures": "failures", "breaker_pause": "pause"}
    if chosen := {field: given[name] for name, field in named.items() if name in given}:
        changes["breaker"] = replace(route.breaker or Breaker(), **chosen)
    if {"buffer_records", "buffer_size"} & set(given):
        changes["buffer"] = Buffer(
            given.get("buffer_records", route.buffer.records), given.get("buffer_size", route.buffer.size)
        )
    return changes
