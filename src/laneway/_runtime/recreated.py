"""Topics that were deleted and recreated, and partitions that a group does not know: the rules of both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway._core.finished_map import began_with, topic_id_of
from laneway.errors import DataLossError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from laneway._kafka import OffsetAndMetadata

__all__ = ["as_loss", "describe", "differs", "is_of_another_log", "size_at_start"]

_SHOWN = 3  # partitions that are named one by one


def differs(said: str, now: str) -> bool:
    """Whether two topic ids are those of different topics; an id that is not known says nothing."""
    return bool(said and now and said != now)


def is_of_another_log(committed: OffsetAndMetadata, end: int, topic_id: str) -> bool:
    """Whether a committed offset says nothing about a log: it is a deleted topic's, or lies past the log's end."""
    offset, text = committed
    return differs(topic_id_of(text), topic_id) or offset > end


def size_at_start(committed: Collection[OffsetAndMetadata], partitions: int) -> int:
    """How many partitions a topic had when its group began to read it, with ``start: latest``.

    Those with lower numbers that have no commit begin at the end of their logs. The others are new: they begin at their
    start, or what was written before they were first seen would be passed over.

    Args:
        committed: everything that the group has committed for the topic.
        partitions: how many it has now.
    """
    sizes = [size for _, text in committed if (size := began_with(text)) is not None]
    if committed and not sizes:
        return 0  # a known group: it has committed every partition that there was at its beginning
    return max(sizes, default=partitions)


def describe(topic: str, found: Mapping[int, tuple[int, int]], *, is_recreated: bool) -> str:
    """What became of a topic, in one line.

    Args:
        topic: its name.
        found: partition to the committed offset, or the one to be read next, and to the end of its log now.
        is_recreated: its id is another one; else the offsets say so alone.
    """
    shown = sorted(found, key=lambda partition: (not found[partition][0], partition))[:_SHOWN]
    parts = [
        f"{topic}[{partition}] is at offset {offset}, its log ends at {end}"
        for partition, (offset, end) in ((partition, found[partition]) for partition in shown)
    ]
    if len(found) > len(shown):
        parts.append(f"and {len(found) - len(shown)} more partitions")
    what = "was deleted and recreated" if is_recreated else "was deleted and recreated, or its log was cut"
    return f"topic {topic} {what}: {'; '.join(parts)}"


def as_loss(text: str, start: str | None) -> DataLossError:
    """What ends the run by default.

    Args:
        text: what became of the topic.
        start: where a group begins for which Kafka has no offsets; it deletes those of a deleted topic.
    """
    also = " and start: earliest" if start == "latest" else ""
    return DataLossError(
        f"{text}. What was not read of the old topic is lost; nothing of the new one was committed. To read the new "
        f"one from its start set on_data_loss: continue{also}"
    )
