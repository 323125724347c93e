"""ClusterRuntime: runs an app's handlers on one Kafka cluster, in this process."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from laneway._kafka import Admin, BrokerUnavailableError, GroupConsumer, sender_of
from laneway._runtime.broker_monitor import TIMEOUT, BrokerMonitor
from laneway._runtime.configure import producers_elsewhere, reading_options
from laneway._runtime.due_offsets import DueOffsets
from laneway._runtime.group_loop import LoopClients, group_loop
from laneway._runtime.handler_worker import HandlerWorker
from laneway._runtime.health.snapshot import LoopHealth, MemberStatus
from laneway._runtime.lease import Lease
from laneway._runtime.partition import Partitions
from laneway._runtime.recovery import Recovery
from laneway._runtime.retry_source import RetrySource
from laneway._runtime.topics import ReadPlan, feeds_of
from laneway._runtime.worker_loop import Request
from laneway.observe import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laneway._declare.handler import HandlerSpec
    from laneway._kafka import Place
    from laneway._runtime.commits import CommitStrategy
    from laneway._runtime.driver import StopRequests
    from laneway._runtime.handler_worker import Hooks
    from laneway._runtime.health.snapshot import Snapshot
    from laneway._runtime.host import AppHost
    from laneway._runtime.worker_loop import WorkerLoop
    from laneway.observe import Listener
    from laneway.settings import ClusterSettings, Settings

__all__ = ["ClusterHealth", "ClusterRuntime"]

_LOOK = 0.02  # seconds between checks whether the member has left
_LEAVE = 15.0  # seconds that the last commit and leaving the group may take
_REBALANCE = 2.0  # seconds after which a rebalance must be what delays leaving
_WAITING = (
    "everything is committed; waiting for the rebalance to complete, "
    "so that the other members get the partitions at once. A second signal ends the process now"
)
_ASK = 1.0  # seconds between requests for the commits of other members
_PATIENCE = 0.6  # of max_poll_interval: time for brokers to answer after an assignment
_LEASE = 2 / 3  # of session_timeout: the last heartbeat may be a third of it older than the last poll
_BUDGET = 0.2  # of max_poll_interval: time to revoke partitions, before the group removes the member
_SILENT = 1 / 3  # of max_poll_interval: a member that has not polled for as long is reported


class ClusterRuntime:
    """Runs an app's handlers on one cluster: a group consumer, the handlers, and the readers of their retry topics.

    *limits* are the offsets before which reading ends in each partition; *hooks* run in child processes of handlers.
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
        self.workers: list[HandlerWorker] = []
        workers: dict[str, list[HandlerWorker]] = {}
        for route in routes:
            worker = HandlerWorker(
                route,
                app,
                lanes=route.processes or max(1, route.lanes),
                sender=self._sender,
                host=host,
                listener=listener,
                hooks=hooks,
                lease=lease,
            )
            self.workers.append(worker)
            for topic in worker.topics:
                workers.setdefault(topic, []).append(worker)
        self._may_create = settings.create_topics
        # An error run reads the error topic itself.
        errors = {route.error_topic_of(app): route.topic.name for route in routes if route.rerun is None}
        owned = Partitions()
        feeds = {topic: feeds_of(app, [each for each in routes if each.topic.name == topic]) for topic in self.sources}
        limit = cluster.consumer.max_poll_interval.total_seconds()
        plan = ReadPlan.of(
            feeds,
            start=_starts(routes, settings),
            # Records deleted from an error topic are counted as lost; the others are still handled.
            skip_lost=settings.on_data_loss == "continue" or limits is not None,
            limits=limits,
            budget=min(limit * _BUDGET, settings.drain.total_seconds()),
            patience=limit * _PATIENCE,
        )
        self.monitor = BrokerMonitor(
            self,
            owned,
            feeds=[
                DueOffsets(found, self.admin, may_create=settings.create_topics, timeout=TIMEOUT)
                for topic, found in feeds.items()
                if plan.retry_topics[topic] or topic in plan.delayed
            ],
            sources=self.sources,
            errors=errors,
            may_create=settings.create_topics,
            where=",".join(cluster.brokers),
        )
        for worker in self.workers:
            worker.processor.outbox.diagnose = self.monitor.trouble
        options = reading_options(cluster, routes, sum(partitions.values()))
        consumer = GroupConsumer(options, app, cluster.client_options())
        clients = LoopClients(
            source=consumer,
            commits=self._commits_of(consumer),
            retry_source=RetrySource(plan.beside, owned, options, skip_lost=plan.skip_lost),
            recovery=Recovery(app, self.workers, admin=self.admin, options=options),
            monitor=self.monitor,
            admin=self.admin,
            lease=lease,
            listener=listener,
        )
        self.worker_loop = group_loop(plan, clients, workers, owned)
        self.thread = LoopThread(self.worker_loop)

    @property
    def owned(self) -> list[Place]:
        """The assigned partitions of its sources. Any thread may ask."""
        return [partition.place for partition in self.worker_loop.partitions.of(self.sources)]

    @property
    def is_finished(self) -> bool:
        return all(worker.is_over for worker in self.workers)

    @property
    def is_idle(self) -> bool:
        """Whether no handler holds a record."""
        return all(worker.is_idle for worker in self.workers)

    @property
    def is_quiet(self) -> bool:
        """Whether reading is paused, no call runs and none can begin."""
        return self.worker_loop.status().is_holding and all(worker.is_quiet for worker in self.workers)

    def _commits_of(self, consumer: GroupConsumer) -> CommitStrategy:
        """How offsets are committed; a subclass may commit in another way."""
        return consumer

    def start(self) -> None:
        for worker in self.workers:
            worker.start()
        self.monitor.start()
        self.thread.start()

    def stop(self) -> None:
        """Stop reading, and finish the records in flight."""
        self.worker_loop.request(Request.STOP)
        for worker in self.workers:
            worker.finish()

    def end(self, until: StopRequests) -> bool:
        """Commit and leave the group; False when not everything was committed in time.

        A member that ends without leaving keeps its partitions until its session times out, and during a rebalance a
        member can leave only after it. So this waits up to one session.

        Once *until* is forced, it waits for the commit only.
        """
        for worker in self.workers:
            if not worker.is_over:
                worker.abandon()
        self.thread.leave()
        began, is_noted = time.monotonic(), False
        while not self.thread.is_over:
            is_committed, waited = self.thread.is_committed, time.monotonic() - began
            if waited > (self._session if is_committed else _LEAVE) or (is_committed and until.is_forced):
                break
            if is_committed and waited > _REBALANCE and not is_noted:
                self._listener.note(_WAITING)
                is_noted = True
            time.sleep(_LOOK)
        self.monitor.end()
        self._sender.flush(1.0)
        return self.thread.is_committed

    def news(self) -> dict[str, Tally]:
        """The tallies since the last call, each with its source topic."""
        found: dict[str, Tally] = {}
        for worker in self.workers:
            news = worker.news()
            total = found.setdefault(worker.spec.source or worker.spec.topic.name, Tally())
            busy = total.lanes_busy + news.lanes_busy  # concurrent, so they add up
            total.add(news)
            total.lanes_busy = busy
        return found

    def is_past(self, ends: Mapping[Place, int]) -> bool:
        """Whether everything before these ends is finished, by any member of the group."""
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
        """Raise the error that ended the consumer or a handler."""
        self.thread.raise_if_failed()
        for worker in self.workers:
            if worker.error is not None:
                raise worker.error


def _starts(routes: list[HandlerSpec], settings: Settings) -> dict[str, str]:
    found = {
        route.topic.name: settings.handlers[route.name].start for route in routes if route.name in settings.handlers
    }
    return {topic: start for topic, start in found.items() if start is not None}


class LoopThread:
    """Runs a `WorkerLoop` on its own thread until it is asked to leave the group."""

    def __init__(self, loop: WorkerLoop) -> None:
        self._loop = loop
        self._thread = threading.Thread(target=self._work, name="laneway-member", daemon=True)
        self._error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    @property
    def is_committed(self) -> bool:
        """Whether everything finished was committed at the end. Any thread may ask."""
        return self._loop.status().is_committed or self._thread.ident is None  # never started: nothing to commit

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        """Commit, leave the group and end the thread, without waiting for that. Any thread may call it."""
        self._loop.request(Request.LEAVE)

    def raise_if_failed(self) -> None:
        """Raise the error that ended the thread."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            try:
                self._loop.run(lambda: self._loop.is_leaving)
                self._loop.drain()
            finally:
                self._loop.close()
        except BaseException as error:  # noqa: BLE001 - raised by the engine, on its own thread
            self._error = error


class ClusterHealth(LoopHealth):
    """The health source of a cluster_runtime: its loop, its handlers and its group membership."""

    def __init__(self, cluster_runtime: ClusterRuntime) -> None:
        super().__init__(
            cluster_runtime.worker_loop,
            cluster_runtime.workers,
            cluster_runtime.monitor,
            sources=cluster_runtime.sources,
            where=",".join(cluster_runtime.cluster.brokers),
            timeout=cluster_runtime.cluster.producer.timeout.total_seconds(),
        )
        self._runtime = cluster_runtime

    def look(self) -> Snapshot:
        status, consumer = self._runtime.worker_loop.status(), self._runtime.cluster.consumer
        member = MemberStatus(
            status.has_joined,
            self._runtime.thread.is_over,
            time.monotonic() - status.polled,
            consumer.max_poll_interval.total_seconds() * _SILENT,
            consumer.session_timeout,
        )
        return super().look()._replace(member=member)
