"""Crew: everything that runs an app's handlers on one cluster, put together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from laneway._engines.direct.member import Member
from laneway._kafka import Admin, BrokerUnavailableError, GroupConsumer, sender_of
from laneway._runtime.clients import reading_options
from laneway._runtime.configure import producers_elsewhere
from laneway._runtime.feeds import Feeds
from laneway._runtime.group_loop import LoopClients, group_loop
from laneway._runtime.handler_worker import HandlerWorker
from laneway._runtime.lease import Lease
from laneway._runtime.monitor import TIMEOUT, BrokerMonitor
from laneway._runtime.partition import Partitions
from laneway._runtime.read_plan import ReadPlan
from laneway._runtime.recovery import Recovery
from laneway._runtime.retry_source import RetrySource
from laneway._runtime.topics import feeds_of
from laneway._runtime.worker_loop import Request
from laneway.observe import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laneway._declare.handler import HandlerSpec
    from laneway._kafka import Place
    from laneway._runtime.commits import CommitStrategy
    from laneway._runtime.driver import Until
    from laneway._runtime.handler_worker import Hooks
    from laneway._runtime.host import AppHost
    from laneway.observe import Listener
    from laneway.settings import ClusterSettings, Settings

__all__ = ["Crew"]

_LOOK = 0.02  # seconds between looks at whether the group was left
_LEAVE = 15.0  # seconds that the last commit and leaving the group may take
_REBALANCE = 2.0  # seconds after which leaving is held up by a rebalance
_WAITING = (
    "everything is committed; waiting for the group to finish its rebalance, "
    "so that the other members get the partitions at once. A second signal ends the process now"
)
_ASK = 1.0  # seconds between questions for what others of the group have committed
_PATIENCE = 0.6  # of max_poll_interval: what brokers may take to answer when partitions come
_LEASE = 2 / 3  # of session_timeout: the last heartbeat may be a third of it older than the last poll
_BUDGET = 0.2  # of max_poll_interval: what giving partitions back may take, so that the group does not give us up


class Crew:
    """The member of the group, the stations of the handlers, and what reads their retry topics.

    Args:
        app: the app's name, which is the group.
        routes: its handlers on this cluster.
        cluster: where.
        settings: the configuration.
        host: has the loop that async handlers run on.
        listener: hears of events and of what is waited for; any thread calls it.
        limits: where to end in each partition, whatever is written there meanwhile; None for no end.
        hooks: setups and cleanups of the app, for processes that handlers have of their own.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        app: str,
        routes: list[HandlerSpec],
        cluster: ClusterSettings,
        settings: Settings,
        *,
        host: AppHost,
        listener: Listener,
        limits: Mapping[Place, int] | None = None,
        hooks: Hooks = ((), ()),
    ) -> None:
        self.cluster = cluster
        self.admin = Admin(cluster.client_options())
        self.sources = list(dict.fromkeys(route.topic.name for route in routes))
        self._app = app
        self._listener = listener
        self._session = max(_LEAVE, cluster.consumer.session_timeout.total_seconds() + _REBALANCE)
        self._asked = 0.0
        partitions = {topic: max(1, len(self.admin.partitions(topic))) for topic in self.sources}
        elsewhere = producers_elsewhere(routes, settings)
        self._sender = sender_of(cluster.producer_options(), elsewhere)
        lease = Lease(cluster.consumer.session_timeout.total_seconds() * _LEASE)
        self.stations: list[HandlerWorker] = []
        stations: dict[str, list[HandlerWorker]] = {}
        for route in routes:
            station = HandlerWorker(
                route,
                app,
                lanes=route.processes or max(1, route.lanes),
                sender=self._sender,
                loop=lambda: host.loop,
                listener=listener,
                hooks=hooks,
                lease=lease,
            )
            self.stations.append(station)
            for topic in station.topics:
                stations.setdefault(topic, []).append(station)
        self._may_create = settings.create_topics
        # Not of runs over an error topic: that one is what they read.
        errors = {route.error_topic_of(app): route.topic.name for route in routes if route.rerun is None}
        owned = Partitions()
        feeds = {topic: feeds_of(app, [each for each in routes if each.topic.name == topic]) for topic in self.sources}
        limit = cluster.consumer.max_poll_interval.total_seconds()
        plan = ReadPlan.of(
            feeds,
            start=_starts(routes, settings),
            # What retention has taken from an error topic is gone, and counted; the rest is to be run all the same.
            skip_lost=settings.on_data_loss == "continue" or limits is not None,
            limits=limits,
            budget=min(limit * _BUDGET, settings.drain.total_seconds()),
            patience=limit * _PATIENCE,
        )
        self.monitor = BrokerMonitor(
            self,
            owned,
            feeds=[
                Feeds(found, self.admin, may_create=settings.create_topics, timeout=TIMEOUT)
                for topic, found in feeds.items()
                if plan.retry_topics[topic] or topic in plan.delayed
            ],
            sources=self.sources,
            errors=errors,
            may_create=settings.create_topics,
            where=",".join(cluster.brokers),
        )
        for station in self.stations:
            station.processor.outbox.diagnose = self.monitor.trouble
        options = reading_options(cluster, routes, sum(partitions.values()))
        consumer = GroupConsumer(options, app, cluster.client_options())
        clients = LoopClients(
            source=consumer,
            commits=self._commits_of(consumer),
            retry_source=RetrySource(plan.beside, owned, options, skip_lost=plan.skip_lost),
            recovery=Recovery(app, self.stations, admin=self.admin, options=options),
            monitor=self.monitor,
            admin=self.admin,
            lease=lease,
            listener=listener,
        )
        self.worker_loop = group_loop(plan, clients, stations, owned)
        self.member = Member(self.worker_loop)

    @property
    def owned(self) -> list[Place]:
        """The partitions of its sources that are ours. Any thread may ask."""
        return [partition.place for partition in self.worker_loop.partitions.of(self.sources)]

    @property
    def is_finished(self) -> bool:
        """Whether the stations have ended."""
        return all(station.is_over for station in self.stations)

    @property
    def is_idle(self) -> bool:
        """Whether no handler has a record."""
        return all(station.is_idle for station in self.stations)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is read, no call runs and none can begin now."""
        return self.worker_loop.status().is_holding and all(station.is_quiet for station in self.stations)

    def _commits_of(self, consumer: GroupConsumer) -> CommitStrategy:
        """What commits for the member: it does so itself, unless a subclass says otherwise."""
        return consumer

    def start(self) -> None:
        """Begin."""
        for station in self.stations:
            station.start()
        self.monitor.start()
        self.member.start()

    def stop(self) -> None:
        """Read nothing more, and finish what was begun."""
        self.worker_loop.request(Request.STOP)
        for station in self.stations:
            station.finish()

    def end(self, until: Until) -> bool:
        """Commit what is finished and leave, whatever still runs; False when not everything was committed in time.

        With a rebalance under way brokers let nobody leave before it is over. A process that ends earlier keeps its
        partitions from the others until its session ends, so it waits as long as a session lasts.

        Args:
            until: once it is forced and everything is committed, nothing is waited for any more.
        """
        for station in self.stations:
            if not station.is_over:
                station.abandon()
        self.member.leave()
        began, is_noted = time.monotonic(), False
        while not self.member.is_over:
            is_committed, waited = self.member.is_committed, time.monotonic() - began
            if waited > (self._session if is_committed else _LEAVE) or (is_committed and until.is_forced):
                break
            if is_committed and waited > _REBALANCE and not is_noted:
                self._listener.note(_WAITING)
                is_noted = True
            time.sleep(_LOOK)
        self.monitor.end()
        self._sender.flush(1.0)
        return self.member.is_committed

    def news(self) -> dict[str, Tally]:
        """What was done since this was last asked: a source, and what was done of it and of its retry topics."""
        found: dict[str, Tally] = {}
        for station in self.stations:
            news = station.news()
            total = found.setdefault(station.spec.source or station.spec.topic.name, Tally())
            busy = total.lanes_busy + news.lanes_busy  # in the same time, so they add up
            total.add(news)
            total.lanes_busy = busy
        return found

    def is_past(self, ends: Mapping[Place, int]) -> bool:
        """Whether everything before these ends is finished, by us or by others of the group."""
        if not self.worker_loop.is_past(ends):
            return False
        ours = self.worker_loop.partitions
        others = {place: end for place, end in ends.items() if end and place not in ours}
        if others and time.monotonic() - self._asked < _ASK:
            return False
        self._asked = time.monotonic()
        try:
            found = {topic: self.admin.lag(self._app, topic) for topic in {topic for topic, _ in others}}
        except BrokerUnavailableError:
            return False
        return all((found[topic].get(part, (None, 0))[0] or 0) >= end for (topic, part), end in others.items())

    def raise_if_failed(self) -> None:
        """Raise what ended something that should run."""
        self.member.raise_if_failed()
        for station in self.stations:
            if station.error is not None:
                raise station.error


def _starts(routes: list[HandlerSpec], settings: Settings) -> dict[str, str]:
    found = {
        route.topic.name: settings.handlers[route.name].start for route in routes if route.name in settings.handlers
    }
    return {topic: start for topic, start in found.items() if start is not None}
