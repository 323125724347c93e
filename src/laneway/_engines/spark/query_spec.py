"""QuerySpec: everything that the planner and the tasks of one topic's query need to know; it travels pickled."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

if TYPE_CHECKING:
    from laneway._declare.app import App
    from laneway._engines.spark.control import ControlAddress
    from laneway._runtime.topics import Feed

__all__ = ["ErrorPart", "QuerySpec"]


@dataclass(frozen=True, slots=True)
class ErrorPart:
    """What a query is told besides when it runs over an error topic."""

    ends: dict[int, int]
    """Where the run ends in each partition."""
    partitions: dict[str, int]
    """How many partitions the topics have to which records may be sent back."""


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """One topic's query.

    Client options hold secrets; they travel inside a pickled class and never in Spark's options, which Spark shows in
    plans and logs.
    """

    app: str
    topic: str
    routes: tuple[str, ...]
    payload: bytes = field(repr=False)
    """The app, pickled: by reference where its module can be imported, else by value."""
    paths: tuple[str, ...]
    """Where the app's modules are, for workers on this machine."""
    client: dict[str, Any] = field(repr=False)
    consumer: dict[str, Any] = field(repr=False)
    producer: dict[str, Any] = field(repr=False)
    elsewhere: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    """Options of producers for other clusters to which handlers may send messages, by the cluster's name."""
    cluster: str = "main"
    """Name of the cluster that is read."""
    tasks: int = 2
    """Most tasks of a batch."""
    batch_time: float = 5.0
    """Seconds after which the tasks of a batch begin no further record."""
    start: str = "earliest"
    skip_lost: bool = False
    may_create: bool = True
    """Whether error and retry topics may be created."""
    control: ControlAddress | None = field(default=None, repr=False)
    """Where the driver listens."""
    feeds: tuple[Feed, ...] = ()
    """What the query reads: the source first, then the retry topics of its handlers."""
    errors: ErrorPart | None = None
    """Given when the topic is an error topic of the app that is pickled."""

    @property
    def name(self) -> str:
        """Tells it from the other streams of this machine: topics of one name may be on several clusters."""
        return f"{self.app}/{self.topic}@{self.cluster}"

    @property
    def place(self) -> str:
        """Tells it from the other streams of its app."""
        return f"{self.topic}@{self.cluster}"

    @property
    def digest(self) -> str:
        """Names the payload, so that a worker unpickles the app once and not for every task."""
        return hashlib.sha256(self.payload).hexdigest()

    @staticmethod
    def pickled(app: App) -> bytes:
        """The app as bytes."""
        return bytes(cloudpickle.dumps(app))

    @staticmethod
    def search_path() -> tuple[str, ...]:
        """The folders that this process imports from."""
        here = [str(Path(entry or ".").resolve()) for entry in sys.path]
        return tuple(entry for entry in dict.fromkeys(here) if Path(entry).is_dir())
