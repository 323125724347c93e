"""Worlds: where the conformance suite runs. Each test is written once and runs in every world."""

from __future__ import annotations

import threading
import time
import uuid
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from laneway import App, Raw, Topic
from laneway.errors import AdminError, MessageTooLargeError, TimestampRefusedError
from laneway.testing import FakeEngine, FakeKafka, running
from support.contract_recorder import Recorder
from support.topics import delivered, read_all
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from laneway import Codec, Record
    from laneway.observe import Tally
    from laneway.settings import Settings
    from support.doors import Admin, Headers

__all__ = ["Cluster", "DirectWorld", "FakeWorld", "Row", "SparkWorld", "World", "values_by_key"]


_LONG = 90.0  # seconds; other jobs share the machine


class Row(NamedTuple):
    """Something to produce, as bytes."""

    key: bytes | None
    value: bytes | None = b""
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


class World(Protocol):
    """An engine with its Kafka."""

    recorder: Recorder
    """Handlers close over it, not over the world, because they travel to other processes."""
    has_lane_processes: bool
    """Whether ``processes=`` has an effect."""
    keeps_processes: bool
    """Whether processes in which handlers ran outlive a run."""
    waits_for_more: bool
    """Whether a batch that is not full waits for records that are not written yet."""

    def topic(self, partitions: int = 4, value: Codec[Any] = ...) -> Topic[Any]: ...
    def app(self) -> App: ...
    def produce(self, topic: Topic[Any], rows: Iterable[Row]) -> None: ...
    def produce_to(self, name: str, rows: Iterable[Row]) -> None: ...
    def create(self, name: str, partitions: int) -> None: ...
    def now(self) -> tuple[float, float]: ...
    def refuse_future(self, name: str) -> None: ...
    def refuse_all(self, name: str) -> None: ...
    def leave_gap(self, topic: Topic[Any], partition: int) -> None: ...
    def engine(self) -> Any: ...
    def running(self, app: App, **options: Any) -> AbstractContextManager[Any]: ...
    def until(self, condition: Callable[[], Any]) -> Any: ...
    def let_pass(self, seconds: float) -> None: ...
    def run(self, app: App) -> Tally: ...
    def finish(self, app: App) -> Tally: ...
    def run_errors(self, app: App) -> Tally: ...
    def output(self, topic: str | Topic[Any]) -> list[Record[Any]]: ...
    def committed(self, app: App, topic: Topic[Any]) -> dict[int, int]: ...
    def ends(self, topic: Topic[Any]) -> dict[int, int]: ...
    def errors(self, app: App) -> list[Record[Any]]: ...


class _Base:
    keeps_processes = False
    waits_for_more = False
    has_lane_processes = False

    def __init__(self, path: Path, test: str) -> None:
        self.recorder = Recorder(path / "calls.jsonl")
        self._mark = f"{zlib.crc32(test.encode()):08x}"

    def topic(self, partitions: int = 4, value: Codec[Any] = Raw()) -> Topic[Any]:  # noqa: B008 - it has no state
        """A new topic of a name that no other test has."""
        topic = Topic(f"it-{self._mark}-{uuid.uuid4().hex[:12]}", value)
        self._create(topic.name, partitions)
        return topic

    def app(self) -> App:
        """A new app, and so a new group."""
        return App(f"it-{self._mark}-{uuid.uuid4().hex[:12]}")

    def errors(self, app: App) -> list[Record[Any]]:
        """What an app has parked."""
        names = dict.fromkeys(route.error_topic_of(app.name) for route in app.routes)
        return [record for name in names for record in self.output(name)]

    def produce_to(self, name: str, rows: Iterable[Row]) -> None:
        """Produce to a topic that is not the handler's."""
        self.produce(Topic(name), rows)

    def create(self, name: str, partitions: int) -> None:
        """Make a topic before the engine does, one that takes any timestamp."""
        self._create(name, partitions)

    def now(self) -> tuple[float, float]:
        """Seconds since the epoch, and those of the clock by which calls are recorded."""
        return (time.time(), time.monotonic())

    def produce(self, topic: Topic[Any], rows: Iterable[Row]) -> None:
        raise NotImplementedError

    def _create(self, name: str, partitions: int) -> None:
        raise NotImplementedError

    def output(self, topic: str | Topic[Any]) -> list[Record[Any]]:
        raise NotImplementedError


class FakeWorld(_Base):
    """In memory and in virtual time."""

    def __init__(self, path: Path, test: str, *, seed: int | None = None) -> None:
        super().__init__(path, test)
        self.kafka = FakeKafka()
        self._seed = seed

    def produce(self, topic: Topic[Any], rows: Iterable[Row]) -> None:
        for row in rows:
            self.kafka.produce_raw(
                topic, row.value, key=row.key, headers=row.headers, partition=row.partition, timestamp=row.timestamp
            )

    def now(self) -> tuple[float, float]:
        return (self.kafka.clock.wall(), self.kafka.clock.monotonic())

    def leave_gap(self, topic: Topic[Any], partition: int) -> None:
        self.kafka.skip_offsets(topic, partition, 3)

    def engine(self) -> Any:
        """An engine that runs until it is stopped; the fake one until nothing waits."""
        return FakeEngine(self.kafka, seed=self._seed)

    @contextmanager
    def running(self, app: App, **options: Any) -> Iterator[Any]:
        """Run an app; gives its one member, which has the calls of an engine."""
        with running(app, kafka=self.kafka, seed=self._seed, **options):
            self.kafka.advance("1ms")
            yield self.kafka.members(app)[0]

    def until(self, condition: Callable[[], Any]) -> Any:
        """Let virtual time pass until something is so."""
        for _ in range(600):
            if found := condition():
                return found
            self.kafka.advance("100ms")
        raise AssertionError("it is not so after a minute of virtual time")

    def let_pass(self, seconds: float) -> None:
        self.kafka.advance(f"{seconds}s")

    def run(self, app: App) -> Tally:
        return app.run(self.engine()).tally

    def finish(self, app: App) -> Tally:
        return self.run(app)

    def run_errors(self, app: App) -> Tally:
        return self.kafka.run_errors(app, seed=self._seed)

    def output(self, topic: str | Topic[Any]) -> list[Record[Any]]:
        records = self.kafka.records(topic)
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def committed(self, app: App, topic: Topic[Any]) -> dict[int, int]:
        return self.kafka.committed(app, topic)

    def ends(self, topic: Topic[Any]) -> dict[int, int]:
        return self.kafka.ends(topic)

    def refuse_all(self, name: str) -> None:
        self.kafka.fail_writes(name, MessageTooLargeError("planted"))

    def refuse_future(self, name: str) -> None:
        self.kafka.ensure(name)
        write = self.kafka.write

        def checked(topic: str, *rest: Any, **fields: Any) -> Exception | None:
            if topic == name and (fields["timestamp"] or 0) > self.kafka.clock.wall() * 1000 + 3_600_000:
                return TimestampRefusedError("planted")
            return write(topic, *rest, **fields)

        self.kafka.write = checked  # type: ignore[method-assign]

    def _create(self, name: str, partitions: int) -> None:
        self.kafka.create(name, partitions)


@dataclass(slots=True)
class Cluster:
    """A real broker and the clients of the test's own process."""

    bootstrap: str
    admin: Admin
    producer: Any


class _RealWorld(_Base):
    """An engine with a real broker."""

    def __init__(self, path: Path, test: str, cluster: Cluster) -> None:
        super().__init__(path, test)
        self._cluster = cluster
        self.settings: dict[str, object] = {}
        """What the configuration says, by dotted key."""

    def engine(self, *, once: bool = False, **options: Any) -> Any:
        """An engine as `run` uses it, for a test that does more with it."""
        return self._engine(once=once, **options)

    @property
    def bootstrap(self) -> str:
        """Where its broker is."""
        return self._cluster.bootstrap

    def _settings(self) -> Settings:
        from laneway.settings import load

        return load(overrides={"brokers": self._cluster.bootstrap, **self.settings})

    def _engine(self, *, once: bool = False, **options: Any) -> Any:
        raise NotImplementedError

    def produce(self, topic: Topic[Any], rows: Iterable[Row]) -> None:
        _send(self._cluster.producer, topic.name, rows)
        assert self._cluster.producer.flush(20) == 0

    def leave_gap(self, topic: Topic[Any], partition: int) -> None:
        """Abort a transaction of two records, which leaves three offsets: theirs and the marker's."""
        from confluent_kafka import Producer

        end = self.ends(topic)[partition]
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(20)
        producer.begin_transaction()
        _send(producer, topic.name, [Row(b"aborted", b"", (), partition), Row(b"aborted", b"", (), partition)])
        producer.flush(20)
        producer.abort_transaction(20)
        # The broker answers before it has written the marker, and readers see the end of the log only after it.
        deadline = time.monotonic() + 20
        while self.ends(topic)[partition] < end + 3:
            assert time.monotonic() < deadline, "the aborted transaction has no marker"
            time.sleep(0.01)

    @contextmanager
    def running(self, app: App, **options: Any) -> Iterator[Any]:
        """Run an app in the background, and stop at the end; gives the engine."""
        engine, failures = self._engine(**options), list[BaseException]()

        def run() -> None:
            try:
                app.run(engine)
            except BaseException as failure:  # noqa: BLE001 - raised on the thread of the test
                failures.append(failure)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield engine
        finally:
            engine.stop()
            thread.join(_LONG)
        assert not thread.is_alive()
        assert not failures

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until something is so."""
        return eventually(condition, timeout=_LONG)

    def let_pass(self, seconds: float) -> None:
        time.sleep(seconds)

    def run(self, app: App) -> Tally:
        return app.run(self._engine(once=True)).tally

    def run_errors(self, app: App) -> Tally:
        return self._engine().run_errors(app).tally

    def finish(self, app: App) -> Tally:
        """Run until nothing waits, on the retry topics either."""
        engine = self._engine()
        names = [name for route in app.routes for name in (route.topic.name, *route.retry_topics_of(app.name))]

        def stop_at_end() -> None:
            deadline = time.monotonic() + 90
            while time.monotonic() < deadline and not is_over.wait(0.2):
                try:
                    lags = [self._cluster.admin.lag(app.name, name) for name in names]
                except AdminError:
                    continue
                if all(at == end for lag in lags for at, end in lag.values()) and all(lags):
                    break
            engine.stop()

        is_over = threading.Event()
        watcher = threading.Thread(target=stop_at_end)
        watcher.start()
        try:
            return app.run(engine).tally
        finally:
            is_over.set()
            watcher.join()

    def output(self, topic: str | Topic[Any]) -> list[Record[Any]]:
        name = topic if isinstance(topic, str) else topic.name
        records = read_all(self._cluster.admin, {"bootstrap.servers": self._cluster.bootstrap}, name)
        if isinstance(topic, Topic):
            for record in records:
                record.value = None if record.raw is None else topic.value.decode(record.raw)
        return records

    def committed(self, app: App, topic: Topic[Any]) -> dict[int, int]:
        lag = self._cluster.admin.lag(app.name, topic.name)
        return {partition: place for partition, (place, _end) in lag.items() if place is not None}

    def ends(self, topic: Topic[Any]) -> dict[int, int]:
        return self._cluster.admin.ends(topic.name, self._cluster.admin.partitions(topic.name))

    def refuse_all(self, name: str) -> None:
        """Make the topic one that is too small even for a reference."""
        self._cluster.admin.create(name, 1, config={"max.message.bytes": "80"})

    def refuse_future(self, name: str) -> None:
        self._cluster.admin.create(name, 1, config={"message.timestamp.after.max.ms": "3600000"})

    def _create(self, name: str, partitions: int) -> None:
        # Timestamps are part of what is tested: the broker is neither to refuse nor to delete by them.
        config = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
        self._cluster.admin.create(name, partitions, config=config)


class SparkWorld(_RealWorld):
    """Spark. The session is the test run's; it must be the active one of the calling thread."""

    keeps_processes = True
    has_lane_processes = True

    def _engine(self, *, once: bool = False, **options: Any) -> Any:
        from laneway import SparkEngine

        return SparkEngine(self._settings(), once=once, **options)


class DirectWorld(_RealWorld):
    """The direct engine, in the test's own process."""

    has_lane_processes = True
    waits_for_more = True

    def _engine(self, *, once: bool = False, **options: Any) -> Any:
        from laneway import DirectEngine

        return DirectEngine(self._settings(), once=once, **options)


def values_by_key(records: Sequence[Record[Any]]) -> dict[bytes | None, list[Any]]:
    """Values of each key, in the order of the records."""
    found: dict[bytes | None, list[Any]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record.value)
    return found


def _send(producer: Any, topic: str, rows: Iterable[Row]) -> None:
    for row in rows:
        rest = {"partition": row.partition, "timestamp": row.timestamp}
        given = {name: value for name, value in rest.items() if value is not None}
        producer.produce(topic, row.value, row.key, headers=list(row.headers) or None, on_delivery=delivered, **given)
        producer.poll(0)
