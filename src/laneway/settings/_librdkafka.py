"""Turns the settings of a cluster into options of librdkafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway.settings._properties import is_for_consumers, is_for_producers

if TYPE_CHECKING:
    from datetime import timedelta

    from laneway.settings._cluster import ClusterSettings, ProducerSettings, SecuritySettings

__all__ = ["client_options", "consumer_options", "producer_options"]

_READ_AHEAD = 16 * 2**20
"""Bytes per partition, for clients that read for no handler: tools that look at parked records and at groups."""

Options = dict[str, str | int | float | bool]

_HEADERS = 64 * 2**10  # bytes that the headers of a copy may take
_LARGEST = 10**9  # bytes; the client takes no larger limit


def client_options(cluster: ClusterSettings) -> Options:
    """Where to connect and how to log in, and the raw options that every client knows."""
    raw = {key: value for key, value in cluster.client.items() if is_for_consumers(key) and is_for_producers(key)}
    return {
        **raw,
        "bootstrap.servers": ",".join(cluster.brokers),
        "client.id": cluster.client_id,
        **_security_options(cluster.security),
    }


def consumer_options(cluster: ClusterSettings) -> Options:
    """Read-only consumption: offsets are stored and committed by laneway alone."""
    consumer = cluster.consumer
    options: Options = {
        # librdkafka's second of back-off after a full queue shows up as a second without records.
        "fetch.queue.backoff.ms": 2,
        **{key: value for key, value in cluster.client.items() if is_for_consumers(key)},
        **client_options(cluster),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "group.protocol": consumer.group_protocol,
        "isolation.level": consumer.isolation,
        "max.poll.interval.ms": _milliseconds(consumer.max_poll_interval),
        "fetch.wait.max.ms": _milliseconds(consumer.fetch_max_wait),
        "fetch.min.bytes": consumer.fetch_min_size,
        "fetch.message.max.bytes": consumer.fetch_max_size,
        "queued.max.messages.kbytes": (consumer.buffer_size or _READ_AHEAD) // 1024,
        "topic.metadata.refresh.interval.ms": _milliseconds(consumer.metadata_refresh),
    }
    if consumer.group_protocol == "classic":
        # With the newer protocol these are the broker's to decide, and librdkafka refuses them.
        options |= {
            "partition.assignment.strategy": consumer.assignment,
            "session.timeout.ms": _milliseconds(consumer.session_timeout),
            "heartbeat.interval.ms": _milliseconds(consumer.heartbeat_interval),
        }
    if consumer.static_membership:
        options["group.instance.id"] = consumer.static_membership
    return options


def producer_options(cluster: ClusterSettings) -> Options:
    """Idempotent writes, unless the settings ask for the leader only."""
    producer = cluster.producer
    is_safe = producer.acks == "all"
    return {
        **{key: value for key, value in cluster.client.items() if is_for_producers(key)},
        **client_options(cluster),
        "enable.idempotence": is_safe,
        "acks": "all" if is_safe else 1,
        # librdkafka takes fractions of a millisecond here, and only here.
        "linger.ms": producer.linger.total_seconds() * 1000,
        "delivery.timeout.ms": _milliseconds(producer.timeout),
        # Never what keeps a copy from being written: the record was read, and the limits of its topics count.
        "message.max.bytes": _most(producer),
        "compression.type": producer.compression,
        "queue.buffering.max.kbytes": producer.buffer_size // 1024,
        # As Java's: a key lands where other producers put it, and the empty key is a key (librdkafka's default
        # scatters it).
        "partitioner": "murmur2_random",
    }


def _most(producer: ProducerSettings) -> int:
    """The largest message in bytes; a larger one than the buffer would wait for room for ever."""
    buffer = min(_LARGEST, producer.buffer_size // 1024 * 1024)
    return buffer if producer.max_message_size is None else min(buffer, producer.max_message_size + _HEADERS)


def _milliseconds(value: timedelta) -> int:
    return round(value.total_seconds() * 1000)


def _security_options(security: SecuritySettings) -> Options:
    options: Options = {"security.protocol": security.protocol}
    if security.protocol.endswith("ssl"):
        options |= _tls_options(security)
    if security.protocol.startswith("sasl"):
        options |= _login_options(security)
    return options


def _tls_options(security: SecuritySettings) -> Options:
    options: Options = {
        "enable.ssl.certificate.verification": security.verify,
        "ssl.endpoint.identification.algorithm": "https" if security.verify else "none",
    }
    if len(security.ca) == 1:
        options["ssl.ca.location"] = str(security.ca[0])
    elif security.ca:
        # librdkafka takes one file only; several authorities have to be handed over as one text.
        options["ssl.ca.pem"] = "\n".join(path.read_text(encoding="ascii") for path in security.ca)
    if security.certificate and security.key:
        options["ssl.certificate.location"] = str(security.certificate)
        options["ssl.key.location"] = str(security.key)
    if security.key_password:
        options["ssl.key.password"] = security.key_password.reveal()
    return options


def _login_options(security: SecuritySettings) -> Options:
    options: Options = {"sasl.mechanism": security.mechanism or ""}
    if security.mechanism != "OAUTHBEARER":
        if security.username and security.password:
            options |= {"sasl.username": security.username, "sasl.password": security.password.reveal()}
        return options
    oauth = security.oauth
    if oauth.token_url and oauth.client_id and oauth.client_secret:
        options |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": oauth.token_url,
            "sasl.oauthbearer.client.id": oauth.client_id,
            "sasl.oauthbearer.client.secret": oauth.client_secret.reveal(),
        }
    if oauth.scope:
        options["sasl.oauthbearer.scope"] = oauth.scope
    return options
