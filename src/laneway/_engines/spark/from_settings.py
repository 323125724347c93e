"""From settings to streams: what the engine needs to know before Spark starts."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from laneway._engines.spark.query_spec import ErrorPart, QuerySpec
from laneway._kafka import Admin
from laneway._runtime.configure import cluster_of, producers_elsewhere, reading_options
from laneway._runtime.topics import feeds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from laneway._declare.app import App
    from laneway._declare.handler import HandlerSpec
    from laneway._runtime.error_runs import ErrorPlan
    from laneway.settings import ClusterSettings, Settings

__all__ = ["control_host", "error_streams", "is_local", "master_of", "slots_of", "stream_of", "streams_of"]

_LINGER = 25  # milliseconds


def streams_of(app: App, settings: Settings) -> list[QuerySpec]:
    """A specification for each topic with all of its handlers, which finish an offset together."""
    by_topic: dict[tuple[str, str], list[HandlerSpec]] = {}
    for route in app.routes:
        by_topic.setdefault((cluster_of(route, settings), route.topic.name), []).append(route)
    payload = QuerySpec.pickled(app)
    return [stream_of(app.name, routes, settings, payload) for routes in by_topic.values()]


def stream_of(app: str, routes: list[HandlerSpec], settings: Settings, payload: bytes) -> QuerySpec:
    """The specification of one topic's query."""
    topic = routes[0].topic.name
    name = cluster_of(routes[0], settings)
    cluster = settings.cluster(name)
    partitions = len(Admin(cluster.client_options()).partitions(topic)) or 1
    tasks = settings.spark.tasks or _cores()
    # How many executors there are on a cluster changes: one task may have to read all partitions.
    readers = tasks if settings.spark.tasks or is_local(settings.spark.master) else 1
    starts = [settings.handlers[route.name].start for route in routes if route.name in settings.handlers]
    return QuerySpec(
        app=app,
        topic=topic,
        cluster=name,
        routes=tuple(route.name for route in routes),
        payload=payload,
        paths=QuerySpec.search_path(),
        client=cluster.client_options(),
        consumer=reading_options(cluster, routes, partitions, readers),
        producer={**cluster.producer_options(), **_linger(cluster)},
        elsewhere={
            other: {**options, **_linger_of(other, settings)}
            for other, options in producers_elsewhere(routes, settings).items()
        },
        tasks=tasks,
        batch_time=settings.spark.batch_time.total_seconds(),
        start=next((start for start in starts if start), "earliest"),
        skip_lost=settings.on_data_loss == "continue",
        may_create=settings.create_topics,
        feeds=feeds_of(app, routes),
    )


def master_of(master: str, streams: list[QuerySpec], more: int = 0) -> str:
    """Turn ``local`` and ``local[*]`` into a master with enough slots, each with its retries."""
    if master not in ("local", "local[*]"):
        return master
    slots = sum(stream.tasks for stream in streams)
    return f"local[{max(2, slots) + more},8]"


def is_local(master: str) -> bool:
    return re.match(r"local(\[|$)", master) is not None


def control_host(spark: SparkSession) -> tuple[str, str]:
    """The address at which workers find this process, and the address to listen on."""
    context = spark.sparkContext
    if is_local(context.master):
        return "127.0.0.1", "127.0.0.1"
    conf = context.getConf()
    host = conf.get("spark.driver.host") or "127.0.0.1"
    return host, conf.get("spark.driver.bindAddress") or host


def slots_of(spark: SparkSession) -> int | None:
    """How many tasks the executors can run concurrently now; None when Spark runs on this machine."""
    context = spark.sparkContext
    if is_local(context.master):
        return None
    cores = int(context.defaultParallelism)
    return max(1, cores // int(context.getConf().get("spark.task.cpus", "1") or 1))


def _cores() -> int:
    """One task per core: more only cost start-up, fewer leave a core idle."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2


def _linger_of(client: str, settings: Settings) -> dict[str, Any]:
    """As `_linger`, for a client named as in `MessageRoute.client`."""
    cluster, _, producer = client.partition("/")
    entry = settings.producers.get(producer)
    return _linger(settings.cluster(cluster)) if entry is None or entry.linger is None else {}


def _linger(cluster: ClusterSettings) -> dict[str, Any]:
    """Raise the producer's linger, unless it is configured.

    A batch takes longer anyway, and a broker handles a request of ten messages as quickly as one of two.
    """
    return {} if "linger" in cluster.producer.model_fields_set else {"linger.ms": _LINGER}


def error_streams(plans: Sequence[ErrorPlan], settings: Settings, payload: bytes) -> list[QuerySpec]:
    """The query specification of each plan."""
    streams = []
    for plan in plans:
        stream = stream_of(plan.app.name, plan.routes, settings, payload)
        part = ErrorPart(plan.ends, plan.partitions)
        # Records deleted from an error topic are counted as lost; the others are still handled.
        streams.append(replace(stream, tasks=1, start="earliest", skip_lost=True, errors=part))
    return streams
