"""Rules between settings. Each finding names every setting it looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laneway._declare.units import in_words
from laneway.settings import _spark
from laneway.settings._cluster import ProducerSettings
from laneway.settings._producers import message_route, producer_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path as FilePath

    from laneway.settings._cluster import ClusterSettings, SecuritySettings
    from laneway.settings._located_values import Path
    from laneway.settings._model import Settings

__all__ = ["check"]

_LEAST_BUFFER = 2 * 2**20  # bytes: a record of the brokers' default limit, and the headers of its copy


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule, the setting to change, and the other settings it depends on."""

    path: Path
    message: str
    fix: str
    also: tuple[Path, ...] = ()
    is_warning: bool = False


def check(settings: Settings) -> Iterator[Finding]:
    """All errors and warnings about combinations of settings."""
    yield from _names(settings)
    for name, cluster in settings.clusters.items():
        yield from _security(("clusters", name, "security"), cluster.security)
        yield from _times(("clusters", name), cluster)
    yield from _producers(settings)
    yield from _handlers(settings)
    yield from _topics(settings)
    for key, value in settings.spark.conf.items():
        refused = _spark.value_refusal(key, value)
        if refused:
            yield Finding(("spark", "conf", key), *refused)


def _names(settings: Settings) -> Iterator[Finding]:
    named: dict[Path, str | None] = {("cluster",): settings.default_cluster}
    named |= {("handlers", name, "cluster"): entry.cluster for name, entry in settings.handlers.items()}
    named |= {("topics", name, "cluster"): entry.cluster for name, entry in settings.topics.items()}
    named |= {("producers", name, "cluster"): entry.cluster for name, entry in settings.producers.items()}
    known = ", ".join(settings.clusters) or "none is declared"
    for path, cluster in named.items():
        if cluster and cluster not in settings.clusters:
            yield Finding(path, f"there is no cluster {cluster!r}", f"use one of: {known}", (("clusters", cluster),))


def _times(path: Path, cluster: ClusterSettings) -> Iterator[Finding]:
    consumer = cluster.consumer
    session = (*path, "consumer", "session_timeout")
    if consumer.heartbeat_interval >= consumer.session_timeout:
        yield Finding(
            (*path, "consumer", "heartbeat_interval"),
            f"it must be shorter than session_timeout ({in_words(consumer.session_timeout)})",
            f"write at most a third of it: {in_words(consumer.session_timeout / 3)}",
            (session,),
        )
    if consumer.max_poll_interval < consumer.session_timeout:
        yield Finding(
            (*path, "consumer", "max_poll_interval"),
            f"it must not be shorter than session_timeout ({in_words(consumer.session_timeout)})",
            "make it the longer of the two",
            (session,),
        )
    places = {key: (*path, "producer", key) for key in ProducerSettings.model_fields}
    yield from _producer(cluster.producer, places)


def _producers(settings: Settings) -> Iterator[Finding]:
    for name, entry in settings.producers.items():
        route = message_route(settings, name)
        if route.cluster not in settings.clusters or not entry.changes:
            continue
        of_cluster = ("clusters", route.cluster, "producer")
        places: dict[str, Path] = {
            key: ("producers", name, key) if key in entry.changes else (*of_cluster, key)
            for key in ProducerSettings.model_fields
        }
        for finding in _producer(producer_of(settings, route), places):
            if any(path[0] == "producers" for path in (finding.path, *finding.also)):
                yield finding


def _producer(producer: ProducerSettings, places: Mapping[str, Path]) -> Iterator[Finding]:
    """All errors and warnings about how messages are written.

    Args:
        producer: its settings.
        places: where each of them comes from.
    """
    if producer.timeout <= producer.linger:
        yield Finding(
            places["timeout"],
            f"a message would fail while it still waits for linger ({in_words(producer.linger)})",
            "make timeout longer than linger",
            (places["linger"],),
        )
    if (producer.max_message_size or 0) > producer.buffer_size:
        yield Finding(
            places["max_message_size"],
            f"the largest message does not fit into buffer_size ({producer.buffer_size} bytes)",
            "make buffer_size the larger of the two",
            (places["buffer_size"],),
        )
    if producer.max_message_size is None and producer.buffer_size < _LEAST_BUFFER:
        yield Finding(
            places["buffer_size"],
            "a record of the brokers' default maximum size plus the headers of a copy does not fit",
            "make it at least 2MiB",
        )
    if producer.acks != "all":
        lost = {"leader": "when a broker fails", "none": "at any time, and no error says so"}[producer.acks]
        what = "messages and parked records" if places["acks"][0] == "clusters" else "messages"
        yield Finding(places["acks"], f"{what} can be lost {lost}", "write acks: all", is_warning=True)


def _handlers(settings: Settings) -> Iterator[Finding]:
    real = {topic.name: name for name, topic in settings.topics.items()}
    for name, handler in settings.handlers.items():
        path = ("handlers", name)
        if handler.backoff is not None and handler.backoff_max is not None and handler.backoff > handler.backoff_max:
            yield Finding(
                (*path, "backoff"),
                f"the first wait is longer than backoff_max ({in_words(handler.backoff_max)})",
                "make backoff_max the longer of the two",
                ((*path, "backoff_max"),),
            )
        error_topic = handler.error_topic
        if error_topic in real and error_topic not in settings.topics:
            yield Finding(
                (*path, "error_topic"),
                f"failed records would be parked on the source topic of {real[error_topic]!r}, and be read again",
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


def _security(path: Path, security: SecuritySettings) -> Iterator[Finding]:
    """All errors and warnings about how one cluster is reached."""
    protocol = (*path, "protocol")
    has_tls = security.protocol.endswith("ssl")
    if security.protocol.startswith("sasl"):
        yield from _login(path, security)
        yield from _in_the_clear(path, security)
    else:
        for name in ("mechanism", "username", "password"):
            if getattr(security, name) is not None:
                yield Finding(
                    (*path, name),
                    f"protocol {security.protocol} has no login",
                    "write protocol: sasl_ssl, or remove it",
                    (protocol,),
                )
    if has_tls:
        yield from _tls(path, security)
    else:
        for name in ("ca", "certificate", "key", "key_password"):
            if getattr(security, name):
                yield Finding(
                    (*path, name),
                    f"protocol {security.protocol} has no encryption",
                    "write protocol: ssl or sasl_ssl, or remove it",
                    (protocol,),
                )


def _login(path: Path, security: SecuritySettings) -> Iterator[Finding]:
    if security.mechanism is None:
        yield Finding(
            (*path, "mechanism"),
            f"protocol {security.protocol} needs it",
            "write mechanism: SCRAM-SHA-512",
            ((*path, "protocol"),),
        )
    elif security.mechanism == "OAUTHBEARER":
        for name in ("token_url", "client_id", "client_secret"):
            if getattr(security.oauth, name) is None:
                yield Finding(
                    (*path, "oauth", name), "OAUTHBEARER needs it", f"add '{name}: ...'", ((*path, "mechanism"),)
                )
        url = security.oauth.token_url
        if url is not None and not url.startswith("https://"):
            yield Finding(
                (*path, "oauth", "token_url"), "the address that receives the secret is not https", "write https://..."
            )
    else:
        for name in ("username", "password"):
            if getattr(security, name) is None:
                also = ((*path, "mechanism"), (*path, "protocol"))
                yield Finding((*path, name), f"{security.mechanism} needs it", f"add '{name}: ...'", also)


def _in_the_clear(path: Path, security: SecuritySettings) -> Iterator[Finding]:
    if security.protocol != "sasl_plaintext" or security.mechanism is None:
        return
    also = ((*path, "mechanism"), (*path, "allow_plaintext_passwords"))
    if security.mechanism.startswith("SCRAM"):
        text = "SCRAM without TLS can be broken by anyone who can read the traffic"
        yield Finding((*path, "protocol"), text, "write protocol: sasl_ssl", also, is_warning=True)
    elif security.allow_plaintext_passwords:
        text = "the password is sent unencrypted"
        yield Finding((*path, "allow_plaintext_passwords"), text, "write protocol: sasl_ssl", also, is_warning=True)
    else:
        text = f"{security.mechanism} without TLS sends the password unencrypted"
        yield Finding((*path, "protocol"), text, "write protocol: sasl_ssl, or allow_plaintext_passwords: true", also)


def _tls(path: Path, security: SecuritySettings) -> Iterator[Finding]:
    files = {"ca": security.ca, "certificate": (security.certificate,), "key": (security.key,)}
    for name, paths in files.items():
        for file in paths:
            if file is not None and not _exists(file):
                yield Finding((*path, name), f"the file {file.name!r} does not exist", "give the path of a PEM file")
    for name, other in (("certificate", "key"), ("key", "certificate")):
        if getattr(security, name) is not None and getattr(security, other) is None:
            yield Finding((*path, name), f"it has no effect without {other}", f"add '{other}: ...'", ((*path, other),))
    if security.verify:
        return
    also = ((*path, "allow_insecure"),)
    if security.allow_insecure:
        text = "the broker's identity is not verified: a man in the middle can read and change everything"
        yield Finding(
            (*path, "verify"), text, "write verify: true and give the authority as 'ca'", also, is_warning=True
        )
    else:
        text = "the broker's identity would not be verified"
        yield Finding((*path, "verify"), text, "write verify: true, or also allow_insecure: true", also)


def _exists(file: FilePath) -> bool:
    try:
        return file.is_file()
    except OSError:
        return False
