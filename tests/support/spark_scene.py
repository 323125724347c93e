"""Scene: one topic, one group, and the runs of an app on them."""

from __future__ import annotations

import time
import uuid
import zlib
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from laneway import App, Reject, SparkEngine, Topic
from laneway.devkit.history import Recorder, check, read_history
from laneway.settings import load
from support.doors import Admin, error_topic_name
from support.processes import LanewayRun
from support.topics import delivered, read_all
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from laneway import Message, Record
    from laneway.devkit.history import Event, Verdict
    from laneway.observe import Tally
    from support.doors import Headers

__all__ = ["Scene"]

Row = tuple[bytes | None, bytes | None]


class Scene:
    """What a test of the Spark engine needs: it produces, starts runs, and looks at the results from outside.

    Args:
        bootstrap: the broker.
        folder: of the test; histories, outputs and checkpoints go there.
        test: names the topic.
    """

    def __init__(self, bootstrap: str, folder: Path, test: str) -> None:
        mark = f"it-{zlib.crc32(test.encode()):08x}-{uuid.uuid4().hex[:12]}"
        self.bootstrap = bootstrap
        self.folder = folder
        self.topic, self.group = f"{mark}.in", f"{mark}.app"
        self.error_topic = error_topic_name(self.topic, self.group)
        self.client = AdminClient({"bootstrap.servers": bootstrap})
        self.admin = Admin({"bootstrap.servers": bootstrap})
        self._runs: list[LanewayRun] = []
        self._producer: Producer | None = None
        self._group: Consumer | None = None

    @property
    def producer(self) -> Any:
        """A producer of the test's own."""
        if self._producer is None:
            self._producer = Producer(
                {"bootstrap.servers": self.bootstrap, "linger.ms": 5, "partitioner": "murmur2_random"}
            )
        return self._producer

    def create(self, topic: str, partitions: int = 3, **config: object) -> None:
        """Create a topic and wait until it can be asked."""
        self.admin.create(topic, partitions, config={name.replace("_", "."): str(x) for name, x in config.items()})
        self.ready(topic, partitions)

    def ready(self, topic: str, partitions: int = 3) -> None:
        """Wait until every partition has a leader."""
        eventually(lambda: len(self.ends(topic)) == partitions, why=f"the leaders of {topic}")

    def produce(self, count: int, *, keys: int = 50, value: bytes = b"v", first: int = 0) -> None:
        """Produce records of a number of keys and wait until they are acknowledged."""
        self.produce_rows((f"k{number % keys}".encode(), value) for number in range(first, first + count))

    def produce_rows(self, rows: Iterable[Row], *, partition: int | None = None) -> None:
        """Produce (key, value) pairs and wait until they are acknowledged."""
        place = {} if partition is None else {"partition": partition}
        for key, value in rows:
            while True:
                try:
                    self.producer.produce(self.topic, value, key, on_delivery=delivered, **place)
                    break
                except BufferError:
                    self.producer.poll(0.05)
        assert self.producer.flush(60) == 0

    def run(
        self,
        *arguments: str,
        target: str = "support.spark_apps:app",
        config: str = "",
        life: str = "",
        command: str = "run",
        **variables: object,
    ) -> LanewayRun:
        """Start `laneway run`.

        Args:
            arguments: further flags.
            target: the app.
            config: text of a ``laneway.yaml``.
            life: name of a history of its own; one history for all runs by default.
            command: another command, such as ``errors run``.
            variables: IT_* and LANEWAY_* variables; lower case ones stand for IT_*.
        """
        folder = self.folder / f"run-{len(self._runs)}"
        history = self._history(life)
        history.mkdir(exist_ok=True)
        folder.mkdir()
        if config:
            (folder / "laneway.yaml").write_text(config)
        environ = {(name if name.isupper() else f"IT_{name.upper()}"): str(value) for name, value in variables.items()}
        environ = {"IT_APP": self.group, "IT_TOPIC": self.topic, "IT_HISTORY": str(history), **environ}
        run = LanewayRun([target, "--brokers", self.bootstrap, *arguments], environ, folder, command.split())
        self._runs.append(run)
        return run

    def finish(self, *arguments: str, timeout: float = 90.0, **rest: Any) -> LanewayRun:
        """Run with ``--once`` to the end, which must be a good one."""
        run = self.run("--once", *arguments, **rest)
        code = run.ended(timeout)
        assert code == 0, run.output
        return run

    def once(self, *, output: str = "", **settings: Any) -> Tally:
        """Handle what there is in the Spark session of the test run, which the caller has as its fixture `spark`.

        Args:
            output: a topic that gets a copy of each record.
            settings: their paths and values, with two underscores for a dot.
        """
        history = self._history("")
        history.mkdir(exist_ok=True)
        recorder, app = Recorder(str(history)), App(self.group)

        @app.handler(Topic(self.topic), lanes=8)
        async def handle(record: Record[bytes]) -> Message[Any] | None:
            recorder.write(record, time.monotonic())
            if (record.raw or b"").startswith(b"poison"):
                raise Reject("poison")
            return Topic(output).message(record.raw, key=record.key, headers=record.headers) if output else None

        overrides = {name.replace("__", "."): value for name, value in settings.items()}
        engine = SparkEngine(load(overrides={"brokers": self.bootstrap, **overrides}), once=True)
        tally: Tally = app.run(engine).tally
        return tally

    def finish_on_direct(self, **rest: Any) -> LanewayRun:
        """Handle what is left on the direct engine: it begins at the same offsets, and starts without a JVM."""
        return self.finish(LANEWAY_ENGINE="direct", **rest)

    def calls(self, life: str = "") -> list[Event]:
        """What the handlers did so far."""
        folder = self._history(life)
        return list(read_history(folder)) if folder.exists() else []

    def verdict(self, life: str = "") -> Verdict:
        """The checker's finding, with everything in the topic expected."""
        return check(self.calls(life), self.ends())

    def after_calls(self, count: int, life: str = "") -> None:
        """Wait until so many calls have ended."""
        self.until(lambda: len(self.calls(life)) >= count)

    def until(self, condition: Callable[[], object], *, timeout: float = 90.0) -> None:
        """Wait for something that the newest run does; its end in the meantime is a failure."""
        run = self._runs[-1]
        eventually(lambda: condition() or not run.is_running, timeout=timeout, why=lambda: run.output)
        assert condition(), f"exit code {run.process.poll()}\n{run.output}"

    def recreate(self, partitions: int = 3) -> None:
        """Delete the topic and create it again at once, as a script might."""
        self.admin.delete(self.topic)
        eventually(lambda: self.admin.create(self.topic, partitions), every=0.01, why="the new topic")
        self._producer = None  # the old one would write to the deleted topic
        # Until the broker has deleted the old logs, they answer, and take records that are lost.
        new = dict.fromkeys(range(partitions), 0)
        eventually(lambda: self.ends() == new, every=0.01, why="the leaders of the new topic")

    def ends(self, topic: str = "") -> dict[int, int]:
        """The end of each partition."""
        name = topic or self.topic
        return self.admin.ends(name, self.admin.partitions(name))

    def commits(self, topic: str = "") -> dict[int, tuple[int, str]]:
        """The group's offsets with their metadata, asked for as any lag tool would; those without one are left out."""
        name = topic or self.topic
        asked = [TopicPartition(name, partition) for partition in self.admin.partitions(name)]
        # Not AdminClient.list_consumer_group_offsets, which crashes the process when a coordinator is not ready.
        if self._group is None:
            self._group = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        group = self._group
        places: list[TopicPartition] = []

        def is_told() -> bool:
            try:
                places[:] = group.committed(asked, 30)
            except KafkaException:  # a coordinator that loads or moves
                return False
            return True

        eventually(is_told, timeout=60, why="the offsets of the group")
        return {place.partition: (place.offset, place.metadata or "") for place in places if place.offset >= 0}

    def committed(self, topic: str = "") -> dict[int, int]:
        """The group's offsets; partitions without one count as 0."""
        found = self.commits(topic)
        return {partition: found.get(partition, (0, ""))[0] for partition in self.admin.partitions(topic or self.topic)}

    def commit(self, offsets: dict[int, int]) -> None:
        """Set the group's offsets."""
        self.commit_text({partition: (offset, "") for partition, offset in offsets.items()})

    def commit_text(self, offsets: dict[int, tuple[int, str]]) -> None:
        """Set the group's offsets with metadata, as others might."""
        self.commits()
        assert self._group is not None
        places = [TopicPartition(self.topic, partition, *said) for partition, said in offsets.items()]
        self._group.commit(offsets=places, asynchronous=False)

    def lag(self) -> int:
        """Records between the group's offsets and the ends."""
        committed = self.committed()
        return sum(end - committed[partition] for partition, end in self.ends().items())

    def read(self, topic: str, options: dict[str, Any] | None = None) -> list[Record[Any]]:
        """Everything in a topic, by partition and offset."""
        return read_all(self.admin, {"bootstrap.servers": self.bootstrap, **(options or {})}, topic)

    def parked(self) -> list[tuple[int, int]]:
        """Partition and offset of each record on the error topic, with repeats."""
        found = []
        for record in self.read(self.error_topic):
            place = _text(record.headers, "laneway-origin-partition"), _text(record.headers, "laneway-origin-offset")
            found.append((int(place[0]), int(place[1])))
        return sorted(found)

    def close(self) -> None:
        """End what runs."""
        for run in self._runs:
            run.close()
        if self._group is not None:
            self._group.close()

    def _history(self, life: str) -> Path:
        return self.folder / f"history{life}"


def _text(headers: Headers, name: str) -> str:
    return next((value or b"").decode() for found, value in headers if found == name)
