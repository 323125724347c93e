"""ErrorScene: an app, its topics on a real broker, and `laneway errors` run on them."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import uuid
import zlib
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from laneway import Record
from laneway.cli import main
from support.doors import Failure, GroupOffsets, parked_headers
from support.topics import delivered, read_all
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from support.contract import Cluster
    from support.doors import Headers

__all__ = ["Done", "ErrorScene", "Row"]

APP = """
from laneway import App, Topic

app = App({app!r})


@app.handler(Topic({topic!r}))
def charge(record): ...
"""
NOON = 1_767_268_800_000  # 2026-01-01T12:00:00Z in milliseconds


class Row(NamedTuple):
    """A record as far as it matters to a replay."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = NOON

    @classmethod
    def of(cls, record: Record[Any]) -> Row:
        return cls(record.key, record.raw, tuple(record.headers), record.timestamp)


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


class ErrorScene:
    """What a test of parked records needs.

    Args:
        cluster: the broker.
        folder: of the test; the app's module goes there.
        test: names the topics.
        partitions: of the source and the error topic.
    """

    def __init__(self, cluster: Cluster, folder: Path, test: str, partitions: int = 2) -> None:
        mark = f"it-{zlib.crc32(test.encode()):08x}-{uuid.uuid4().hex[:12]}"
        self.cluster, self.folder = cluster, folder
        self.topic, self.app, self.module = f"{mark}.in", f"{mark}.app", f"m{uuid.uuid4().hex}"
        self.error_topic, self.group = f"{self.topic}.{self.app}.error", f"{self.app}.errors"
        self.create(self.topic, partitions)
        self.create(self.error_topic, partitions)
        self.declare(APP.format(app=self.app, topic=self.topic))

    @property
    def options(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.cluster.bootstrap}

    @property
    def target(self) -> str:
        return f"{self.module}:app"

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Make a topic that keeps records forever: those of the tests have timestamps of long ago."""
        settings = {"retention.ms": "-1", **{name.replace("_", "."): value for name, value in config.items()}}
        self.cluster.admin.create(topic, partitions, config=settings)

    def declare(self, code: str) -> None:
        """Write the app's module."""
        (self.folder / f"{self.module}.py").write_text(code)

    def park(self, rows: Iterable[Row], error: str = "ValueError", *, partition: int = 0, at: int = NOON) -> None:
        """Park records as laneway does; each a second after the one before."""
        for number, row in enumerate(rows):
            record = Record(self.topic, partition, number, row.timestamp, row.key, row.value, row.headers, 0, None)
            failure = Failure(error, f"bad {number}", "Traceback:\n  here")
            headers = parked_headers(record, failure, app=self.app, handler="charge", now=at + 1_000 * number)
            self.put(Row(row.key, row.value, tuple(headers), row.timestamp), partition=partition)

    def put(self, row: Row, *, partition: int = 0, topic: str | None = None) -> None:
        """Write a record to the error topic as it is."""
        self.cluster.producer.produce(
            topic or self.error_topic,
            row.value,
            row.key,
            headers=list(row.headers),
            partition=partition,
            timestamp=row.timestamp,
            on_delivery=delivered,
        )
        assert self.cluster.producer.flush(20) == 0

    def read(self, topic: str, start: dict[int, int] | None = None) -> list[Record[Any]]:
        """Everything in a topic by partition and offset."""
        return read_all(self.cluster.admin, self.options, topic, start)

    def source(self) -> list[Row]:
        """What is on the source topic."""
        return [Row.of(record) for record in self.read(self.topic)]

    def open(self) -> list[Row]:
        """What is open on the error topic."""
        return [Row.of(record) for record in self.read(self.error_topic, self.committed())]

    def committed(self) -> dict[int, int]:
        """Offsets of the group."""
        offsets = GroupOffsets(self.options, self.group)
        numbers = self.cluster.admin.partitions(self.error_topic)
        try:  # right after its start a broker may not be ready to coordinate the group
            asked = eventually(lambda: [offsets.committed(self.error_topic, numbers)], why="the group's offsets")
            return asked[0]
        finally:
            offsets.close()

    def commit(self, offsets: dict[int, int]) -> None:
        """Set offsets of the group."""
        group = GroupOffsets(self.options, self.group)
        group.commit_all({(self.error_topic, part): (at, "") for part, at in offsets.items()}, wait=True)
        group.close()

    def ends(self, topic: str) -> dict[int, int]:
        return self.cluster.admin.ends(topic, self.cluster.admin.partitions(topic))

    def count(self, topic: str) -> int:
        """How many records were written to a topic."""
        return sum(self.ends(topic).values())

    def errors(self, *words: str, brokers: str | None = None) -> Done:
        """Run `laneway errors` in this process."""
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(sys, "argv", self._words(words, brokers)),
            mock.patch.object(sys, "path", [str(self.folder), *sys.path]),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                main()
            except SystemExit as ended:
                code = ended.code
        return Done(int(code or 0), out.getvalue(), err.getvalue())

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Run `laneway errors` in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "laneway.cli", *self._words(words, None)[1:]],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    def at_terminal(self, *words: str, answer: str) -> Done:
        """Run `laneway errors` on a terminal, and answer its question."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "laneway.cli", *self._words(words, None)[1:]],
            cwd=self.folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "COLUMNS": "400", "TERM": "dumb"},
        )
        os.close(theirs)
        text = ""
        try:
            # Reading from a terminal whose other side has gone ends with an error.
            while part := os.read(ours, 4096):
                text += part.decode()
                if text.rstrip().endswith("]:") and answer:
                    os.write(ours, f"{answer}\n".encode())
                    answer = ""
        except OSError:
            pass
        finally:
            os.close(ours)
        return Done(process.wait(60), text, "")

    def _words(self, words: Sequence[str], brokers: str | None) -> list[str]:
        verb, *rest = words
        return ["laneway", "errors", verb, self.target, *rest, "--brokers", brokers or self.cluster.bootstrap]


def with_errors(headers: Headers, errors: int = 1) -> tuple[tuple[str, bytes | None], ...]:
    """Headers of a replayed record: its own, and how often it was parked."""
    return (*headers, ("laneway-errors", str(errors).encode()))
