"""The topics of an app: created, waited for, read by a plan, and looked at for their lag."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from laneway._declare.state import State
from laneway._kafka import Admin, BrokerUnavailableError
from laneway._runtime.configure import cluster_of, configured
from laneway.errors import AdminError, DeclarationError
from laneway.observe import logger

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Mapping, Sequence

    from laneway._declare.app import App
    from laneway._declare.handler import HandlerSpec
    from laneway._kafka import Place
    from laneway._runtime.lifecycle import Lifecycle
    from laneway.settings import Settings

__all__ = ["Feed", "LagReader", "ReadPlan", "create_beside", "feeds_of", "prepare_topics", "until_ready"]

_log = logger("runtime")

T = TypeVar("T")

_KEEP = {"retention.ms": "-1"}
"""For topics that we create.
A copy keeps its record's timestamp, so the usual retention would delete the copy of an old record as soon as it is
parked, and a deferred record while its app is stopped for a week.
"""

_HEADERS = 64 * 2**10  # bytes that the headers of a copy may take beside its record
_LARGEST = 2**31 - 1  # bytes; a topic takes no larger limit
_GLANCE = 0.1  # seconds between checks for a stop
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds between checks for brokers; I22 allows 10 s


@dataclass(frozen=True, slots=True)
class Feed:
    """A topic that is read for handlers: the source, or one of its retry topics."""

    topic: str
    routes: tuple[str, ...]
    step: int = 0
    """0 for the source, else the retry step."""
    delay: float = 0.0
    """Seconds that a record must be old."""


def prepare_topics(
    app: App, settings: Settings, life: Lifecycle, is_stopping: Callable[[], bool], wake: threading.Event
) -> bool:
    """Wait for brokers and topics, and create the retry and error topics; False when stopped meanwhile.

    Absent brokers and missing topics are waited for; invalid credentials are raised at once.
    """

    def prepared() -> bool | None:
        missing = _prepare(app, settings)
        if missing:
            life.enter(State.INITIALISING, f"waiting for topic {', '.join(missing)}")
        return None if missing else True

    return bool(until_ready(prepared, settings, life, is_stopping, wake))


def until_ready(
    ask: Callable[[], T | None],
    settings: Settings,
    life: Lifecycle,
    is_stopping: Callable[[], bool],
    wake: threading.Event,
) -> T | None:
    """Repeat a request until brokers answer and the result is not None; None when stopped meanwhile."""
    pause = _FIRST_PAUSE
    while not is_stopping():
        try:
            answer = ask()
            if answer is not None:
                return answer
        except BrokerUnavailableError as error:
            brokers = settings.cluster().client_options()["bootstrap.servers"]
            life.enter(State.INITIALISING, f"waiting for Kafka at {brokers}: {error}")
        deadline = time.monotonic() + pause
        while not is_stopping() and time.monotonic() < deadline:
            wake.wait(_GLANCE)  # a signal sets no event, see `install_stop_signals`
        pause = min(pause * 2, _LONGEST_PAUSE)
    return None


def _prepare(app: App, settings: Settings) -> list[str]:
    missing = []
    # Missing topics are created, also deleted ones; `BrokerMonitor` and `DueOffsets` do the same later.
    for route in app.routes:
        admin = Admin(settings.cluster(cluster_of(route, settings)).client_options())
        partitions = admin.partitions(route.topic.name)
        if not partitions:
            missing.append(route.topic.name)
        else:
            for name in (route.error_topic_of(app.name), *route.retry_topics_of(app.name)):
                if admin.partitions(name):
                    continue
                if not settings.create_topics:
                    missing.append(f"{name} (create_topics is false)")
                elif create_beside(admin, name, route.topic.name, len(partitions)):
                    _log.info("created topic %s with %d partitions", name, len(partitions))
    return list(dict.fromkeys(missing))


def create_beside(admin: Admin, topic: str, source: str, partitions: int) -> bool:
    """Create a retry or error topic; False when it exists.

    Its size limit leaves room for the source's largest record and the headers of a copy.
    """
    largest = admin.largest(source)
    if largest is not None:
        limit = {"max.message.bytes": str(min(_LARGEST, largest + _HEADERS))}
        try:
            return admin.create(topic, partitions, config=_KEEP | limit)
        except BrokerUnavailableError:
            raise
        except AdminError:
            pass  # the cluster may restrict this setting; any other error appears at the next try
    return admin.create(topic, partitions, config=_KEEP)


def feeds_of(app: str, routes: list[HandlerSpec]) -> tuple[Feed, ...]:
    """The topics to read: the handlers' topic, and the retry topics of each.

    Raises:
        DeclarationError: the handlers declare different delays.
    """
    delays = {route.delay for route in routes}
    if len(delays) > 1:
        names = " and ".join(repr(route.name) for route in routes)
        raise DeclarationError(
            f"handlers {names} read the same topic with different delays; move one of them to another app"
        )
    feeds = [Feed(routes[0].topic.name, tuple(route.name for route in routes), 0, delays.pop().total_seconds())]
    for route in routes:
        for step in range(1, route.retry.hops + 1):
            own = route.at_step(app, step)
            feeds.append(Feed(own.topic.name, (route.name,), step, own.delay.total_seconds()))
    return tuple(feeds)


class LagReader:
    """Reads the lag over an app's topics, for calls once a second. It keeps its clients."""

    def __init__(self, app: App, settings: Settings) -> None:
        self._group = app.name
        self._settings = settings
        self._topics = {(cluster_of(route, settings), route.topic.name) for route in configured(app, settings).routes}
        self._admins: dict[str, Admin] = {}

    def read(self) -> int | None:
        """The number of unfinished records; None when no broker answers."""
        total = 0
        try:
            for cluster, topic in self._topics:
                if cluster not in self._admins:
                    self._admins[cluster] = Admin(self._settings.cluster(cluster).client_options())
                lag = self._admins[cluster].lag(self._group, topic)
                # The offset of a recreated topic may be after the end of the new log.
                total += sum(max(0, end - (committed or 0)) for committed, end in lag.values())
        except AdminError:
            return None
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """The topics of a loop, and the rules that hold for them."""

    topics: Sequence[str]
    """The sources, whose partitions the group assigns."""
    retry_topics: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Source to its retry topics."""
    delayed: Collection[str] = ()
    """Sources whose records wait until they are due; they are read as retry topics are."""
    start: Mapping[str, str] = field(default_factory=dict)
    """Source to where a group begins that has committed nothing: ``earliest`` or ``latest``."""
    skip_lost: bool = False
    """Whether to continue when records were deleted before they were read."""
    limits: Mapping[Place, int] | None = None
    """Where reading ends in each partition of a source, whatever is written there meanwhile; None for no end."""
    budget: float = 6.0
    """Seconds that giving partitions back may take."""
    patience: float = 18.0
    """Seconds that brokers may take to answer when partitions come."""

    @classmethod
    def of(cls, feeds: Mapping[str, Sequence[Feed]], **rest: Any) -> ReadPlan:
        """The plan of topics and of what is read beside each of them; *rest* are further fields."""
        retry_topics = {topic: [feed.topic for feed in found if feed.step] for topic, found in feeds.items()}
        delayed = {topic for topic, found in feeds.items() if found[0].delay}
        return cls(topics=list(feeds), retry_topics=retry_topics, delayed=delayed, **rest)

    @property
    def live(self) -> list[str]:
        """The sources that the group consumer reads."""
        return [topic for topic in self.topics if topic not in self.delayed]

    @property
    def beside(self) -> list[str]:
        """What is read beside the group, each record when it is due."""
        return [
            topic for source in self.topics for topic in self.with_retries(source)
            if topic != source or source in self.delayed
        ]  # fmt: skip

    @property
    def watched(self) -> set[str]:
        """The topics of which it is watched whether they are recreated; none of a run with an end."""
        return set(self.topics) if self.limits is None else set()

    def with_retries(self, source: str) -> list[str]:
        """A source and its retry topics."""
        return [source, *self.retry_topics.get(source, ())]
