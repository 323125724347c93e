"""Rules between settings. Each finding names every setting it looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laneway._declare.units import in_words
from laneway.settings import _spark
from laneway.settings._check_security import Finding, check_security

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laneway.settings._cluster import ClusterSettings
    from laneway.settings._located_values import Path
    from laneway.settings._model import Settings

__all__ = ["check"]

_LEAST_BUFFER = 2 * 2**20  # bytes: a record of the usual limit, and the headers of its copy


@dataclass(frozen=True, slots=True)
class _User:
    """A setting that names a cluster."""

    path: Path
    cluster: str


def check(settings: Settings) -> Iterator[Finding]:
    """Everything that is wrong between settings, and everything that is risky."""
    yield from _names(settings)
    for name, cluster in settings.clusters.items():
        yield from check_security(("clusters", name, "security"), cluster.security)
        yield from _times(("clusters", name), cluster)
    yield from _handlers(settings)
    yield from _topics(settings)
    for key, value in settings.spark.conf.items():
        refused = _spark.value_refusal(key, value)
        if refused:
            yield Finding(("spark", "conf", key), *refused)


def _names(settings: Settings) -> Iterator[Finding]:
    users = [_User(("cluster",), settings.default_cluster)]
    users += [
        _User(("handlers", name, "cluster"), entry.cluster)
        for name, entry in settings.handlers.items()
        if entry.cluster
    ]
    users += [
        _User(("topics", name, "cluster"), entry.cluster) for name, entry in settings.topics.items() if entry.cluster
    ]
    known = ", ".join(settings.clusters) or "none is declared"
    for user in users:
        if user.cluster not in settings.clusters:
            also: tuple[Path, ...] = (("clusters", user.cluster),)
            yield Finding(user.path, f"there is no cluster {user.cluster!r}", f"use one of: {known}", also)


def _times(path: Path, cluster: ClusterSettings) -> Iterator[Finding]:
    consumer, producer = cluster.consumer, cluster.producer
    session = (*path, "consumer", "session_timeout")
    if consumer.heartbeat_interval >= consumer.session_timeout:
        yield Finding(
            (*path, "consumer", "heartbeat_interval"),
            f"it is not shorter than session_timeout ({in_words(consumer.session_timeout)})",
            f"write at most a third of it: {in_words(consumer.session_timeout / 3)}",
            (session,),
        )
    if consumer.max_poll_interval < consumer.session_timeout:
        yield Finding(
            (*path, "consumer", "max_poll_interval"),
            f"it is shorter than session_timeout ({in_words(consumer.session_timeout)})",
            "make it the longer one",
            (session,),
        )
    if producer.timeout <= producer.linger:
        yield Finding(
            (*path, "producer", "timeout"),
            f"a message would fail while it still waits for linger ({in_words(producer.linger)})",
            "make timeout longer than linger",
            ((*path, "producer", "linger"),),
        )
    if (producer.max_message_size or 0) > producer.buffer_size:
        yield Finding(
            (*path, "producer", "max_message_size"),
            f"the largest message does not fit into buffer_size ({producer.buffer_size} bytes)",
            "make buffer_size the larger one",
            ((*path, "producer", "buffer_size"),),
        )
    if producer.max_message_size is None and producer.buffer_size < _LEAST_BUFFER:
        yield Finding(
            (*path, "producer", "buffer_size"),
            "a record of the size that brokers take by default does not fit with the headers of a copy",
            "make it at least 2MiB",
        )
    if producer.acks == "leader":
        yield Finding(
            (*path, "producer", "acks"),
            "messages and parked records can be lost when a broker fails",
            "write acks: all",
            is_warning=True,
        )


def _handlers(settings: Settings) -> Iterator[Finding]:
    real = {topic.name: name for name, topic in settings.topics.items()}
    for name, handler in settings.handlers.items():
        path = ("handlers", name)
        if handler.backoff is not None and handler.backoff_max is not None and handler.backoff > handler.backoff_max:
            yield Finding(
                (*path, "backoff"),
                f"the first wait is longer than backoff_max ({in_words(handler.backoff_max)})",
                "make backoff_max the longer one",
                ((*path, "backoff_max"),),
            )
        error_topic = handler.error_topic
        if error_topic in real and error_topic not in settings.topics:
            yield Finding(
                (*path, "error_topic"),
                f"records would be parked in the topic {real[error_topic]!r} itself, which is read from there",
                f"write another name, such as {error_topic[:200]}.error",
                (("topics", real[error_topic]),),
            )


def _topics(settings: Settings) -> Iterator[Finding]:
    seen: dict[tuple[str, str], str] = {}
    for name, topic in settings.topics.items():
        place = (topic.cluster or settings.default_cluster, topic.name)
        if place in seen:
            yield Finding(
                ("topics", name, "name"),
                f"the topic {seen[place]!r} has the same name on the same cluster",
                "give each topic its own name",
                (("topics", name, "cluster"), ("topics", seen[place], "cluster"), ("cluster",)),
            )
        seen.setdefault(place, name)
