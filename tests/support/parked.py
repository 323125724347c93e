"""An error topic in memory: what `laneway.admin` is given instead of brokers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laneway import Record
from laneway.admin import ErrorTopic, OpenRange, ParkedRecord
from laneway.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ERROR_TOPIC", "FakeLog", "FakeProducer", "FakeTopics", "make_parked"]

ERROR_TOPIC = ErrorTopic("billing", "orders.billing.error", load().cluster(), ("orders",))


def make_parked(
    offset=0, *, partition=0, key=b"k", value=b"v", headers=(), timestamp=1_700_000_000_000
) -> ParkedRecord:
    """A parked record with just these headers."""
    return ParkedRecord.of(Record(ERROR_TOPIC.name, partition, offset, timestamp, key, value, headers, 0, value))


@dataclass
class FakeTopics:
    """Logs by topic and partition, and the committed offsets of the one group there is."""

    logs: dict[tuple[str, int | None], list[dict]] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)

    def append(self, topic: str, partition: int | None, **message) -> None:
        self.logs.setdefault((topic, partition), []).append(message)

    def open(self) -> list[dict]:
        """What is open on the error topic."""
        return [
            message
            for (topic, partition), log in sorted(self.logs.items(), key=str)
            if topic == ERROR_TOPIC.name
            for message in log[self.committed.get(partition, 0) :]
        ]

    def on(self, topic: str) -> list[dict]:
        """Everything on a topic."""
        return [message for (name, _), log in sorted(self.logs.items(), key=str) if name == topic for message in log]


class FakeLog:
    """An `ErrorLog` in memory.

    Args:
        topics: where it is.
        on_commit: called before each commit; may raise.
    """

    topic = ERROR_TOPIC

    def __init__(self, topics: FakeTopics, on_commit: Callable[[], None] = lambda: None) -> None:
        self.topics = topics
        self.on_commit = on_commit
        self.reads = 0

    def extents(self) -> dict[int, OpenRange]:
        return {
            partition: OpenRange.of(0, len(log), self.topics.committed.get(partition))
            for (topic, partition), log in self.topics.logs.items()
            if topic == ERROR_TOPIC.name
        }

    def committed(self, partitions):
        return {each: self.topics.committed[each] for each in partitions if each in self.topics.committed}

    def commit(self, partition, offset):
        self.on_commit()
        self.topics.committed[partition] = offset

    def read(self, partition, start, end):
        log = self.topics.logs[ERROR_TOPIC.name, partition]
        for offset in range(start, end):
            self.reads += 1
            yield make_parked(offset, partition=partition, **log[offset])


class FakeProducer:
    """Keeps messages until it is flushed.

    Args:
        topics: where they go.
        fate: asked for each message; an error instead of None means that it is not written.
    """

    def __init__(self, topics: FakeTopics, fate: Callable[[str], Exception | None] = lambda topic: None) -> None:
        self.topics = topics
        self.fate = fate
        self._waiting = []

    def send(self, topic, *, key, value, headers, delivered, partition=None, timestamp=None):
        message = {"key": key, "value": value, "headers": tuple(headers), "timestamp": timestamp}
        self._waiting.append((topic, partition, message, delivered))

    def poll(self):
        """Answers come late, as they do from brokers."""

    def flush(self, timeout):
        waiting, self._waiting = self._waiting, []
        for topic, partition, message, delivered in waiting:
            error = self.fate(topic)
            if error is None:
                self.topics.append(topic, partition, **message)
            delivered(error)
        return 0
