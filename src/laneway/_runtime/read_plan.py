"""ReadPlan: what a loop reads, from where and how far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from laneway._kafka import Place
    from laneway._runtime.topics import Feed

__all__ = ["ReadPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """The topics of a loop, and the rules that hold for them."""

    topics: Sequence[str]
    """The sources, which the group gives out."""
    retry_topics: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Source to its retry topics."""
    delayed: Collection[str] = ()
    """Sources whose records wait until they are old; they are read as retry topics are."""
    start: Mapping[str, str] = field(default_factory=dict)
    """Source to where a group begins that has committed nothing: ``earliest`` or ``latest``."""
    skip_lost: bool = False
    """Whether to go on when records were deleted before they were read."""
    limits: Mapping[Place, int] | None = None
    """Where reading ends in each partition of a source, whatever is written there meanwhile; None for no end."""
    budget: float = 6.0
    """Seconds that giving partitions back may take."""
    patience: float = 18.0
    """Seconds that brokers may take to answer when partitions come."""

    @classmethod
    def of(cls, feeds: Mapping[str, Sequence[Feed]], **rest: Any) -> ReadPlan:
        """The plan of topics and of what is read beside each of them; *rest* are further fields."""
        retry_topics = {topic: [feed.topic for feed in found if feed.step] for topic, found in feeds.items()}
        delayed = {topic for topic, found in feeds.items() if found[0].delay}
        return cls(topics=list(feeds), retry_topics=retry_topics, delayed=delayed, **rest)

    @property
    def live(self) -> list[str]:
        """The sources that the group reads for us."""
        return [topic for topic in self.topics if topic not in self.delayed]

    @property
    def beside(self) -> list[str]:
        """What is read beside the group, each record when it is due."""
        return [
            topic for source in self.topics for topic in self.with_retries(source)
            if topic != source or source in self.delayed
        ]  # fmt: skip

    @property
    def watched(self) -> set[str]:
        """The topics of which it is watched whether they are recreated; none of a run with an end."""
        return set(self.topics) if self.limits is None else set()

    def with_retries(self, source: str) -> list[str]:
        """A source and its retry topics."""
        return [source, *self.retry_topics.get(source, ())]
