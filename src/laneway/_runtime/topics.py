"""The topics of an app: waited for, created beside their sources, looked at for their lag."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from laneway._kafka import Admin, BrokerUnavailableError
from laneway._runtime.configure import cluster_of, configured
from laneway._runtime.lifecycle import Lifecycle, State
from laneway.errors import AdminError, DeclarationError
from laneway.observe import logger

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from laneway._declare.app import App
    from laneway._declare.handler import HandlerSpec
    from laneway.settings import Settings

__all__ = ["Feed", "LagReader", "create_beside", "feeds_of", "prepare_topics", "until_ready"]

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
            wake.wait(_GLANCE)  # a signal sets no event, see `listen`
        pause = min(pause * 2, _LONGEST_PAUSE)
    return None


def _prepare(app: App, settings: Settings) -> list[str]:
    missing = []
    # Missing topics are created, also deleted ones; `BrokerMonitor` and `Feeds` do the same later.
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
