"""fake_loop: the worker loop of one member on a fake Kafka, with what it reads, asks and commits with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from laneway._runtime.group_loop import LoopClients, group_loop
from laneway._runtime.lease import Lease
from laneway._runtime.partition import Partitions
from laneway._runtime.report import Reporter, RunReport
from laneway._runtime.retry_source import RetrySource
from laneway.testing._clients import FakeAdmin, FakeMonitor, FakeReader, FakeRecovery, FakeSender
from laneway.testing._consumer import FakeConsumer
from laneway.testing._worker import VirtualWorker

if TYPE_CHECKING:
    import asyncio
    import random

    from laneway._declare.app import App
    from laneway._runtime.topics import ReadPlan
    from laneway._runtime.worker_loop import WorkerLoop
    from laneway.observe import Event, Listener
    from laneway.testing._clock import FakeClock
    from laneway.testing._fake_topics import FakeTopics
    from laneway.testing._loop import VirtualLoop

__all__ = ["FakeEvents", "FakeLoop", "fake_loop"]


class FakeLoop(NamedTuple):
    """A loop that has not joined its group yet, and what belongs to it."""

    loop: WorkerLoop
    consumer: FakeConsumer
    monitor: FakeMonitor
    workers: list[VirtualWorker]


def fake_loop(
    app: App,
    plan: ReadPlan,
    kafka: FakeTopics,
    virtual: VirtualLoop,
    *,
    rng: random.Random | None,
    listener: Listener,
    progress: asyncio.Event,
) -> FakeLoop:
    """Make what runs an app's handlers in virtual time.

    Args:
        app: whose handlers.
        plan: what is read.
        kafka: where.
        virtual: where the handlers run.
        rng: mixes the schedule; None for the plain order.
        listener: hears of each event.
        progress: set whenever something may have been finished.
    """
    workers = [
        VirtualWorker(
            route, app.name, sender=FakeSender(kafka), loop=virtual, listener=listener, rng=rng, progress=progress
        )
        for route in app.routes
    ]
    by_topic: dict[str, list[VirtualWorker]] = {}
    delays: dict[str, float] = {}
    for worker in workers:
        for step in worker.processor.steps:
            topic = step.spec.topic.name
            by_topic.setdefault(topic, []).append(worker)
            if topic in plan.beside:
                delays[topic] = step.spec.delay.total_seconds()
    owned, clock = Partitions(), _LoopClock(kafka.clock)
    monitor = FakeMonitor(kafka, owned, delays)
    consumer = FakeConsumer(kafka, clock=clock, committed=kafka.offsets.setdefault(app.name, {}), rng=rng)
    readers = {topic: FakeReader(kafka, skip_lost=plan.skip_lost, rng=rng) for topic in plan.beside}
    clients = LoopClients(
        source=consumer,
        commits=consumer,
        retry_source=RetrySource(plan.beside, owned, {}, skip_lost=plan.skip_lost, readers=readers),  # type: ignore[arg-type]  # as far as it asks of them
        recovery=FakeRecovery(app.name, workers, kafka),
        monitor=monitor,  # type: ignore[arg-type]  # as above
        admin=FakeAdmin(kafka),  # type: ignore[arg-type]  # as above
        lease=Lease(math.inf),
        listener=listener,
        clock=clock,
    )
    return FakeLoop(group_loop(plan, clients, by_topic, owned), consumer, monitor, workers)


class _LoopClock:
    """Virtual time for a loop that is driven step by step: it never waits inside a step."""

    def __init__(self, clock: FakeClock) -> None:
        self.monotonic = clock.monotonic
        self.wall = clock.wall

    def sleep(self, seconds: float) -> None:
        """The loop is driven again when there is something to do."""


class FakeEvents:
    """Gives events to the subscribers of an app at once; of each kind a few of each step of the test."""

    def __init__(self, app: App) -> None:
        report = RunReport(app.name)
        self.reporter = Reporter(app, report, report.tally, None)

    def event(self, event: Event) -> None:
        """Something happened."""
        self.reporter.keep(event)
        self.reporter.flush()

    def note(self, words: str) -> None:
        """What lasts is said by `health` and `why`."""
