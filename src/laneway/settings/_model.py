"""The settings of a whole app: one frozen value, made by `laneway.settings.load`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, PrivateAttr

from laneway._declare.cron import Cron
from laneway.errors import Problem
from laneway.settings import _spark
from laneway.settings._cluster import ClusterSettings
from laneway.settings._dedup import DedupSettings, IdSource
from laneway.settings._producers import TopicProducerSettings  # noqa: TC001 - pydantic evaluates it
from laneway.settings._secret import MASK
from laneway.settings._types import (
    Address,
    Durations,
    DurationType,
    Name,
    SizeType,
    SwitchType,
    Text,
    TopicName,
    Word,
    as_conf,
    byte_size,
    duration,
    integer,
    wrong,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ErrorSettings", "HandlerSettings", "HealthSettings", "Settings", "SparkSettings", "TopicSettings"]

_FROZEN = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _conf_key(key: str) -> str:
    refused = _spark.refusal(key)
    if refused:
        raise wrong(*refused)
    return key


def _master(master: str) -> str:
    if not re.fullmatch(r"local(\[[0-9*, ]+\])?|local-cluster\[[0-9, ]+\]|yarn|(spark|k8s)://.+", master):
        raise wrong("this is not a Spark master", "write local[*], local[4], spark://host:7077, yarn or k8s://...")
    return master


def _function(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        raise wrong("this is no function of a module", "write module:function, for example billing:bank_answers")
    return text


def _cron(text: str) -> str:
    try:
        return Cron.parse(text).text
    except ValueError as error:
        raise wrong(str(error), "write five fields, for example */15 * * * *") from None


def _masked(conf: dict[str, str]) -> dict[str, str]:
    return {key: MASK if _spark.is_secret(key, value) else value for key, value in conf.items()}


ConfKey = Annotated[str, AfterValidator(_conf_key)]
ConfValue = Annotated[str, PlainValidator(as_conf)]
Conf = Annotated[dict[ConfKey, ConfValue], PlainSerializer(_masked)]


class HandlerSettings(BaseModel):
    """What the configuration changes about one handler; None keeps what the code declares."""

    model_config = _FROZEN

    enabled: SwitchType | None = Field(
        default=None, description="Whether the handler runs. False leaves its records unread."
    )
    cluster: Name | None = Field(
        default=None, description="The cluster the handler reads from. Not set: that of its topic."
    )
    lanes: Annotated[int, integer(0, 1_000_000)] | None = Field(
        default=None,
        description="How many keys of a partition may be handled at the same time; 0 and 1 mean one record at a time."
        " More lanes hide slow calls, cost memory, and need a handler that may run concurrently.",
    )
    order: Annotated[Literal["key", "partition", "none"], Word] | None = Field(
        default=None, description="What stays in order. Each step from none to key to partition costs parallelism."
    )
    timeout: Annotated[DurationType, duration("1ms", "1d")] | None = Field(
        default=None, description="How long one call of the handler may take. Not set in the code either: no limit."
    )
    attempts: Annotated[int, integer(1, 1_000_000)] | None = Field(
        default=None,
        description="How many attempts a record gets before it is parked on the error topic, the first one included.",
    )
    backoff: Annotated[DurationType, duration("0s", "1d")] | None = Field(
        default=None,
        description="The wait before the second attempt; it doubles each time. Only records of the same key wait.",
    )
    backoff_max: Annotated[DurationType, duration("0s", "1d")] | None = Field(
        default=None, description="The longest wait between two attempts."
    )
    retry_steps: Durations | None = Field(
        default=None,
        description="The delays after which a record without attempts left is retried, one per step, such as"
        " [5s, 1m, 10m]. An empty list means no steps. At most 20.",
    )
    retry_mode: Annotated[Literal["blocking", "unordered", "ordered"], Word] | None = Field(
        default=None,
        description="Where a record waits for its step: on a retry topic while its key continues (unordered), on a"
        " retry topic with later records of its key queued behind it (ordered), or in place (blocking). Not set in the"
        " code either: unordered.",
    )
    delay: Annotated[DurationType, duration("0s", "365d")] | None = Field(
        default=None,
        description="How old a record must be before it is handled, counted from its timestamp. All handlers of a topic"
        " have the same.",
    )
    breaker_failures: Annotated[int, integer(1, 1_000_000)] | None = Field(
        default=None,
        description="Consecutive failures that open the circuit breaker. Set it above attempts, or one bad record opens"
        " it. Not set in the code either: no breaker.",
    )
    breaker_pause: Annotated[DurationType, duration("10ms", "1d")] | None = Field(
        default=None,
        description="How long the breaker stays open before one call is tried; doubles while that fails, up to 1m or"
        " the limit in the code.",
    )
    processes: Annotated[int, integer(0, 10_000)] | None = Field(
        default=None,
        description="How many processes run the handler, for CPU-bound work; on Spark in each Python worker process, of"
        " which there is one per running task. 0: none.",
    )
    size: Annotated[int, integer(1, 10_000_000)] | None = Field(
        default=None, description="How many records make a full batch or table. Not for handlers of single records."
    )
    within: Annotated[DurationType, duration("1ms", "1h")] | None = Field(
        default=None,
        description="How long a batch may wait to be full. Longer fills batches better and delays records. On Spark a"
        " batch also ends with the records of its micro-batch. Only for batch, unique and custom handlers.",
    )
    buffer_records: Annotated[int, integer(1)] | None = Field(
        default=None, description="How many records may wait in front of the lanes. Bounds memory when one key is hot."
    )
    buffer_size: Annotated[SizeType, byte_size("1KiB", "64GiB")] | None = Field(
        default=None, description="How many bytes may wait in front of the lanes. Bounds memory when records are large."
    )
    error_topic: TopicName | None = Field(default=None, description="Where records that cannot be handled are parked.")
    oversize: Annotated[Literal["wait", "reference"], Word] | None = Field(
        default=None,
        description="What happens to a copy that is too large for the error topic even without its trace. wait: its key"
        " waits, and health shows it. reference: it is written without its value, and without headers if needed.",
    )
    guarantee: Annotated[Literal["at_least_once", "effectively_once"], Word] | None = Field(
        default=None,
        description="How often a record has its effect: once or more, or once as far as the dedup store knows.",
    )
    dedup_id: IdSource | None = Field(default=None, description="Where the ids of its records come from; see dedup.id.")
    strict: SwitchType | None = Field(
        default=None,
        description="Whether each partition keeps its lanes for itself; otherwise a busy partition borrows those of an"
        " idle one. Fairer, but slower.",
    )
    start: Annotated[Literal["earliest", "latest"], Word] | None = Field(
        default=None, description="Where a new group starts. latest skips what is in the topic at the first start."
    )


class TopicSettings(BaseModel):
    """Name and cluster of a topic."""

    model_config = _FROZEN

    name: TopicName = Field(
        description="The name of the topic on the brokers, for handlers that read it and for messages they return."
    )
    cluster: Name | None = Field(
        default=None,
        description="The cluster it is on, for handlers that read it and for messages they return. Not set: the default"
        " cluster. Messages for topics that are not listed here stay on the cluster that their handler reads from.",
    )


class ErrorSettings(BaseModel):
    """What the configuration changes about the runs over the error topics; None keeps what the code declares."""

    model_config = _FROZEN

    enabled: SwitchType | None = Field(default=None, description="Whether runs start on the schedule.")
    cron: Annotated[Text, AfterValidator(_cron)] | None = Field(
        default=None,
        description="When runs start, in local time: minute, hour, day of month, month, day of week. Not set in the"
        " code either: only manually.",
    )
    max_errors: Annotated[int, integer(0, 1_000_000)] | None = Field(
        default=None,
        description="A record that was parked this often is skipped. 0 means no limit: a record that can never succeed"
        " is parked again in each run.",
    )
    stop_when_idle: Annotated[DurationType, duration("0s", "1d")] | None = Field(
        default=None,
        description="How long a run waits for records on an engine that waits for some. Spark does not.",
    )
    stop_when_new: Annotated[DurationType, duration("0s", "365d")] | None = Field(
        default=None,
        description="A run ends before records parked within this time before it. 0s means no limit.",
    )
    action: Annotated[Literal["handle", "replay"], Word] | None = Field(
        default=None,
        description="What is done with a record: its handler is called, or it is copied back to its topic.",
    )


class SparkSettings(BaseModel):
    """How the Spark engine runs."""

    model_config = _FROZEN

    master: Annotated[Address, AfterValidator(_master)] = Field(
        default="local[*]",
        description="Where Spark runs. The default uses all cores of this machine and needs no cluster.",
    )
    trigger: Annotated[DurationType, duration("0s", "1d")] = Field(
        default=timedelta(0),
        description="The shortest time between two batches. 0s starts the next one at once, for the lowest delay;"
        " longer costs delay and saves planning work.",
    )
    batch_time: Annotated[DurationType, duration("10ms", "1h")] = Field(
        default=timedelta(seconds=5),
        description="After this time the tasks of a micro-batch begin no further record, and the batch ends when those"
        " that were begun are done. Shorter commits more often and repeats less after a crash; longer has less"
        " overhead.",
    )
    tasks: Annotated[int, integer(1, 100_000)] | None = Field(
        default=None,
        description="How many Spark tasks share the work of a handler. Not set: one for each core of this machine, or"
        " with a master that is not local one for each core of the executors that there are when a batch begins. With"
        " Spark's dynamic allocation give a number: it asks for executors only when tasks wait for one.",
    )
    ui: SwitchType = Field(
        default=False, description="Whether Spark's web UI runs. Off, because it shows the environment."
    )
    conf: Conf = Field(
        default_factory=dict,
        repr=False,
        description="Other Spark options. Those that break a guarantee of laneway or load code are refused. Secrets as"
        " {env: NAME}.",
    )


class HealthSettings(BaseModel):
    """Thresholds of the health, and a check that must hold for records to be handled."""

    model_config = _FROZEN

    minimum_brokers: Annotated[int, integer(1, 10_000)] = Field(
        default=1, description="The expected number of brokers; with fewer, health is a warning."
    )
    stalled_after: Annotated[DurationType, duration("1s", "1d")] = Field(
        default=timedelta(seconds=30),
        description="How long a partition with unfinished records may make no progress before health is a warning.",
    )
    check: Annotated[Text, AfterValidator(_function)] | None = Field(
        default=None,
        description="A function, as `module:function`, sync or async, called about once a second in the process that"
        " runs the app. While it returns False, raises or does not answer for five seconds, no record is begun.",
    )


def _local() -> dict[str, ClusterSettings]:
    return {"main": ClusterSettings(brokers=("127.0.0.1:9092",))}


class Settings(BaseModel):
    """All settings, validated. Frozen: safe to share between threads and to pickle."""

    model_config = _FROZEN

    engine: Annotated[Literal["spark", "direct"], Word] = Field(
        default="spark", description="What runs the handlers: Spark, or threads in this process with a consumer group."
    )
    drain: Annotated[DurationType, duration("0s", "1h")] = Field(
        default=timedelta(seconds=30),
        description="How long a stop waits for records in flight. The default fits the usual grace period of a"
        " container; what is not finished by then is repeated at the next start.",
    )
    on_data_loss: Annotated[Literal["fail", "continue"], Word] = Field(
        default="fail",
        description="What happens when unread records were deleted, or their topic was deleted and recreated. fail ends"
        " the run and commits nothing more of the topic; continue counts what is missing, and reads a new topic from"
        " its start.",
    )
    create_topics: SwitchType = Field(
        default=True,
        description="Whether error and retry topics that are missing or were deleted are created, at the start and"
        " while an app runs, and retry topics grow with their source. False waits for them and logs that.",
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Word] = Field(
        default="info",
        description="The level of laneway's own log lines, in commands. Other loggers show warnings and errors. A"
        " program of your own configures `logging` itself.",
    )
    log_format: Annotated[Literal["text", "json"], Word] = Field(
        default="text", description="How commands write log lines to stderr: as text, or one JSON object per line."
    )
    default_cluster: Name = Field(
        default="main",
        alias="cluster",
        description="The cluster of handlers and topics that name none. Required with several clusters.",
    )
    clusters: dict[Name, ClusterSettings] = Field(
        default_factory=_local, description="The Kafka clusters by name. None given: main at 127.0.0.1:9092."
    )
    handlers: dict[Text, HandlerSettings] = Field(
        default_factory=dict, description="Changes to handlers, by the name of the function."
    )
    topics: dict[Text, TopicSettings] = Field(
        default_factory=dict, description="Name and cluster of topics, by their name in the code."
    )
    producers: dict[Text, TopicProducerSettings] = Field(
        default_factory=dict,
        description="How messages for topics are written, by the name of the topic in the code. It holds for messages"
        " that handlers return and for those of a `Producer`.",
    )
    dedup: DedupSettings = Field(
        default_factory=DedupSettings, description="The store of handled records, for effectively_once."
    )
    errors: ErrorSettings = Field(default_factory=ErrorSettings, description="Runs over parked records: when and how.")
    spark: SparkSettings = Field(default_factory=SparkSettings, description="How the Spark engine runs.")
    health: HealthSettings = Field(
        default_factory=HealthSettings, description="Thresholds of the direct engine's health."
    )

    _warnings: tuple[Problem, ...] = PrivateAttr(())
    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Allowed but risky settings, such as a password in the file."""
        return self._warnings

    @property
    def origins(self) -> Mapping[str, str]:
        """Where each value that is not a default comes from: ``laneway.yaml:7``, a variable, or ``flag``."""
        return self._origins

    def cluster(self, name: str | None = None) -> ClusterSettings:
        """The named cluster, or the default one."""
        return self.clusters[name or self.default_cluster]

    def problem(self, key: str, message: str, fix: str) -> Problem:
        """A problem with the value of a setting, with the place where it was given."""
        origin = self._origins.get(key, "settings")
        source, _, line = origin.rpartition(":")
        is_file = bool(source) and line.isdecimal()
        return Problem(source if is_file else origin, int(line) if is_file else None, key, message, fix)

    def with_overrides(self, overrides: Mapping[str, object]) -> Settings:
        """A copy with some settings changed, by dotted key as in `load`, and checked again.

        Raises:
            SettingsError: with every problem.
        """
        from laneway.settings._load import overridden

        return overridden(self, overrides)

    def dump(self) -> dict[str, Any]:
        """Plain nested values as the file would have them, with secrets masked."""
        return self.model_dump(mode="json", by_alias=True)

    def __eq__(self, other: object) -> bool:
        # Equal settings are equal, no matter which file or variable they came from.
        return isinstance(other, Settings) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]
