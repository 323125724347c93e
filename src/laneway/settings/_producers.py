"""How messages for one topic are written, and where each message goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from laneway.settings import _librdkafka
from laneway.settings._types import AcksWord, DurationType, Name, SizeType, TopicName, Word, byte_size, duration

if TYPE_CHECKING:
    from laneway.settings._cluster import ProducerSettings
    from laneway.settings._model import Settings

__all__ = ["MessageRoute", "TopicProducerSettings", "message_route", "producer_of", "producer_options"]


class TopicProducerSettings(BaseModel):
    """Where messages for one topic go and how they are written; None keeps what the cluster has."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    topic: TopicName | None = Field(
        default=None,
        description="The name of the topic on the brokers. Not set: that of `topics`, or the name in the code.",
    )
    cluster: Name | None = Field(
        default=None, description="The cluster it is on. Not set: that of `topics`, or the default cluster."
    )
    acks: Annotated[Literal["all", "leader", "none"], Word, AcksWord] | None = Field(
        default=None,
        description="Which replicas must have a message before it counts as written: all, leader (1) or none (0). With"
        " leader messages can be lost when a broker fails, with none at any time and without an error, so both give a"
        " warning.",
    )
    timeout: Annotated[DurationType, duration("1ms", "1d")] | None = Field(
        default=None, description="How long a message may take, resends included, before it fails."
    )
    max_message_size: Annotated[SizeType, byte_size("1000b", "1GB")] | None = Field(
        default=None, description="The largest message the client accepts; a larger one fails at once."
    )
    compression: Annotated[Literal["none", "gzip", "snappy", "lz4", "zstd"], Word] | None = Field(
        default=None, description="Compression of messages."
    )
    linger: Annotated[DurationType, duration("0s", "15m")] | None = Field(
        default=None, description="How long a message waits for others to share a request."
    )
    buffer_size: Annotated[SizeType, byte_size("1KiB", "64GiB")] | None = Field(
        default=None, description="How many bytes may wait to be sent. A full buffer makes producers wait."
    )

    @property
    def changes(self) -> dict[str, object]:
        """What differs from the cluster's producer."""
        return self.model_dump(exclude_none=True, exclude={"topic", "cluster"})


@dataclass(frozen=True, slots=True)
class MessageRoute:
    """Where messages for a topic of the code go."""

    topic: str
    """The name on the brokers."""
    cluster: str
    producer: str | None = None
    """The entry of ``producers`` whose settings differ from the cluster's; None when there is none."""

    @property
    def client(self) -> str:
        """Names the client: routes with the same one share it."""
        return self.cluster if self.producer is None else f"{self.cluster}/{self.producer}"


def message_route(settings: Settings, name: str, home: str | None = None) -> MessageRoute:
    """Where messages for a topic go.

    Args:
        settings: the configuration.
        name: the topic's name in the code.
        home: the cluster for topics that the configuration does not name; by default the default cluster.
    """
    entry, listed = settings.producers.get(name), settings.topics.get(name)
    topic = (entry and entry.topic) or (listed and listed.name) or name
    cluster = (entry and entry.cluster) or (listed and listed.cluster)
    is_named = entry is not None or listed is not None
    cluster = cluster or (settings.default_cluster if is_named or home is None else home)
    return MessageRoute(topic, cluster, name if entry is not None and entry.changes else None)


def producer_of(settings: Settings, route: MessageRoute) -> ProducerSettings:
    """How messages of a route are written."""
    base = settings.cluster(route.cluster).producer
    entry = settings.producers.get(route.producer or "")
    return base if entry is None else base.model_copy(update=entry.changes)


def producer_options(settings: Settings, route: MessageRoute) -> dict[str, str | int | float | bool]:
    """Options of the client for a route, with unmasked secrets: do not print them."""
    own = None if route.producer is None else producer_of(settings, route)
    return _librdkafka.producer_options(settings.cluster(route.cluster), own)
