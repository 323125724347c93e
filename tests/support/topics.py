"""What tests write to topics and read from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.doors import AssignedConsumer, OffsetRange
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laneway import Record
    from support.doors import Admin

__all__ = ["delivered", "read_all"]


def delivered(error: object, _message: object) -> None:
    """For a producer's `on_delivery`: what was not delivered fails the test in `poll` or `flush`.

    `flush` alone counts such a message as done.
    """
    assert error is None, error


def read_all(
    admin: Admin, options: Mapping[str, Any], topic: str, start: Mapping[int, int] | None = None
) -> list[Record[Any]]:
    """Everything in a topic by partition and offset, from the start of each partition or from where *start* says."""
    # A new reader each time: one that is kept takes most of a second to learn of a topic that is new to it.
    reader = AssignedConsumer(dict(options))
    partitions = admin.partitions(topic)
    begin, ends = {**admin.starts(topic, partitions), **(start or {})}, admin.ends(topic, partitions)
    reader.open([OffsetRange(topic, partition, begin[partition], ends[partition]) for partition in partitions])
    records: list[Record[Any]] = []

    def is_read() -> bool:
        records.extend(reader.fetch(10_000, 0.05))
        return reader.is_exhausted

    eventually(is_read, every=0, why=f"the end of {topic}")
    reader.close()
    return sorted(records, key=lambda record: (record.partition, record.offset))
