"""Topics: filled once, read back once, so that what peers did can be held against what is really there."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from catalogue import KEYS
from confluent_kafka import Consumer, TopicPartition
from notes import PARTITIONS

from laneway._kafka import Admin, produce_many
from laneway.devkit.bench._workloads import VALUE_SIZE, fill

if TYPE_CHECKING:
    from array import array

__all__ = ["Contents", "Topics", "fill_at_once"]

EXPONENT, SEED = 1.1, 1
_PATIENCE = 120.0  # seconds; a million records take about ten


@dataclass(frozen=True)
class Contents:
    """What a topic holds: key and timestamp (seconds) of each record, by partition and offset."""

    keys: list[array[int]]
    times: list[array[float]]

    @property
    def records(self) -> int:
        return sum(map(len, self.keys))

    @property
    def longest(self) -> int:
        """Records of the fullest partition."""
        return max(map(len, self.keys))

    @property
    def hottest(self) -> int:
        """Records of the busiest key, which a system that keeps the order handles one at a time."""
        return max(len(offsets) for _, offsets in self.by_key)

    @cached_property
    def by_key(self) -> list[tuple[int, list[int]]]:
        """The partition and the offsets, in order, of each key."""
        lines: dict[tuple[int, int], list[int]] = defaultdict(list)
        for partition, keys in enumerate(self.keys):
            for offset, key in enumerate(keys):
                lines[partition, key].append(offset)
        return [(partition, offsets) for (partition, _key), offsets in lines.items()]


class Topics:
    """The topics of one broker. Workloads with the same records share one; it is filled when first asked for."""

    def __init__(self, brokers: str) -> None:
        self._brokers = brokers
        self._admin = Admin({"bootstrap.servers": brokers})
        self._filled: dict[str, Contents] = {}
        self._numbers = itertools.count(1)

    def filled(self, records: int, *, is_skewed: bool) -> tuple[str, Contents]:
        """A topic with so many records, and its contents."""
        name = f"peers-{'zipf' if is_skewed else 'even'}-{records}"
        if name not in self._filled:
            self._admin.create(name, PARTITIONS)
            if is_skewed:
                produce_many({"bootstrap.servers": self._brokers, "acks": "all"}, name, zipf(records))
            else:
                fill_at_once(self._brokers, name, records, keys_of(records))
            self._filled[name] = self.read(name)
            if self._filled[name].records != records:
                raise RuntimeError(f"{name} holds {self._filled[name].records} records, not {records}")
        return name, self._filled[name]

    def new(self) -> str:
        """An empty topic."""
        name = f"peers-live-{next(self._numbers)}"
        self._admin.create(name, PARTITIONS)
        return name

    def read(self, topic: str) -> Contents:
        """Read a whole topic."""
        from array import array

        ends = self._admin.ends(topic, range(PARTITIONS))
        contents = Contents([array("i") for _ in ends], [array("d") for _ in ends])
        consumer = Consumer({"bootstrap.servers": self._brokers, "group.id": "peers-read", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        left = sum(ends.values())
        while left:
            messages = consumer.consume(min(5_000, left), 30)
            if not messages:
                raise TimeoutError(f"{left} records of {topic} did not come")
            for message in messages:
                _keep(contents, message)
            left -= len(messages)
        consumer.close()
        return contents


def fill_at_once(brokers: str, topic: str, records: int, keys: int) -> None:
    """Fill a topic and wait until it is; the producer ends with us, and never holds us up for long."""
    producer = fill(brokers, topic, records, keys=keys)
    try:
        if producer.wait(_PATIENCE):
            raise RuntimeError(f"the producer of {topic} failed")
    finally:
        if producer.poll() is None:
            producer.kill()
            producer.wait()


def keys_of(records: int) -> int:
    """Fewer for a small topic: a key that has one record only cannot show that its order was broken."""
    return max(1, min(KEYS, records // 6))


def _keep(contents: Contents, message: Any) -> None:
    if message.error():
        raise RuntimeError(message.error())
    keys = contents.keys[message.partition()]
    if message.offset() != len(keys):
        raise RuntimeError(f"offset {message.offset()} after {len(keys) - 1}: the check needs a topic without gaps")
    keys.append(int(message.key().removeprefix(b"key-")))
    contents.times[message.partition()].append(message.timestamp()[1] / 1000)


def zipf(records: int) -> Any:
    """Keys whose frequency falls with their rank; the same ones in every run."""
    value = (b'{"payload": "' + b"x" * VALUE_SIZE)[: VALUE_SIZE - 2] + b'"}'
    weights = list(itertools.accumulate(1 / rank**EXPONENT for rank in range(1, KEYS + 1)))
    chosen = random.Random(SEED).choices(range(KEYS), cum_weights=weights, k=records)  # noqa: S311 - no secret
    return ((b"key-%d" % key, value) for key in chosen)
