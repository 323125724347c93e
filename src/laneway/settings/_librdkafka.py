"""Options of librdkafka: those made from a cluster's settings, and which raw ones are allowed."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta

    from laneway.settings._cluster import ClusterSettings, ProducerSettings, SecuritySettings

__all__ = ["FORBIDDEN", "MANAGED", "client_options", "consumer_options", "producer_options", "refusal"]

_READ_AHEAD = 16 * 2**20
"""Bytes per partition, for clients that read for tools and not for a handler."""

Options = dict[str, str | int | float | bool]

_ACKS: dict[str, str | int] = {"all": "all", "leader": 1, "none": 0}
_HEADERS = 64 * 2**10  # bytes that the headers of a copy may take
_LARGEST = 10**9  # bytes; the client takes no larger limit

_ANY = """
allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
broker.address.family broker.address.ttl broker.version.fallback client.dns.lookup client.rack
connections.max.idle.ms debug enable.metrics.push enable.random.seed enable.sparse.connections https.ca.location
log.connection.close log.queue log.thread.name log_level
message.copy.max.bytes metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
metadata.request.timeout.ms receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms socket.connection.setup.timeout.ms
socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes
socket.timeout.ms statistics.interval.ms topic.blacklist topic.metadata.propagation.max.ms
topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse
"""
_CONSUMER = """
check.crcs coordinator.query.interval.ms fetch.error.backoff.ms fetch.max.bytes
fetch.queue.backoff.ms
"""
_PRODUCER = """
batch.num.messages batch.size compression.level
queue.buffering.backpressure.threshold queue.buffering.max.messages request.timeout.ms sticky.partitioning.linger.ms
transaction.timeout.ms
"""

_ALLOWED_ANY = frozenset(_ANY.split())
_ALLOWED_CONSUMER = frozenset(_CONSUMER.split())
_ALLOWED_PRODUCER = frozenset(_PRODUCER.split())

_LEDGER = "laneway commits an offset only when every record before it is finished"
_ORDER = "the order of messages holds only with few requests in flight"
_RETRIES = "a message is resent until producer.timeout"

MANAGED: dict[str, tuple[str, str]] = {
    "acks": ("a lost acknowledgement loses records", "use producer.acks"),
    "auto.commit.enable": (_LEDGER, "remove it"),
    "auto.commit.interval.ms": (_LEDGER, "remove it"),
    "auto.offset.reset": ("a silent jump to the end loses records", "use handlers.<name>.start and on_data_loss"),
    "bootstrap.servers": ("it has its own setting", "use brokers"),
    "client.id": ("it has its own setting", "use client_id"),
    "compression.codec": ("it has its own setting", "use producer.compression"),
    "compression.type": ("it has its own setting", "use producer.compression"),
    "delivery.report.only.error": ("laneway waits for every delivery report", "remove it"),
    "delivery.timeout.ms": ("it has its own setting", "use producer.timeout"),
    "enable.auto.commit": (_LEDGER, "remove it"),
    "enable.auto.offset.store": (_LEDGER, "remove it"),
    "enable.gapless.guarantee": ("one lost message would stop the producer", "remove it"),
    "enable.idempotence": ("without it a retried request writes a message twice", "use producer.acks"),
    "enable.ssl.certificate.verification": ("it has its own setting", "use security.verify"),
    "enable.partition.eof": ("laneway reads up to the end of a log", "remove it"),
    "fetch.message.max.bytes": ("it has its own setting", "use consumer.fetch_max_size"),
    "fetch.min.bytes": ("it has its own setting", "use consumer.fetch_min_size"),
    "fetch.wait.max.ms": ("it has its own setting", "use consumer.fetch_max_wait"),
    "group.id": ("the group is the name of the app", "change the name in App(...)"),
    "group.instance.id": ("it has its own setting", "use consumer.static_membership"),
    "group.protocol": ("it has its own setting", "use consumer.group_protocol"),
    "group.remote.assignor": ("only the classic protocol is tested", "remove it"),
    "heartbeat.interval.ms": ("it has its own setting", "use consumer.heartbeat_interval"),
    "isolation.level": ("it has its own setting", "use consumer.isolation"),
    "linger.ms": ("it has its own setting", "use producer.linger"),
    "max.in.flight": (_ORDER, "remove it"),
    "max.in.flight.requests.per.connection": (_ORDER, "remove it"),
    "max.partition.fetch.bytes": ("it has its own setting", "use consumer.fetch_max_size"),
    "max.poll.interval.ms": ("it has its own setting", "use consumer.max_poll_interval"),
    "message.max.bytes": ("it has its own setting", "use producer.max_message_size"),
    "message.send.max.retries": (_RETRIES, "use producer.timeout"),
    "message.timeout.ms": ("it has its own setting", "use producer.timeout"),
    "metadata.broker.list": ("it has its own setting", "use brokers"),
    "offset.store.method": (_LEDGER, "remove it"),
    "offset.store.path": (_LEDGER, "remove it"),
    "partition.assignment.strategy": ("it has its own setting", "use consumer.assignment"),
    "partitioner": ("a key must land in the partition where other producers put it", "remove it"),
    "queue.buffering.max.kbytes": ("it has its own setting", "use producer.buffer_size"),
    "queue.buffering.max.ms": ("it has its own setting", "use producer.linger"),
    "queued.max.messages.kbytes": ("it has its own setting", "use consumer.buffer_size"),
    "queued.min.messages": ("it is derived from the buffers of the handlers", "use handlers.<name>.buffer_records"),
    "queuing.strategy": ("a last-in-first-out queue breaks the order", "remove it"),
    "request.required.acks": ("a lost acknowledgement loses records", "use producer.acks"),
    "retries": (_RETRIES, "use producer.timeout"),
    "session.timeout.ms": ("it has its own setting", "use consumer.session_timeout"),
    "topic.metadata.refresh.interval.ms": ("it has its own setting", "use consumer.metadata_refresh"),
    "transactional.id": ("laneway names transactions itself, so that a restart fences the old one", "remove it"),
}

_CODE = "it loads or runs code from the configuration"

FORBIDDEN: dict[str, str] = {
    "plugin.library.paths": _CODE,
    "sasl.kerberos.kinit.cmd": "it runs a shell command from the configuration",
    "sasl.kerberos.keytab": "Kerberos needs a shell command",
    "sasl.kerberos.principal": "Kerberos needs a shell command",
    "ssl.engine.location": _CODE,
    "ssl.engine.id": _CODE,
    "ssl.engine.callback.data": _CODE,
    "ssl_engine_callback": _CODE,
    "ssl.providers": _CODE,
    "sasl.jaas.config": "it carries a password and can load Java classes",
    "enable.sasl.oauthbearer.unsecure.jwt": "it accepts unsigned tokens",
    "config.providers": _CODE,
}

_FORBIDDEN_PARTS = ("jaas", "login.module", "login.callback", "callback.handler", "config.providers", "kinit")
_SECURITY = ("sasl.", "ssl.", "security.")


def client_options(cluster: ClusterSettings) -> Options:
    """Where to connect and how to log in, and the raw options that every client knows."""
    raw = {key: value for key, value in cluster.client.items() if _is_for_consumers(key) and _is_for_producers(key)}
    return {
        **raw,
        "bootstrap.servers": ",".join(cluster.brokers),
        "client.id": cluster.client_id,
        **_security_options(cluster.security),
    }


def consumer_options(cluster: ClusterSettings) -> Options:
    """Options of a consumer that never stores or commits offsets by itself."""
    consumer = cluster.consumer
    options: Options = {
        # librdkafka's second of back-off after a full queue shows up as a second without records.
        "fetch.queue.backoff.ms": 2,
        **{key: value for key, value in cluster.client.items() if _is_for_consumers(key)},
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
        # With the newer protocol the broker decides these, and librdkafka refuses them.
        options |= {
            "partition.assignment.strategy": consumer.assignment,
            "session.timeout.ms": _milliseconds(consumer.session_timeout),
            "heartbeat.interval.ms": _milliseconds(consumer.heartbeat_interval),
        }
    if consumer.static_membership:
        options["group.instance.id"] = consumer.static_membership
    return options


def producer_options(cluster: ClusterSettings, producer: ProducerSettings | None = None) -> Options:
    """Idempotent writes, unless the settings ask for fewer acknowledgements.

    Args:
        cluster: where to write.
        producer: how, if not as the cluster says; then no copies of records are written, so its limit is exact.
    """
    headers = _HEADERS if producer is None else 0
    producer = producer or cluster.producer
    is_safe = producer.acks == "all"
    return {
        **{key: value for key, value in cluster.client.items() if _is_for_producers(key)},
        **client_options(cluster),
        "enable.idempotence": is_safe,
        "acks": _ACKS[producer.acks],
        # librdkafka takes fractions of a millisecond here, and only here.
        "linger.ms": producer.linger.total_seconds() * 1000,
        "delivery.timeout.ms": _milliseconds(producer.timeout),
        # The client must never refuse a copy: its record was read, and the limit of the topic decides.
        "message.max.bytes": _most(producer, headers),
        "compression.type": producer.compression,
        "queue.buffering.max.kbytes": producer.buffer_size // 1024,
        # The Java client's default: a key goes where other producers put it, also an empty key (librdkafka's default
        # spreads empty keys).
        "partitioner": "murmur2_random",
    }


def _most(producer: ProducerSettings, headers: int) -> int:
    """The largest message in bytes. One larger than the buffer would wait forever."""
    buffer = min(_LARGEST, producer.buffer_size // 1024 * 1024)
    return buffer if producer.max_message_size is None else min(buffer, producer.max_message_size + headers)


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
        # librdkafka takes only one file; several authorities have to be passed as one text.
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


def _is_for_consumers(key: str) -> bool:
    """Whether a consumer understands the option; librdkafka warns about the others."""
    return key not in _ALLOWED_PRODUCER


def _is_for_producers(key: str) -> bool:
    """Whether a producer understands the option."""
    return key not in _ALLOWED_CONSUMER


def refusal(key: str) -> tuple[str, str] | None:
    """Why an option is not allowed and what to write instead; None when it is allowed."""
    if key in _ALLOWED_ANY | _ALLOWED_CONSUMER | _ALLOWED_PRODUCER:
        return None
    # Only exact names are allowed; normalising the spelling only finds the right reason.
    even = "".join(key.split()).lower().strip("'\"")
    dots = even.replace("_", ".").replace("-", ".")
    forbidden = FORBIDDEN.get(even) or FORBIDDEN.get(dots)
    if not forbidden and (dots.endswith((".cb", ".callback")) or any(part in dots for part in _FORBIDDEN_PARTS)):
        forbidden = _CODE
    if forbidden:
        return f"the option is forbidden: {forbidden}", "remove it"
    if dots in MANAGED:
        reason, fix = MANAGED[dots]
        return f"the option is managed by laneway: {reason}", fix
    if dots.startswith(_SECURITY):
        return "the option is managed by laneway: login and TLS have their own settings", "use the 'security' settings"
    return _unknown(dots)


def _unknown(name: str) -> tuple[str, str]:
    known = sorted(_ALLOWED_ANY | _ALLOWED_CONSUMER | _ALLOWED_PRODUCER | MANAGED.keys())
    near = get_close_matches(name[:100], known, n=1, cutoff=0.75)
    if not near:
        return "librdkafka has no such option, or it is not allowed here", "see the librdkafka CONFIGURATION page"
    fix = MANAGED[near[0]][1] if near[0] in MANAGED else f"did you mean '{near[0]}'?"
    return "librdkafka has no such option", fix
