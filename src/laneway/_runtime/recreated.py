"""Topics that were deleted and recreated, and partitions that a group does not know: the rules of both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway._core.finished_map import began_with, topic_id_of
from laneway.errors import DataLossError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from laneway._kafka import OffsetAndMetadata

__all__ = ["as_loss", "describe", "differs", "is_of_another_log", "size_at_start"]

_SHOWN = 3  # partitions named in the message


def differs(said: str, now: str) -> bool:
    """Whether two topic ids differ; an unknown id differs from none."""
    return bool(said and now and said != now)


def is_of_another_log(committed: OffsetAndMetadata, end: int, topic_id: str) -> bool:
    """Whether a committed offset belongs to another log: a deleted topic's, or it is after the log's end."""
    offset, text = committed
    return differs(topic_id_of(text), topic_id) or offset > end


def size_at_start(committed: Collection[OffsetAndMetadata], partitions: int) -> int:
    """How many partitions a topic had when its group began to read it, with ``start: latest``.

    Lower partitions without a commit start at the end of their logs. Higher ones were added later and start at their
    beginning, so that nothing written before their discovery is skipped.

    Args:
        committed: all commits of the group for the topic.
        partitions: its present partition count.
    """
    sizes = [size for _, text in committed if (size := began_with(text)) is not None]
    if committed and not sizes:
        return 0  # a known group: it has committed every partition that existed at its start
    return max(sizes, default=partitions)


def describe(topic: str, found: Mapping[int, tuple[int, int]], *, is_recreated: bool) -> str:
    """What happened to a topic, in one line.

    Args:
        topic: its name.
        found: for each partition the committed or next offset, and the present end of its log.
        is_recreated: whether its id differs; else only the offsets show it.
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
    """The error that ends the run by default.

    Args:
        text: what happened to the topic.
        start: the start policy of the group; Kafka deletes the offsets of a deleted topic.
    """
    also = " and start: earliest" if start == "latest" else ""
    return DataLossError(
        f"{text}. Unread records of the old topic are lost; nothing of the new one was committed. To read the new "
        f"one from its start, set on_data_loss: continue{also}"
    )
