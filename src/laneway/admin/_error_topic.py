"""ErrorTopic: one error topic of an app, and where its records go when they are replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from laneway._declare.header_styles import is_of_style
from laneway.admin._parked import ERRORS_HEADER, PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laneway._declare.app import App
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.header_styles import Style
    from laneway._declare.record import Headers
    from laneway.admin._parked import ParkedRecord
    from laneway.settings import ClusterSettings

__all__ = ["ErrorTopic", "Target", "error_topics_of"]


class Target(NamedTuple):
    """Where a replayed record goes; without a partition its key decides."""

    topic: str
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class ErrorTopic:
    """One error topic of an app."""

    app: str
    name: str
    cluster: ClusterSettings
    sources: tuple[str, ...]
    """The topics whose failed records are parked here; usually one."""
    styles: frozenset[Style] = frozenset()
    """Other systems whose header names the copies have."""

    @property
    def group(self) -> str:
        """The consumer group whose offsets separate done records from open ones."""
        return f"{self.app}.errors"

    @property
    def brokers(self) -> str:
        """Bootstrap servers, for messages."""
        return ",".join(self.cluster.brokers)

    def target_of(self, parked: ParkedRecord, partitions: Mapping[str, int]) -> Target | str:
        """Where a record came from, which is where it is replayed to, or why that is unknown.

        Always one of the app's own topics: a header only chooses among several. The partition stays the same, because
        another producer may partition keys differently, and a key in two partitions would run twice at the same time.
        """
        if parked.is_reference:
            return "the value was too large to be copied"
        if parked.app not in (None, self.app):
            return "another app parked it"
        topic, partition = parked.origin_topic, parked.origin_partition
        if topic is not None and topic in self.sources:
            is_there = partition is not None and partition < partitions.get(topic, 0)
            return Target(topic, partition if is_there else None)
        if len(self.sources) == 1:
            return Target(self.sources[0])
        return "its headers do not name one of the app's topics"

    def replayed_headers(self, parked: ParkedRecord) -> Headers:
        """The record's own headers in order, and how many times it was parked."""
        own = [
            (name, value)
            for name, value in parked.headers
            if not name.startswith(PREFIX) and not any(is_of_style(name, style) for style in self.styles)
        ]
        # The only control header that is kept: without it a record could fail and be replayed forever unnoticed.
        return [*own, (ERRORS_HEADER, str(parked.errors or 1).encode())]


def error_topics_of(app: App, cluster_of: Callable[[HandlerSpec], ClusterSettings]) -> list[ErrorTopic]:
    """The error topics of a configured app, in the order of its handlers."""
    topics: list[ErrorTopic] = []
    for route in app.routes:
        name, cluster, source = route.error_topic_of(app.name), cluster_of(route), route.source or route.topic.name
        styles = frozenset({route.error_headers} - {"laneway"})
        found = next(
            (index for index, topic in enumerate(topics) if (topic.name, topic.cluster) == (name, cluster)), None
        )
        if found is None:
            topics.append(ErrorTopic(app.name, name, cluster, (source,), styles))
        else:
            shared = topics[found]
            sources = tuple(dict.fromkeys((*shared.sources, source)))
            topics[found] = ErrorTopic(app.name, name, cluster, sources, shared.styles | styles)
    return topics
