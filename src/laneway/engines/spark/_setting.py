"""From settings to streams: what the engine needs to know before Spark starts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from laneway._error_consumer import ErrorConsumer
from laneway._life import Life, State
from laneway._route import Buffer
from laneway.engines.spark._feeds import KEEP
from laneway.engines.spark._stream import Feed, Stream
from laneway.errors import AdminError, DeclarationError
from laneway.kafka import Admin, BrokerAbsentError
from laneway.retry import Breaker
from laneway.settings import Settings, load

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from laneway._app import App
    from laneway._route import Route
    from laneway.settings import ClusterSettings

__all__ = [
    "cluster_of",
    "configured",
    "effective",
    "lag_of",
    "master_of",
    "patiently",
    "prepare_topics",
    "stream_of",
    "streams_of",
]

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds between looks for brokers; I22 asks for a start within 10 s
_FIRST_ROUNDS = (
    64  # records of the first batch for each lane: over soon whatever a call takes, long enough to measure it
)
_LINGER = 20  # milliseconds
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
    off = {name for name, handler in settings.handlers.items() if handler.enabled is False}
    topics = {name: topic.name for name, topic in settings.topics.items() if topic.name}
    copy = app.configured(changes, topics, off)
    copy.errors = _error_consumer(app.errors, settings)
    return copy


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
        for name in ("lanes", "timeout", "size", "within", "order", "strict", "error_topic")
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


def prepare_topics(
    app: App, settings: Settings, life: Life, is_stopping: Callable[[], bool], wake: threading.Event
) -> bool:
    """Wait for brokers and topics, and create the retry and error topics; False when told to stop meanwhile.

    A broker that is absent or a topic that is missing is waited for; bad credentials are raised at once.
    """

    def prepared() -> bool | None:
        missing = _prepare(app, settings)
        if missing:
            life.enter(State.INITIALISING, f"waiting for topic {', '.join(missing)}")
        return None if missing else True

    return bool(patiently(prepared, settings, life, is_stopping, wake))


def patiently(
    ask: Callable[[], T | None], settings: Settings, life: Life, is_stopping: Callable[[], bool], wake: threading.Event
) -> T | None:
    """Ask until brokers answer and the answer is not None; None when told to stop meanwhile."""
    pause = _FIRST_PAUSE
    while not is_stopping():
        try:
            answer = ask()
            if answer is not None:
                return answer
        except BrokerAbsentError as error:
            brokers = settings.cluster().client_options()["bootstrap.servers"]
            life.enter(State.INITIALISING, f"waiting for Kafka at {brokers}: {error}")
        wake.wait(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
    return None


def _prepare(app: App, settings: Settings) -> list[str]:
    missing = []
    for route in app.routes:
        admin = Admin(settings.cluster(cluster_of(route, settings)).client_options())
        partitions = admin.partitions(route.topic.name)
        if not partitions:
            missing.append(route.topic.name)
        else:
            for name in (route.error_topic_of(app.name), *route.retry_topics_of(app.name)):
                if not admin.partitions(name):
                    admin.create(name, len(partitions), config=KEEP)
    return list(dict.fromkeys(missing))


def streams_of(app: App, settings: Settings, control: Path) -> list[Stream]:
    """One stream for each topic, with all of its handlers: an offset is finished when every handler has finished it."""
    by_topic: dict[str, list[Route]] = {}
    for route in app.routes:
        by_topic.setdefault(route.topic.name, []).append(route)
    payload = Stream.pickled(app)
    return [stream_of(app.name, routes, settings, control / topic, payload) for topic, routes in by_topic.items()]


def stream_of(app: str, routes: list[Route], settings: Settings, folder: Path, payload: bytes) -> Stream:
    """The stream of one topic.

    Args:
        app: name of the app, which is the group.
        routes: all handlers of the topic.
        settings: the configuration.
        folder: through which the driver tells the planner to stop; made here.
        payload: the app, pickled.
    """
    topic = routes[0].topic.name
    cluster = settings.cluster(cluster_of(routes[0], settings))
    folder.mkdir(parents=True, exist_ok=True)
    partitions = len(Admin(cluster.client_options()).partitions(topic)) or 1
    tasks = settings.spark.tasks or _tasks(routes)
    starts = [settings.handlers[route.name].start for route in routes if route.name in settings.handlers]
    return Stream(
        app=app,
        topic=topic,
        routes=tuple(route.name for route in routes),
        payload=payload,
        paths=Stream.search_path(),
        client=cluster.client_options(),
        consumer={**cluster.consumer_options(), **_prefetch(routes, partitions, tasks)},
        producer={**cluster.producer_options(), **_linger(cluster)},
        tasks=tasks,
        batch_target=settings.spark.batch_target.total_seconds(),
        max_batch_records=settings.spark.max_batch_records,
        first_batch=min(max(1, route.lanes) * max(route.size, 1) for route in routes) * partitions * _FIRST_ROUNDS,
        start=next((start for start in starts if start), "earliest"),
        skip_lost=settings.on_data_loss == "continue",
        control=str(folder),
        feeds=feeds_of(app, routes),
    )


def feeds_of(app: str, routes: list[Route]) -> tuple[Feed, ...]:
    """What a query reads: the topic of these handlers, and the retry topics of each.

    Raises:
        DeclarationError: when they want the topic with different delays.
    """
    delays = {route.delay for route in routes}
    if len(delays) > 1:
        names = " and ".join(repr(route.name) for route in routes)
        raise DeclarationError(
            f"handlers {names} read one topic with different delays; put one of them into another app"
        )
    feeds = [Feed(routes[0].topic.name, tuple(route.name for route in routes), 0, delays.pop().total_seconds())]
    for route in routes:
        for step in range(1, route.retry.hops + 1):
            own = route.at_step(app, step)
            feeds.append(Feed(own.topic.name, (route.name,), step, own.delay.total_seconds()))
    return tuple(feeds)


def master_of(master: str, streams: list[Stream], more: int = 0) -> str:
    """Turn ``local`` and ``local[*]`` into as many slots as there may be tasks, each with its retries.

    Args:
        master: as it was asked for.
        streams: what runs all the time.
        more: tasks of what runs beside them now and then, which must not take their slots.
    """
    if master not in ("local", "local[*]"):
        return master
    # One more where there are retry topics: what is due must not wait for a slot behind the source's long tasks.
    slots = sum(stream.tasks * len(stream.routes) + (len(stream.feeds) > 1) for stream in streams)
    return f"local[{max(2, slots) + more},8]"


def cluster_of(route: Route, settings: Settings) -> str | None:
    """The cluster named for the handler, or for its topic, or the default one."""
    handler = settings.handlers.get(route.name)
    if handler is not None and handler.cluster:
        return handler.cluster
    name = route.source or route.topic.name
    return next((topic.cluster for topic in settings.topics.values() if topic.name == name), None)


def _tasks(routes: list[Route]) -> int:
    """As many tasks as cores: more only cost start-up, fewer leave a core idle."""
    del routes
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2


def _prefetch(routes: list[Route], partitions: int, tasks: int) -> dict[str, Any]:
    """Bound what the client reads ahead: its limits are per partition, ours is per task."""
    share = max(1, -(-partitions // tasks))
    size = max(int(route.buffer.size) for route in routes)
    records = max(route.buffer.records for route in routes)
    return {
        "queued.min.messages": max(100, records // share),
        "queued.max.messages.kbytes": max(1024, size // 1024 // share),
        # A fetch may pass the queue's bound by its whole size, and small records take three times their bytes there.
        "fetch.message.max.bytes": 1 << 20,
    }


def _linger(cluster: ClusterSettings) -> dict[str, Any]:
    """Let copies and messages wait for each other a little longer, unless the configuration says how long.

    A batch takes longer than this anyway, and a broker takes a request of ten messages as quickly as one of two.
    """
    return {} if "linger" in cluster.producer.model_fields_set else {"linger.ms": _LINGER}


def lag_of(app: App, settings: Settings) -> int | None:
    """Records between the group's offsets and the ends of the logs, over the app's topics; None when nobody answers."""
    total = 0
    try:
        for route in {route.topic.name: route for route in configured(app, settings).routes}.values():
            admin = Admin(settings.cluster(cluster_of(route, settings)).client_options())
            total += sum(end - (committed or 0) for committed, end in admin.lag(app.name, route.topic.name).values())
    except AdminError:
        return None
    return total
