"""What must be known of the copies on retry and error topics before the first record of a partition is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from laneway._core.copy_index import CopyIndex
from laneway._core.deferred_keys import DeferredKeys
from laneway._core.headers import parked_at, read_from
from laneway._kafka import OffsetRange
from laneway._runtime.feeds import patiently

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
        ...

    def reader_of(self, topic: str) -> AssignedConsumer:
        """Reads a topic."""
        ...


class Portion(Protocol):
    """Some partitions of a topic that are about to be read."""

    @property
    def step(self) -> int:
        """Of the ladder; 0 reads the source."""
        ...

    @property
    def ranges(self) -> Sequence[OffsetRange]:
        """What is about to be read."""
        ...

    @property
    def since(self) -> Sequence[tuple[str, int, int, int]]:
        """Topic, partition, offset up to which everything is finished, and the time from when on copies count.

        Of the source and its retry topics; the time is in milliseconds since the epoch.
        """
        ...

    @property
    def pending(self) -> Sequence[OffsetRange]:
        """What waits on higher steps."""
        ...


def recover_copies(
    clients: Clients, route: HandlerSpec, share: Portion, *, is_repeated: bool
) -> tuple[DeferredKeys, CopyIndex]:
    """Read what waits on higher steps, and what a killed run has parked.

    Only copies that are no older than the position count. After a reset the position is new, and earlier copies of the
    same records are no reason to leave them out.

    Args:
        clients: to read with.
        route: the handler, at the share's step.
        share: what is about to be read.
        is_repeated: a task was tried before, or a run before this one may have worked on the same records.
    """
    backlog, copied, source = DeferredKeys(), CopyIndex.of(route), route.source or route.topic.name
    times = {part: time for name, part, _, time in share.since if name == route.topic.name}
    if route.parks_behind or is_repeated:
        pending = _pending(clients, route, share) if is_repeated else share.pending
        for step in range(share.step + 1, route.retry.hops + 1):
            topic = route.retry_topic_of(clients.app, step)
            for records in _read(clients, [part for part in pending if part.topic == topic]):
                if is_repeated:
                    # The timestamp of a copy on a retry topic is the time at which it was made.
                    copied.add([copy for copy in records if copy.timestamp >= times.get(copy.partition, 0)])
                if route.parks_behind:
                    backlog.load(records, step, route.lane_key, source if is_repeated else None)
    if is_repeated:
        for records in _newly_parked(clients, route, share):
            copied.add(records)
    return backlog, copied


def _pending(clients: Clients, route: HandlerSpec, share: Portion) -> list[OffsetRange]:
    """What waits on higher steps now: a task that was killed has added to what there was when the share was planned."""
    higher = set(route.retry_topics_of(clients.app)[share.step :])
    here = {part.partition for part in share.ranges}
    begin = {(name, part): at for name, part, at, _ in share.since if name in higher and part in here}

    def look() -> dict[Place, int]:
        # Asked for its partitions first, the client learns who leads them now: it does not when an offset is refused.
        numbers = {topic: clients.admin.partitions(topic) for topic in higher}
        return clients.admin.ends_of([place for place in begin if place[1] in numbers[place[0]]])

    ends = patiently(look)
    return [OffsetRange(*place, at, ends[place]) for place, at in begin.items() if ends.get(place, 0) > at]


def _newly_parked(clients: Clients, route: HandlerSpec, share: Portion) -> Iterator[list[Record[Any]]]:
    """Copies on the error topic that come from records which are not finished yet: the newest ones.

    Batches run one after the other, so in each partition they lie behind those of finished records, and behind those
    that were made before the position that is read from. Each is read from its end backwards until one of them is seen.
    """
    topic, since = route.error_topic_of(clients.app), {(name, part): rest for name, part, *rest in share.since}

    def look() -> tuple[dict[int, int], dict[int, int]]:
        partitions = clients.admin.partitions(topic)
        return clients.admin.starts(topic, partitions), clients.admin.ends(topic, partitions)

    begins, ends = patiently(look)
    # A run over the error topic itself has finished what lies before its offsets, and their copies with them.
    starts = {part: max(at, since.get((topic, part), [0])[0]) for part, at in begins.items()}
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
                elif record.header("laneway-handler") == route.name.encode():
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
