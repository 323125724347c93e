"""What a loop reads, writes and asks with when there is no broker."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from laneway._runtime.broker_monitor import BrokerView
from laneway._runtime.due_offsets import DueEnds
from laneway._runtime.recovery import Recovery
from laneway.dedup import InlineClient, MemoryDedup
from laneway.errors import DataLossError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Headers, Record
    from laneway._kafka import OffsetRange, Place
    from laneway._runtime.partition import Partitions
    from laneway._runtime.recovery import LookUp
    from laneway.testing._fake_topics import FakeTopics
    from laneway.testing._virtual_time import FakeClock

__all__ = ["FakeAdmin", "FakeMonitor", "FakeReader", "FakeRecovery", "FakeSender", "FakeStores"]


class FakeSender:
    """Writes at once and answers at the next `poll`, as a producer does.

    Args:
        kafka: where messages go.
    """

    def __init__(self, kafka: FakeTopics) -> None:
        self._kafka = kafka
        self.stores = kafka.stores
        """Gives handlers their dedup stores."""
        self._answers: deque[tuple[Callable[[Exception | None], None], Exception | None]] = deque()
        self.is_dead = False
        """The app has crashed: what it still sends goes nowhere."""

    @property
    def has_answers(self) -> bool:
        """Whether `poll` has something to say."""
        return bool(self._answers)

    def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        delivered: Callable[[Exception | None], None],
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Take a message."""
        if not self.is_dead:
            error = self._kafka.write(topic, key, value, headers=headers, partition=partition, timestamp=timestamp)
            self._answers.append((delivered, error))

    def poll(self) -> None:
        """Run the callbacks."""
        while self._answers:
            delivered, error = self._answers.popleft()
            delivered(error)


class FakeReader:
    """Reads ranges of one topic as an `AssignedConsumer` does.

    Args:
        kafka: has the topic.
        skip_lost: go on when records were deleted before they were read, instead of raising.
        rng: mixes the partitions; without it they are read in turn.
    """

    def __init__(self, kafka: FakeTopics, *, skip_lost: bool, rng: random.Random | None = None) -> None:
        self._kafka = kafka
        self._skip_lost = skip_lost
        self._rng = rng
        self._left: dict[Place, tuple[int, int]] = {}
        self.lost = 0
        """Offsets of the ranges that were deleted before they were read."""
        self.gone: list[tuple[int, int, int]] = []
        """Those offsets: partition, first, and end (exclusive)."""

    @property
    def is_exhausted(self) -> bool:
        """Whether every range is read to its end."""
        return not self._left

    def open(self, ranges: Sequence[OffsetRange]) -> None:
        """Start to read these ranges."""
        self.lost, self.gone = 0, []
        self._left = {(part.topic, part.partition): (part.start, part.end) for part in ranges if part.length > 0}

    def fetch(self, most: int, timeout: float) -> list[Record[Any]]:
        """Up to *most* records."""
        del timeout
        found: list[Record[Any]] = []
        places = list(self._left)
        if self._rng is not None:
            self._rng.shuffle(places)
        for place in places:
            if len(found) < most:
                found += self._read(place, most - len(found))
        return found

    def _read(self, place: Place, most: int) -> list[Record[Any]]:
        log, (at, end) = self._kafka[place], self._left[place]
        first = end if log.end < at else min(end, max(at, log.start))
        if first > at:
            if not self._skip_lost:
                raise DataLossError(
                    f"{place[0]}[{place[1]}]: offsets {at} to {first - 1} are gone. They were deleted before they were "
                    "read. To continue without them, set on_data_loss: continue"
                )
            self.lost += first - at
            self.gone.append((place[1], at, first))
        entries = [entry for entry in log.read(first, most) if entry.offset < end]
        self._left[place] = (entries[-1].offset + 1 if entries else end), end
        if len(entries) < most or self._left[place][0] >= end:
            del self._left[place]
        return [entry.as_record(*place) for entry in entries]

    def close(self) -> None:
        """Stop reading."""
        self._left = {}

    end = close


class FakeAdmin:
    """Answers questions about topics at once.

    Args:
        kafka: has the topics.
    """

    is_done = True

    def __init__(self, kafka: FakeTopics) -> None:
        self._kafka = kafka

    def partitions(self, topic: str, timeout: float = 0.0) -> list[int]:
        """The partitions of a topic."""
        del timeout
        return list(range(self._kafka.partitions(topic)))

    def bounds(self, topic: str, partition: int, timeout: float = 0.0) -> tuple[int, int]:
        """Start and end of a log."""
        del timeout
        log = self._kafka[topic, partition]
        return log.start, log.end

    def starts(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The starts of some logs of a topic."""
        return {partition: self._kafka[topic, partition].start for partition in partitions}

    def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The ends of some logs of a topic."""
        return {partition: self._kafka[topic, partition].end for partition in partitions}

    def ends_of(self, places: Iterable[Place], timeout: float = 0.0) -> dict[Place, int]:
        """The ends of some logs."""
        del timeout
        return {place: self._kafka[place].end for place in places}

    high_watermarks = ends_of

    def topic_ids(self, topics: Iterable[str], timeout: float = 0.0) -> dict[str, str]:
        """No topic is recreated here, so none needs an id."""
        del topics, timeout
        return {}

    def ask_topic_ids(self, topics: Iterable[str], timeout: float = 0.0) -> FakeAdmin:
        """As `topic_ids`; `result` has the answer."""
        del topics, timeout
        return self

    def result(self) -> dict[str, str]:
        """The answer to `ask_topic_ids`."""
        return {}


class FakeRecovery(Recovery):
    """Looks up what former owners have left before anything else happens: nothing has to be waited for here."""

    def __init__(self, app: str, workers: Sequence[Any], kafka: FakeTopics) -> None:
        admin: Any = FakeAdmin(kafka)
        super().__init__(app, workers, admin=admin, options={})
        self.app, self.admin = app, admin
        self._kafka = kafka

    def begin(
        self, source: str, partitions: list[int], starts: Mapping[Place, tuple[int, int]], *, unclean: list[int]
    ) -> list[int]:
        """Look up and apply; no partition is held meanwhile."""
        super().begin(source, partitions, starts, unclean=unclean)
        self.done()
        return []

    def _start(self, run: LookUp) -> None:
        run.work()

    def _clients(self) -> Any:
        return self

    def reader_of(self, topic: str) -> Any:
        """Reads a topic."""
        del topic
        return FakeReader(self._kafka, skip_lost=True)

    def close(self) -> None:
        """No connection was opened."""


class FakeMonitor:
    """Knows the ends of logs, and what of delayed topics is due.

    Args:
        kafka: has the topics.
        owned: the partitions that are ours.
        delays: seconds that records of a topic must be old, for those where they must.
    """

    def __init__(self, kafka: FakeTopics, owned: Partitions, delays: Mapping[str, float]) -> None:
        self._kafka = kafka
        self._owned = owned
        self._delays = delays
        self._seen = {topic: DueEnds(delay, gap=0.0) for topic, delay in delays.items()}
        self.view = BrokerView()
        self.recreated: deque[tuple[str, Mapping[Place, int]]] = deque()
        self.counts = False
        """Brokers that are not there need not be counted."""
        self.next_due: float | None = None
        """In how many seconds something may be due that is not yet, if anything."""

    def restart(self, topic: str) -> None:
        """When records of a topic were first seen says nothing any more."""
        if topic in self._seen:
            self._seen[topic] = DueEnds(self._delays[topic], gap=0.0)

    def look(self) -> None:
        """See what there is and what is due."""
        ends = {place: self._kafka[place].end for place in self._owned}
        due, waits = dict[Any, tuple[int, int]](), list[float]()
        for topic in self._delays:
            places = [place for place in ends if place[0] == topic]
            self._seen[topic].saw({place[1]: ends[place] for place in places}, self._kafka.clock.monotonic())
            for place in places:
                owned = self._owned[place]
                end = self._due_end(place, owned.position)
                due[place] = owned.epoch, end
                waits += self._wait(place, max(owned.position, end))
        self.next_due = max(0.001, min(waits)) if waits else None
        self.view = replace(self.view, ends=ends, due=due)  # a new answer each time: it is looked through once

    def _due_end(self, place: Place, position: int) -> int:
        delay, log, clock = self._delays[place[0]], self._kafka[place], self._kafka.clock
        young = log.first_since(position, int((clock.wall() - delay) * 1000))
        waited = self._seen[place[0]].waited(clock.monotonic()).get(place[1], 0)
        return log.end if young is None else min(log.end, max(young.offset, waited))

    def _wait(self, place: Place, at: int) -> Collection[float]:
        """Until the next record of a partition is due: by its own time, or because it has been there for so long."""
        delay, now = self._delays[place[0]], self._kafka.clock.wall()
        return [min(delay, entry.timestamp / 1000 - now + delay + 0.001) for entry in self._kafka[place].read(at, 1)]


class FakeStores:
    """Gives handlers a store whose leases end in virtual time.

    In place of Redis there is memory, which lasts as long as the fake Kafka. SQL stores are the real ones, because
    their handlers write to the same database.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._stores: dict[str, Any] = {}
        self._clients: dict[str, list[InlineClient]] = {}

    def client(self, spec: HandlerSpec) -> InlineClient | None:
        """The client of a member; None when the handler has no store, or one that needs none."""
        declared: Any = spec.dedup
        if declared is None or declared.in_order:
            return None
        if isinstance(declared, MemoryDedup):
            declared.clock = self._clock
            store: Any = declared
        elif hasattr(declared, "transaction"):
            store = declared
        else:
            memory = MemoryDedup(clock=self._clock, ttl=declared.ttl, lease=declared.lease)
            store = self._stores.setdefault(spec.scope, memory)
        return InlineClient(store, spec.scope, self._clients.setdefault(spec.scope, []))
