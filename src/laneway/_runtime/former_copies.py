"""What must be known of the copies on retry and error topics before the first record of a partition is run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from laneway._core.copy_index import CopyIndex
from laneway._core.deferred_keys import DeferredKeys
from laneway._core.headers import parked_at, read_from
from laneway._kafka import OffsetRange
from laneway._runtime.feeds import until_answered

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from laneway._core.finished_map import FinishedMap
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway._kafka import Admin, AssignedConsumer, Place

__all__ = ["Clients", "Portion", "recover_copies"]

_CHUNK = 500  # records of each partition that are read at first from the end of the error topic
_MOST = 500_000  # a batch that parked more than this is not looked through: its copies may come twice


class Clients(Protocol):
    """What reads the topics of an app."""

    app: str

    @property
    def admin(self) -> Admin:
        """Asks for the ends of logs."""

    def reader_of(self, topic: str) -> AssignedConsumer:
        """Reads a topic."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Some partitions of a source and of its retry topics that are about to be read."""

    partitions: Collection[int]
    since: Mapping[Place, tuple[int, int]]
    """Up to which offset everything is finished, and the time from when on copies count, in milliseconds."""
    ends: Mapping[Place, int] | None = None
    """The ends of the logs of retry topics; None when they are to be asked for."""
    finished: Mapping[Place, FinishedMap] = field(default_factory=dict)
    """What is finished past those offsets."""


def recover_copies(
    clients: Clients, specs: Sequence[HandlerSpec], portion: Portion, *, is_repeated: bool
) -> tuple[DeferredKeys, list[CopyIndex]]:
    """Read what waits on retry topics, and what a killed run has parked; each topic once, for all steps of a handler.

    Only copies that are no older than the position count. After a reset the position is new, and earlier copies of the
    same records are no reason to leave them out.

    Args:
        clients: to read with.
        specs: the handler on its source and on each of its steps.
        portion: what is about to be read.
        is_repeated: a task was tried before, or a run before this one may have worked on the same records.

    Returns:
        The keys that wait, and for each step the copies of its records.
    """
    deferred, copied, spec = DeferredKeys(), [CopyIndex.of(each) for each in specs], specs[0]
    source = spec.source or spec.topic.name
    if spec.parks_behind or is_repeated:
        waiting = _waiting(clients, [each.topic.name for each in specs[1:]], portion)
        for step, higher in enumerate(specs[1:], 1):
            for records in _read(clients, [part for part in waiting if part.topic == higher.topic.name]):
                if is_repeated:
                    for lower, index in zip(specs[:step], copied[:step], strict=True):
                        index.add([copy for copy in records if copy.timestamp >= _time(portion, lower, copy.partition)])
                if spec.parks_behind:
                    left = [copy for copy in records if not _is_finished(portion, copy)]
                    deferred.load(left, step, spec.lane_key, source if is_repeated else None)
    if is_repeated:
        for records in _newly_parked(clients, spec, portion):
            for index in copied:
                index.add(records)
    return deferred, copied


def _time(portion: Portion, spec: HandlerSpec, partition: int) -> int:
    # The timestamp of a copy on a retry topic is the time at which it was made.
    return portion.since.get((spec.topic.name, partition), (0, 0))[1]


def _is_finished(portion: Portion, record: Record[Any]) -> bool:
    finished = portion.finished.get((record.topic, record.partition))
    return finished is not None and finished.has(record.offset)


def _waiting(clients: Clients, topics: Collection[str], portion: Portion) -> list[OffsetRange]:
    """What waits on these retry topics."""
    begin = {place: at for place, (at, _) in portion.since.items() if place[0] in topics}
    begin = {place: at for place, at in begin.items() if place[1] in portion.partitions}

    def look() -> Mapping[Place, int]:
        # Asked for its partitions first, the client learns who leads them now: it does not when an offset is refused.
        numbers = {topic: clients.admin.partitions(topic) for topic in topics}
        return clients.admin.ends_of([place for place in begin if place[1] in numbers[place[0]]])

    ends = portion.ends
    if ends is None:
        ends = until_answered(look) if begin else {}
    return [OffsetRange(*place, at, ends[place]) for place, at in begin.items() if ends.get(place, 0) > at]


def _newly_parked(clients: Clients, spec: HandlerSpec, portion: Portion) -> Iterator[list[Record[Any]]]:
    """Copies on the error topic that come from records which are not finished yet: the newest ones.

    Batches run one after the other, so in each partition they lie behind those of finished records, and behind those
    that were made before the position that is read from. Each is read from its end backwards until one of them is seen.
    """
    topic, since = spec.error_topic_of(clients.app), portion.since

    def look() -> tuple[dict[int, int], dict[int, int]]:
        partitions = clients.admin.partitions(topic)
        return clients.admin.starts(topic, partitions), clients.admin.ends(topic, partitions)

    begins, ends = until_answered(look)
    # A run over the error topic itself has finished what lies before its offsets, and their copies with them.
    starts = {part: max(at, since.get((topic, part), (0, 0))[0]) for part, at in begins.items()}
    size, total = _CHUNK, 0
    open_ = {partition: ends[partition] for partition in ends if ends[partition] > starts[partition]}
    while open_ and total < _MOST:
        ranges = [OffsetRange(topic, part, max(starts[part], end - size), end) for part, end in open_.items()]
        total += sum(part.length for part in ranges)
        old: set[int] = set()
        for records in _read(clients, ranges):
            fresh = []
            for record in records:
                place = read_from(record)
                known = None if place is None else since.get(place[:2])
                made = parked_at(record)
                if place is None or known is None or made is None:
                    continue
                if place[2] < known[0] or made < known[1]:
                    old.add(record.partition)
                elif record.header("laneway-handler") == spec.name.encode():
                    fresh.append(record)
            yield fresh
        open_ = {part.partition: part.start for part in ranges
                 if part.start > starts[part.partition] and part.partition not in old}  # fmt: skip
        size *= 4


def _read(clients: Clients, ranges: list[OffsetRange]) -> Iterator[list[Record[Any]]]:
    if not ranges:
        return
    reader = clients.reader_of(ranges[0].topic)
    reader.open(ranges)
    try:
        while not reader.is_exhausted:
            yield reader.fetch(10_000, 0.1)
    finally:
        reader.close()
