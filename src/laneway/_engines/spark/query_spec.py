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
    """The part of a query over an error topic that differs from others."""

    ends: dict[int, int]
    """Where the run ends in each partition."""
    partitions: dict[str, int]
    """The partition counts of the topics that records may be replayed to."""


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """The specification of one topic's query.

    Client options hold secrets. They travel inside a pickled class and never in Spark's options, which Spark shows in
    plans and logs.
    """

    app: str
    topic: str
    routes: tuple[str, ...]
    payload: bytes = field(repr=False)
    """The pickled app: by reference where its module can be imported, else by value."""
    paths: tuple[str, ...]
    """Import path of the app's modules, for workers on this machine."""
    client: dict[str, Any] = field(repr=False)
    consumer: dict[str, Any] = field(repr=False)
    producer: dict[str, Any] = field(repr=False)
    elsewhere: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    """Producer options of other clusters that handlers may send messages to, by name."""
    cluster: str = "main"
    tasks: int = 2
    batch_time: float = 5.0
    """Seconds after which the tasks of a batch start no further record."""
    start: str = "earliest"
    skip_lost: bool = False
    may_create: bool = True
    control: ControlAddress | None = field(default=None, repr=False)
    feeds: tuple[Feed, ...] = ()
    """The topics to read: the source first, then the retry topics of its handlers."""
    errors: ErrorPart | None = None
    """Set when the topic is an error topic of the pickled app."""

    @property
    def name(self) -> str:
        """Unique on this machine: topics of one name may be on several clusters."""
        return f"{self.app}/{self.topic}@{self.cluster}"

    @property
    def place(self) -> str:
        """Unique in the app."""
        return f"{self.topic}@{self.cluster}"

    @property
    def digest(self) -> str:
        """Identifies the payload, so that a worker unpickles the app once and not for every task."""
        return hashlib.sha256(self.payload).hexdigest()

    @staticmethod
    def pickled(app: App) -> bytes:
        return bytes(cloudpickle.dumps(app))

    @staticmethod
    def search_path() -> tuple[str, ...]:
        here = [str(Path(entry or ".").resolve()) for entry in sys.path]
        return tuple(entry for entry in dict.fromkeys(here) if Path(entry).is_dir())
