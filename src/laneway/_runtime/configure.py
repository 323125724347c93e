"""The app with its settings applied."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from laneway._declare.breaker import Breaker
from laneway._declare.error_consumer import ErrorConsumer
from laneway._declare.handler import Buffer, check_together
from laneway._declare.record import declared_topics
from laneway._declare.retry import Retry
from laneway._runtime.dedup_stores import dedup_changes
from laneway.errors import DeclarationError, SettingsError
from laneway.settings import Settings, effective, message_route, producer_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laneway._declare.app import App
    from laneway._declare.handler import HandlerSpec
    from laneway.settings import ClusterSettings

__all__ = ["cluster_of", "configured", "effective", "producers_elsewhere", "reading_options", "warn_unused_topics"]

_log = logging.getLogger("laneway")

_Given = tuple[tuple[str, str], Any]
"""Handler and setting, and the value."""

_ROUTE_FIELDS = (
    "lanes",
    "timeout",
    "size",
    "within",
    "order",
    "strict",
    "delay",
    "error_topic",
    "oversize",
    "processes",
)
_RETRY_FIELDS = {
    "attempts": "attempts",
    "backoff": "backoff",
    "backoff_max": "backoff_max",
    "retry_steps": "delays",
    "retry_mode": "mode",
}
_BREAKER_FIELDS = {"breaker_failures": "failures", "breaker_pause": "pause"}
_WITHOUT_EFFECT = {
    "single": (
        ("size", "within"),
        "a single handler takes one record at a time",
        "remove it, or declare the function with @app.batch_handler(…)",
    ),
    "columnar": (
        ("lanes", "order", "timeout", "within", "strict"),
        "a columnar handler takes one table after the other, in order and without a time limit",
        "remove it, or declare the function with @app.batch_handler(…)",
    ),
}
"""Settings without effect on a kind of handler, with the reason and the fix."""


def configured(app: App, settings: Settings) -> App:
    """The app with its settings applied.

    Raises:
        SettingsError: a setting has no effect on its handler or does not fit it, or makes handlers conflict.
        DeclarationError: the app is invalid whatever its settings.
    """
    unknown = set(settings.handlers) - {route.name for route in app.routes}
    if unknown:
        known = ", ".join(route.name for route in app.routes)
        raise DeclarationError(
            f"the configuration names handlers {sorted(unknown)} that app {app.name!r} lacks; it has: {known}"
        )
    given = _given(app, settings)
    try:
        copy = _changed(app, settings, given)
        if given:
            _check_together(copy, settings)
    except DeclarationError:
        for count in range(len(given) + 1):
            try:
                _check_together(_changed(app, settings, given[:count]), settings)
            except DeclarationError as found:
                if not count:
                    raise
                message, _, fix = str(found).partition("; ")
                (name, key), _ = given[count - 1]
                raise SettingsError([settings.problem(f"handlers.{name}.{key}", message, fix)]) from found
        raise
    copy.errors = _error_consumer(app.errors, settings)
    return copy


def _given(app: App, settings: Settings) -> list[_Given]:
    """The settings of all enabled handlers, one by one."""
    given: list[_Given] = []
    problems = []
    for route in app.routes:
        found = settings.handlers.get(route.name)
        if found is None or found.enabled is False:
            continue
        keys, why, fix = _WITHOUT_EFFECT.get(route.kind, ((), "", ""))
        for key in type(found).model_fields:
            value = getattr(found, key)
            if value is not None and key in keys:
                problems.append(settings.problem(f"handlers.{route.name}.{key}", f"it has no effect: {why}", fix))
            elif value is not None:
                given.append(((route.name, key), value))
    if problems:
        raise SettingsError(problems)
    return given


def _changed(app: App, settings: Settings, given: Sequence[_Given]) -> App:
    changes: dict[str, dict[str, Any]] = {}
    for route in app.routes:
        own = {key: value for (name, key), value in given if name == route.name}
        cluster = _cluster_read_by(route, settings)
        changes[route.name] = {
            **_changes(route, own),
            **dedup_changes(app.name, route, own, settings.dedup),
            "cluster": cluster,
            "addresses": _addresses(cluster, settings),
        }
    off = {name for name, handler in settings.handlers.items() if handler.enabled is False}
    topics = {name: topic.name for name, topic in settings.topics.items() if topic.name}
    return app.configured(changes, topics, off)


def _check_together(app: App, settings: Settings) -> None:
    from laneway._runtime.topics import feeds_of

    check_together(app.name, app.routes)
    by_topic: dict[tuple[str | None, str], list[HandlerSpec]] = {}
    for route in app.routes:
        by_topic.setdefault((cluster_of(route, settings), route.topic.name), []).append(route)
    for routes in by_topic.values():
        feeds_of(app.name, routes)


def cluster_of(route: HandlerSpec, settings: Settings) -> str:
    """Name of the cluster that a configured handler reads from."""
    return route.cluster or settings.default_cluster


def producers_elsewhere(routes: list[HandlerSpec], settings: Settings) -> dict[str, dict[str, Any]]:
    """Options of the other clients to which these handlers may send, by the name that follows the ``@``."""
    used = {address.partition("@")[2] for route in routes for address in route.addresses.values()}
    found = {}
    for name in {*settings.topics, *settings.producers}:
        route = message_route(settings, name)
        if route.client in used:
            found[route.client] = dict(producer_options(settings, route))
    return found


def warn_unused_topics(app: App, settings: Settings) -> None:
    """Warn of names under ``topics`` and ``producers`` that the code does not use.

    The topics of returned messages are known only at run time, so every `Topic` created so far counts as used.
    """
    known = {route.topic.name for route in app.routes} | declared_topics()
    reads = f"no handler of app {app.name!r} reads this topic, and "
    for section, names, why in (("topics", settings.topics, reads), ("producers", settings.producers, "")):
        for name in names:
            if name not in known:
                _log.warning(
                    "%s.%s in the configuration: %sthe code has created no Topic(%r) so far, so the entry has no "
                    "effect. Correct the name, or remove the entry; if a handler creates this Topic only when it runs, "
                    "create it at the top level of its module",
                    section,
                    name,
                    why,
                    name,
                )


def _cluster_read_by(route: HandlerSpec, settings: Settings) -> str:
    """The cluster configured for the handler, or for its topic, or the default one."""
    handler, topic = settings.handlers.get(route.name), settings.topics.get(route.topic.name)
    named = (handler and handler.cluster) or (topic and topic.cluster)
    return named or route.cluster or settings.default_cluster


def _addresses(cluster: str, settings: Settings) -> dict[str, str]:
    """Where messages of a handler that reads from *cluster* go, for each configured topic."""
    found = {}
    for name in {*settings.topics, *settings.producers}:
        route = message_route(settings, name, cluster)
        found[name] = route.topic if route.client == cluster else f"{route.topic}@{route.client}"
    return found


def _error_consumer(declared: ErrorConsumer | None, settings: Settings) -> ErrorConsumer | None:
    """The declared error consumer with the configured changes."""
    given = settings.errors.model_dump(exclude_none=True)
    if not given:
        return declared
    if given.get("max_errors") == 0:
        given["max_errors"] = None
    return replace(declared or ErrorConsumer(), **given)


def _changes(route: HandlerSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    changes = {name: given[name] for name in _ROUTE_FIELDS if name in given}
    if retry := {field: given[name] for name, field in _RETRY_FIELDS.items() if name in given}:
        changes["retry"] = _retry(route.retry, retry)
    if breaker := {field: given[name] for name, field in _BREAKER_FIELDS.items() if name in given}:
        changes["breaker"] = replace(route.breaker or Breaker(), **breaker)
    if {"buffer_records", "buffer_size"} & set(given):
        changes["buffer"] = Buffer(
            given.get("buffer_records", route.buffer.records), given.get("buffer_size", route.buffer.size)
        )
    return changes


def _retry(declared: Retry, given: dict[str, Any]) -> Retry:
    steps = given.get("delays", declared.delays)
    if "mode" in given and not steps:
        raise DeclarationError("it has no effect: the handler has no steps; add retry_steps: [5s, 1m], or remove it")
    if steps and not declared.delays:
        given = {"mode": Retry.steps(*steps).mode} | given  # the default of steps, not that of a policy without any
    return replace(declared, **given)


def reading_options(
    cluster: ClusterSettings, routes: list[HandlerSpec], partitions: int, readers: int = 1
) -> dict[str, Any]:
    """Options of a consumer that reads for handlers.

    librdkafka limits its prefetch per partition; the buffer of a handler is for all partitions of one client.
    """
    share = max(1, -(-partitions // readers))
    records = max(route.buffer.records for route in routes)
    if cluster.consumer.buffer_size is not None:
        size = max(1, cluster.consumer.buffer_size // 1024 // share)
    else:
        size = max(1024, max(int(route.buffer.size) for route in routes) // 1024 // share)
    return {
        **cluster.consumer_options(),
        "queued.min.messages": max(100, records // share),
        "queued.max.messages.kbytes": size,
    }
