"""FakeTopics: the topics, committed offsets and faults of a fake Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from laneway._declare.record import Message, Topic, as_key
from laneway.errors import AdminError, ProduceError
from laneway.testing._clients import FakeStores
from laneway.testing._log import FakeTopic, Log
from laneway.testing._virtual_time import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laneway._declare.app import App
    from laneway._declare.record import Headers, Record
    from laneway._kafka import OffsetAndMetadata, Place

__all__ = ["FakeTopics"]

V = TypeVar("V")


class FakeTopics:
    """What is kept: the part of `FakeKafka` that runs nothing."""

    def __init__(self, partitions: int, clock: FakeClock | None) -> None:
        self.clock = clock or FakeClock()
        self.stores = FakeStores(self.clock)
        self._partitions = partitions
        self._topics: dict[str, FakeTopic] = {}
        self.offsets: dict[str, dict[Place, OffsetAndMetadata]] = {}
        """Group to what it has committed."""
        self._faults: dict[str, Exception] = {}
        self._produced: dict[str, set[tuple[int, int]]] = {}
        """Topic to partition and offset of each record that an app or a producer has written."""

    def create(self, topic: str | Topic[Any], partitions: int | None = None) -> None:
        """Create a topic.

        Raises:
            AdminError: when there is one of that name.
        """
        name = _name(topic)
        if name in self._topics:
            raise AdminError(f"topic {name} exists already")
        self._topics[name] = FakeTopic(name, partitions or self._partitions)

    def ensure(self, topic: str | Topic[Any], partitions: int | None = None) -> FakeTopic:
        """The topic, created when there is none of that name."""
        name = _name(topic)
        if name not in self._topics:
            self.create(name, partitions)
        return self._topics[name]

    def grow(self, topic: str | Topic[Any], partitions: int) -> None:
        """Give a topic more partitions; new messages of a key may go to another one from now on, as in Kafka."""
        self._known(topic).grow(partitions)

    def delete_records(self, topic: str | Topic[Any], partition: int, before: int) -> None:
        """Delete the records of a partition before an offset, as retention does."""
        self._known(topic).log(partition).cut(before)

    def skip_offsets(self, topic: str | Topic[Any], partition: int, count: int) -> None:
        """Leave out the next offsets of a partition, as compaction and aborted transactions do."""
        self.ensure(topic).log(partition).end += count
        self._woken(_name(topic))

    def ends(self, topic: str | Topic[Any]) -> dict[int, int]:
        """The offset after the last one of each partition."""
        return {number: log.end for number, log in enumerate(self._known(topic).logs)}

    def produce(self, *messages: Message[Any]) -> Record[Any]:
        """Put messages on their topics and give back the last one as a record. Faults do not concern it.

        Raises:
            CodecError: when a value is not what its topic takes.
        """
        if not messages:
            raise ProduceError("produce() takes at least one message; make one with topic.message(...)")
        written: list[Record[Any]] = []
        for message in messages:
            value = None if message.value is None else message.topic.value.encode(message.value)
            rest = (message.headers, message.partition, message.timestamp)
            written.append(self._append(message.topic.name, message.key, value, *rest))
        return written[-1]

    def produce_raw(
        self,
        topic: str | Topic[Any],
        value: bytes | None,
        *,
        key: str | bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Record[Any]:
        """Put bytes on a topic as they are, for instance bytes that its codec cannot read."""
        return self._append(_name(topic), as_key(key), value, headers, partition, timestamp)

    def records(self, topic: str | Topic[V]) -> list[Record[V]]:
        """Everything on a topic in the order of the writes; empty when there is no such topic.

        Values are decoded when a `Topic` is given, and bytes when only its name is.
        """
        found = self._topics.get(_name(topic))
        records: list[Record[Any]] = [] if found is None else found.records()
        if isinstance(topic, Topic):
            for record in records:
                record.value = None if record.raw is None else topic.value.decode(record.raw)
        return records

    def errors(self, app: App, topic: str | Topic[Any] | None = None) -> list[Record[Any]]:
        """What *app* has parked, of one topic or of all, with the raw values."""
        names = {
            route.error_topic_of(app.name): None
            for route in app.routes
            if topic is None or route.topic.name == _name(topic)
        }
        found: list[Record[Any]] = []
        for name in names:
            found += self.records(name)
        return found

    def committed(self, app: str | App, topic: str | Topic[Any]) -> dict[int, int]:
        """Committed offsets of an app, which is a group, for the partitions that have one."""
        group = app if isinstance(app, str) else app.name
        found = self.offsets.get(group, {})
        return {partition: at for (name, partition), (at, _) in found.items() if name == _name(topic)}

    def fail_writes(self, topic: str | Topic[Any], error: Exception | None = None) -> None:
        """From now on what apps and producers write to a topic fails, with *error* or a `ProduceError`."""
        name = _name(topic)
        self._faults[name] = error or ProduceError(f"{name}: writes fail because the test said so")

    def heal(self, topic: str | Topic[Any]) -> None:
        """Let writes to a topic succeed again."""
        self._faults.pop(_name(topic), None)

    def write(self, topic: str, key: bytes | None, value: bytes | None, **rest: Any) -> Exception | None:
        """Write for an app; says why it could not."""
        fault = self.fault(topic)
        if fault is None:
            self.append_produced(topic, key, value, rest["headers"], rest["partition"], rest["timestamp"])
        return fault

    def fault(self, topic: str) -> Exception | None:
        """Why writes to a topic fail now; None when they do not."""
        return self._faults.get(topic)

    def append_produced(self, topic: str, *fields: Any) -> Record[Any]:
        """Write for an app or a producer: key, value, headers, partition and timestamp."""
        record = self._append(topic, *fields)
        self._produced.setdefault(topic, set()).add((record.partition, record.offset))
        return record

    def produced(self, topic: str | Topic[V]) -> list[Record[V]]:
        """As `records`, without what the test itself has put there: what apps and producers have written."""
        mine = self._produced.get(_name(topic), set())
        return [record for record in self.records(topic) if (record.partition, record.offset) in mine]

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Commit a group's offset, as a tool that resets it: everything behind it runs again."""
        self.offsets.setdefault(group, {})[topic, partition] = (offset, "")
        self.clock.move_to(self.clock.monotonic() + 0.001)  # what was copied before it is older

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 when there is none of that name."""
        return len(self._topics[topic].logs) if topic in self._topics else 0

    def __getitem__(self, place: Place) -> Log:
        """The log of a partition."""
        return self._known(place[0]).log(place[1])

    def _append(self, topic: str, *fields: Any) -> Record[Any]:
        key, value, headers, partition, timestamp = fields
        now = int(self.clock.wall() * 1000) if timestamp is None else timestamp
        record = self.ensure(topic).append(key, value, headers, now, partition)
        self._woken(topic)
        return record

    def _woken(self, topic: str) -> None:
        """Something was written to a topic."""

    def _known(self, topic: str | Topic[Any]) -> FakeTopic:
        name = _name(topic)
        if name not in self._topics:
            known = ", ".join(sorted(self._topics)) or "none"
            raise AdminError(f"there is no topic {name}; there are: {known}")
        return self._topics[name]

    def __iter__(self) -> Iterator[str]:
        """The names of the topics."""
        return iter(self._topics)


def _name(topic: str | Topic[Any]) -> str:
    return topic if isinstance(topic, str) else topic.name
