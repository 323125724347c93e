"""The topics of an app: waited for, created beside their sources, looked at for their lag."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from laneway._declare.state import State
from laneway._kafka import Admin, BrokerUnavailableError
from laneway._runtime.configure import cluster_of, configured
from laneway.errors import AdminError, DeclarationError
from laneway.observe import logger

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from laneway._declare.app import App
    from laneway._declare.handler import HandlerSpec
    from laneway._runtime.lifecycle import Lifecycle
    from laneway.settings import Settings

__all__ = ["Feed", "create_beside", "feeds_of", "lag_of", "prepare_topics", "until_ready"]

_log = logger("runtime")

T = TypeVar("T")

_KEEP = {"retention.ms": "-1"}
"""Of topics that we create: a copy keeps its record's own timestamp, so by the usual retention an old record that
fails would be deleted as soon as it is parked, and so would a retry while its app is stopped for a week."""

_HEADERS = 64 * 2**10  # bytes that the headers of a copy may take beside its record
_LARGEST = 2**31 - 1  # bytes; a topic takes no larger limit
_GLANCE = 0.1  # seconds between looks for a stop
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds between looks for brokers; I22 asks for a start within 10 s


@dataclass(frozen=True, slots=True)
class Feed:
    """A topic that is read for handlers: the source, or a retry topic beside it."""

    topic: str
    routes: tuple[str, ...]
    step: int = 0
    """0 for the source, else the step of the ladder that its records wait for."""
    delay: float = 0.0
    """Seconds that a record must be old."""


def prepare_topics(
    app: App, settings: Settings, life: Lifecycle, is_stopping: Callable[[], bool], wake: threading.Event
) -> bool:
    """Wait for brokers and topics, and create the retry and error topics; False when told to stop meanwhile.

    A broker that is absent or a topic that is missing is waited for; bad credentials are raised at once.
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
    """Ask until brokers answer and the answer is not None; None when told to stop meanwhile."""
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
    # What is missing is created, whether it was there before or not; so do `BrokerMonitor` and `Feeds` later.
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
                    _log.info("created topic %s with %d partitions: it was not there", name, len(partitions))
    return list(dict.fromkeys(missing))


def create_beside(admin: Admin, topic: str, source: str, partitions: int) -> bool:
    """Create a retry or error topic; False when it exists already.

    It takes whatever its source takes, and the headers of a copy.
    """
    largest = admin.largest(source)
    if largest is not None:
        limit = {"max.message.bytes": str(min(_LARGEST, largest + _HEADERS))}
        try:
            return admin.create(topic, partitions, config=_KEEP | limit)
        except BrokerUnavailableError:
            raise
        except AdminError:
            pass  # a cluster may have rules for this limit; if it is not that, the next try says so
    return admin.create(topic, partitions, config=_KEEP)


def feeds_of(app: str, routes: list[HandlerSpec]) -> tuple[Feed, ...]:
    """What is read: the topic of these handlers, and the retry topics of each.

    Raises:
        DeclarationError: when they want the topic with different delays.
    """
    delays = {route.delay for route in routes}
    if len(delays) > 1:
        names = " and ".join(repr(route.name) for route in routes)
        raise DeclarationError(
            f"handlers {names} read one topic with different delays; put one of them into another app"
        )
    feeds = [Feed(routes[0].topic.name, tuple(route.name for route in routes), 0, delays.pop().total_seconds())]
    for route in routes:
        for step in range(1, route.retry.hops + 1):
            own = route.at_step(app, step)
            feeds.append(Feed(own.topic.name, (route.name,), step, own.delay.total_seconds()))
    return tuple(feeds)


def lag_of(app: App, settings: Settings) -> Callable[[], int | None]:
    """A function that counts the records between the group's offsets and the ends of the logs, over the app's topics.

    It gives None when nobody answers, and keeps its clients: it is called once a second for as long as an app runs.
    """
    places = {(cluster_of(route, settings), route.topic.name) for route in configured(app, settings).routes}
    admins: dict[str, Admin] = {}

    def count() -> int | None:
        total = 0
        try:
            for cluster, topic in places:
                if cluster not in admins:
                    admins[cluster] = Admin(settings.cluster(cluster).client_options())
                lag = admins[cluster].lag(app.name, topic)
                # An offset of before the topic was recreated may lie past the end of the new one.
                total += sum(max(0, end - (committed or 0)) for committed, end in lag.values())
        except AdminError:
            return None
        return total

    return count
