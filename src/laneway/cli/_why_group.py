"""What Kafka alone shows about a group that is stuck: members, unfinished offsets, records that wait elsewhere."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from laneway._core.finished_map import decode_finished
from laneway._declare.health import key_words, lasting
from laneway._kafka import Admin, AssignedConsumer, BrokerUnavailableError, GroupOffsets, OffsetRange
from laneway.admin import ErrorLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from laneway._declare.record import Record
    from laneway._kafka import Group, OffsetAndMetadata, Place
    from laneway.admin import ErrorTopic
    from laneway.settings import ClusterSettings

__all__ = ["Finding", "GroupLook", "Stand", "Subject", "topics_of_group"]

_PATIENCE = 10.0  # seconds for a group's coordinator to be ready
_READ = 3.0  # seconds to read one record
_SHOWN = 5  # partitions of a topic that are listed one by one


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence and its subject."""

    code: str
    text: str
    topic: str = ""
    partition: int | None = None
    offset: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Subject:
    """What to look at, on one cluster."""

    group: str
    cluster: ClusterSettings
    sources: tuple[str, ...]
    retries: dict[str, float | None] = field(default_factory=dict)
    """Retry topics, and the delay of their records in seconds, if known."""
    errors: tuple[ErrorTopic, ...] = ()
    joins: bool = True
    """Whether the app's engine joins the group; Spark does not."""


@dataclass(frozen=True, slots=True)
class Stand:
    """The progress of a group in one partition."""

    topic: str
    partition: int
    start: int
    end: int
    committed: int | None = None
    metadata: str = ""

    @property
    def offset(self) -> int:
        """The first unfinished offset."""
        return self.start if self.committed is None else max(self.start, self.committed)

    @property
    def finished(self) -> int:
        """How many later offsets are finished, according to the commit's metadata."""
        found = None if self.committed is None else decode_finished(self.committed, self.metadata)
        return 0 if found is None else len(found)

    @property
    def lag(self) -> int:
        """How many are not finished."""
        return max(0, self.end - self.offset - self.finished)

    def text(self, record: Record[Any] | None, now: float) -> str:
        """What is unfinished here, and since when."""
        where = f"partition {self.partition} of {self.topic}"
        if record is None:
            at = f"offset {self.offset:,}"
        else:
            age = lasting(max(0.0, now - record.timestamp / 1000))
            at = f"offset {record.offset:,} (key {key_words(record.key)}, written {age} ago)"
        if self.finished:
            more = f", and {self.lag - 1:,} more are not" if self.lag > 1 else ""
            return f"{where}: {at} is unfinished while {self.finished:,} later ones are finished{more}"
        none = "" if self.committed is not None else "; the group has not committed an offset of it yet"
        rest = f", and {self.lag - 1:,} more after it" if self.lag > 1 else ""
        return f"{where}: {at} is not finished{rest}{none}"


class GroupLook:
    """Looks once at a group's topics. Joins, commits and creates nothing."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._admin = Admin(subject.cluster.client_options())
        self._reader: AssignedConsumer | None = None
        self.group: Group = self._admin.group(subject.group, _PATIENCE)
        self.stands: list[Stand] = []

    def findings(self) -> Iterator[Finding]:
        """The findings, the most general first."""
        topics = self._admin.topics()
        yield from self._members()
        for topic in self._subject.sources:
            if not topics.get(topic):
                yield Finding("topic-missing", f"there is no topic {topic}", topic)
        names = [topic for topic in (*self._subject.sources, *self._subject.retries) if topics.get(topic)]
        self.stands = self._stood([(topic, number) for topic in names for number in range(topics[topic])])
        for topic in names:
            stands = [stand for stand in self.stands if stand.topic == topic]
            if topic in self._subject.retries:
                yield from self._retries(topic, stands)
            else:
                yield from self._source(topic, stands)
        for error in self._subject.errors:
            yield from _parked(error)
        if self._reader is not None:
            self._reader.end()

    def topics(self) -> tuple[list[str], list[str]]:
        """All topics, and those that the group has committed offsets for, or reads."""
        counts = self._admin.topics()
        known = self._known([(topic, number) for topic, count in counts.items() for number in range(count)])
        read = [topic for member in self.group.members for topic, _ in member.places]
        return sorted(counts), sorted({topic for topic, _ in known} | set(read))

    def _members(self) -> Iterator[Finding]:
        group, members = self.group, self.group.members
        if not members:
            more = "" if self._subject.joins else ", or it runs on Spark, which does not join it"
            yield Finding("no-members", f"the group {group.name} has no members: the app is not running{more}")
        elif group.is_moving:
            yield Finding("rebalancing", f"the group is rebalancing its {len(members)} members")
        for member in members:
            count = len(member.places)
            what = f"reads {count} partition{'' if count == 1 else 's'}" if count else "reads nothing"
            yield Finding("member", f"{member.client} at {member.host} {what}")

    def _source(self, topic: str, stands: Sequence[Stand]) -> Iterator[Finding]:
        late = sorted((stand for stand in stands if stand.lag), key=lambda stand: -stand.lag)
        if not late:
            yield Finding("idle", f"{topic}: everything is finished ({len(stands)} partitions)", topic)
            return
        total = sum(stand.lag for stand in late)
        yield Finding("lag", f"{topic}: {total:,} records are not finished, in {len(late)} partitions", topic)
        read = {place for member in self.group.members for place in member.places}
        # Partitions with a gap first: there one record blocks the offset.
        for stand in sorted(late, key=lambda stand: (not stand.finished, -stand.lag))[:_SHOWN]:
            text = stand.text(self._first(stand), time.time())
            if self.group.members and not self.group.is_moving and (topic, stand.partition) not in read:
                text += "; no member reads this partition"
            code = "hole" if stand.finished else "behind"
            yield Finding(code, text, topic, stand.partition, stand.offset)
        if len(late) > _SHOWN:
            yield Finding("lag", f"{topic}: and {len(late) - _SHOWN} more partitions", topic)

    def _retries(self, topic: str, stands: Sequence[Stand]) -> Iterator[Finding]:
        late = [stand for stand in stands if stand.lag]
        if not late:
            return
        total, delay = sum(stand.lag for stand in late), self._subject.retries[topic]
        text = f"retry topic {topic} holds {total:,} record{'' if total == 1 else 's'}"
        oldest = [record for record in map(self._first, late[:_SHOWN]) if record is not None]
        if oldest:
            age = time.time() - min(record.timestamp for record in oldest) / 1000
            if delay is None:
                text += f", the oldest there for {lasting(age)}"
            elif age < delay:
                text += f", the oldest due in {lasting(delay - age)}"
            else:
                text += f", the oldest due for {lasting(age - delay)}"
        yield Finding("retry-topic", text, topic)

    def _stood(self, places: list[Place]) -> list[Stand]:
        if not places:
            return []
        known, topics = self._known(places), dict.fromkeys(topic for topic, _ in places)
        ends = self._admin.ends_of(places)
        starts: dict[Place, int] = {}
        for topic in topics:
            numbers = [number for name, number in places if name == topic]
            starts |= {(topic, number): at for number, at in self._admin.starts(topic, numbers).items()}
        return [Stand(*place, starts[place], ends[place], *known.get(place, (None, ""))) for place in places]

    def _known(self, places: list[Place]) -> dict[Place, OffsetAndMetadata]:
        """The group's commits, with their metadata."""
        offsets = GroupOffsets(self._subject.cluster.client_options(), self._subject.group)
        deadline = time.monotonic() + _PATIENCE
        try:
            while True:
                try:
                    return offsets.known(places, 5.0)
                except BrokerUnavailableError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.2)
        finally:
            offsets.close()

    def _first(self, stand: Stand) -> Record[Any] | None:
        """The first unfinished record, if it can be read soon."""
        if self._reader is None:
            self._reader = AssignedConsumer(self._subject.cluster.consumer_options(), skip_lost=True)
        reader, deadline = self._reader, time.monotonic() + _READ
        reader.open([OffsetRange(stand.topic, stand.partition, stand.offset, stand.end)])
        try:
            while not reader.is_exhausted and time.monotonic() < deadline:
                records = reader.fetch(1, 0.2)
                if records:
                    return records[0]
        finally:
            reader.close()
        return None


def topics_of_group(group: str, cluster: ClusterSettings) -> tuple[list[str], list[str]]:
    """All topics, and those that the group has committed offsets for, or reads."""
    return GroupLook(Subject(group, cluster, ())).topics()


def _parked(topic: ErrorTopic) -> Iterator[Finding]:
    with ErrorLog(topic) as log:
        count = sum(extent.end - extent.open for extent in log.extents().values())
    if count:
        text = f"error topic {topic.name} has {count:,} parked record{'' if count == 1 else 's'}"
        yield Finding("parked", text, topic.name)
