"""The settings of one Kafka cluster: brokers, login, producer, consumer."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from laneway.settings import _librdkafka
from laneway.settings._types import (
    AcksWord,
    Address,
    Brokers,
    DurationType,
    FilePath,
    FilePaths,
    Hidden,
    Option,
    SizeType,
    SwitchType,
    Text,
    Upper,
    Word,
    byte_size,
    duration,
    wrong,
)

__all__ = [
    "ClusterSettings",
    "ConsumerSettings",
    "OauthSettings",
    "ProducerSettings",
    "SecuritySettings",
]

_FROZEN = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _option_key(key: str) -> str:
    refused = _librdkafka.refusal(key)
    if refused:
        raise wrong(*refused)
    return key


OptionKey = Annotated[str, AfterValidator(_option_key)]


class OauthSettings(BaseModel):
    """Where tokens for OAUTHBEARER come from (OpenID Connect, client credentials)."""

    model_config = _FROZEN

    token_url: Address | None = Field(
        default=None, description="URL of the token endpoint; https only, because it receives the secret."
    )
    client_id: Text | None = Field(default=None, description="Name of this client at the token endpoint.")
    client_secret: Hidden | None = Field(default=None, description="Its secret: {env: NAME} or {file: path}.")
    scope: Text | None = Field(
        default=None, description="Scope of the token, as your provider documents it. Not set: none."
    )


class SecuritySettings(BaseModel):
    """Encryption and login."""

    model_config = _FROZEN

    protocol: Annotated[Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"], Word] = Field(
        default="plaintext", description="Encryption and login. The default suits a broker on this machine only."
    )
    mechanism: Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"], Upper] | None = Field(
        default=None, description="How to log in; needed with sasl_plaintext and sasl_ssl."
    )
    username: Text | None = Field(default=None, description="Who logs in, with PLAIN and SCRAM.")
    password: Hidden | None = Field(
        default=None,
        description="{env: NAME} or {file: path}, read at the start. A literal text works, with a warning.",
    )
    oauth: OauthSettings = Field(default_factory=OauthSettings, description="Tokens for OAUTHBEARER.")
    ca: FilePaths = Field(
        default=(),
        description="PEM files of the authorities to trust, relative to the configuration file. Not set: those of the"
        " system.",
    )
    certificate: FilePath | None = Field(default=None, description="PEM file of this client, for mutual TLS.")
    key: FilePath | None = Field(default=None, description="PEM file of the private key of the certificate.")
    key_password: Hidden | None = Field(default=None, description="Passphrase of the key: {env: NAME} or {file: path}.")
    verify: SwitchType = Field(
        default=True, description="Whether to verify the broker's certificate. False also needs allow_insecure: true."
    )
    allow_insecure: SwitchType = Field(
        default=False, description="Confirms verify: false. A man in the middle can then read everything."
    )
    allow_plaintext_passwords: SwitchType = Field(
        default=False,
        description="Lets PLAIN and OAUTHBEARER log in without TLS. A man in the middle can read the password.",
    )


class ProducerSettings(BaseModel):
    """How messages are written."""

    model_config = _FROZEN

    compression: Annotated[Literal["none", "gzip", "snappy", "lz4", "zstd"], Word] = Field(
        default="none",
        description="Compression of messages. Saves network and disk, costs CPU; lz4 and zstd are cheap.",
    )
    timeout: Annotated[DurationType, duration("1ms", "1d")] = Field(
        default=timedelta(seconds=30),
        description="How long a message may take, resends included, before it fails. Long enough for a broker restart.",
    )
    max_message_size: Annotated[SizeType, byte_size("1000b", "1GB")] | None = Field(
        default=None,
        description="The largest message the client accepts; a copy may be larger by its headers. Not set: what fits"
        " into buffer_size, and each topic's own limit (max.message.bytes) decides.",
    )
    linger: Annotated[DurationType, duration("0s", "15m")] = Field(
        default=timedelta(milliseconds=5),
        description="How long a message waits for others to share a request. 0s is the fastest for one message and"
        " costs many small requests. Not set, it is 25ms on Spark, whose batches take longer than that anyway.",
    )
    acks: Annotated[Literal["all", "leader"], Word, AcksWord] = Field(
        default="all",
        description="Which replicas must have a message before it counts as written. leader is faster, but can lose"
        " messages and parked records when a broker fails, so it gives a warning.",
    )
    buffer_size: Annotated[SizeType, byte_size("1KiB", "64GiB")] = Field(
        default=64 * 2**20,
        description="How many bytes may wait to be sent. Bounds memory; a full buffer makes producers wait.",
    )


class ConsumerSettings(BaseModel):
    """How records are read."""

    model_config = _FROZEN

    session_timeout: Annotated[DurationType, duration("1ms", "1h")] = Field(
        default=timedelta(seconds=45),
        description="Silence after which the group gives the partitions of this process to others.",
    )
    heartbeat_interval: Annotated[DurationType, duration("1ms", "1h")] = Field(
        default=timedelta(seconds=3),
        description="Time between two heartbeats; less than a third of session_timeout.",
    )
    max_poll_interval: Annotated[DurationType, duration("1ms", "1d")] = Field(
        default=timedelta(minutes=5),
        description="Time after which a process that does not poll is considered stuck; also the limit of a rebalance.",
    )
    fetch_min_size: Annotated[SizeType, byte_size("1b", "100MB")] = Field(
        default=1,
        description="How many bytes a broker collects before it answers. More saves requests and delays records.",
    )
    fetch_max_wait: Annotated[DurationType, duration("0s", "5m")] = Field(
        default=timedelta(milliseconds=10),
        description="How long a broker waits for fetch_min_size. Short, so that a quiet partition does not delay others"
        " on the same broker; costs idle requests.",
    )
    fetch_max_size: Annotated[SizeType, byte_size("1b", "1GB")] = Field(
        default=2**20, description="How many bytes one partition gives per request; a larger record is still read."
    )
    buffer_size: Annotated[SizeType, byte_size("1KiB", "2047MiB")] | None = Field(
        default=None,
        description="How many bytes one client prefetches, over all of its partitions, in addition to what waits for"
        " lanes. Bounds memory; too small makes fast handlers wait. Not set: the largest buffer_size of"
        " the handlers (64MiB), and at least 1MiB for each partition.",
    )
    metadata_refresh: Annotated[DurationType, duration("10ms", "1h")] = Field(
        default=timedelta(seconds=30), description="How soon new partitions are found. Shorter costs requests."
    )
    isolation: Annotated[Literal["read_committed", "read_uncommitted"], Word] = Field(
        default="read_committed", description="Whether records of aborted transactions are hidden."
    )
    group_protocol: Annotated[Literal["classic", "consumer"], Word] = Field(
        default="classic",
        description="The rebalance protocol. consumer is Kafka's newer protocol (4.0 and later): the broker assigns"
        " partitions and sets the session and heartbeat times.",
    )
    assignment: Annotated[Literal["cooperative-sticky", "range", "roundrobin"], Word] = Field(
        default="cooperative-sticky",
        description="The assignment strategy, with group_protocol classic. With cooperative-sticky only partitions that"
        " move stop. All members of a group must have the same strategy.",
    )
    static_membership: Text | None = Field(
        default=None,
        description="A name of this process that survives restarts, such as its pod's. A restart within session_timeout"
        " then moves no partitions. Two processes with one name evict each other.",
    )


class ClusterSettings(BaseModel):
    """One Kafka cluster. The methods return client options with unmasked secrets: do not print them."""

    model_config = _FROZEN

    brokers: Brokers = Field(description="Bootstrap servers: a list of host:port, or one text with commas.")
    client_id: Text = Field(default="laneway", description="The client's name in the brokers' logs and quotas.")
    security: SecuritySettings = Field(default_factory=SecuritySettings, description="Encryption and login.")
    producer: ProducerSettings = Field(default_factory=ProducerSettings, description="How messages are written.")
    consumer: ConsumerSettings = Field(default_factory=ConsumerSettings, description="How records are read.")
    client: dict[OptionKey, Option] = Field(
        default_factory=dict,
        description="Other librdkafka options, for all clients. Those that laneway sets or that run code are refused.",
    )

    def client_options(self) -> dict[str, str | int | float | bool]:
        """Options that every client of this cluster needs."""
        return _librdkafka.client_options(self)

    def consumer_options(self) -> dict[str, str | int | float | bool]:
        """Options of a consumer; the caller adds ``group.id``."""
        return _librdkafka.consumer_options(self)

    def producer_options(self) -> dict[str, str | int | float | bool]:
        """Options of a producer."""
        return _librdkafka.producer_options(self)
