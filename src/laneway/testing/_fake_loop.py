"""FakeLoop: the worker loop of one member on a fake Kafka, with its handlers, and when it has to run again."""

from __future__ import annotations

import asyncio
import inspect
import math
from typing import TYPE_CHECKING, Any

from laneway._runtime.group_loop import LoopClients, group_loop
from laneway._runtime.health.check import CheckAnswer
from laneway._runtime.health.snapshot import LoopHealth
from laneway._runtime.lease import Lease
from laneway._runtime.partition import Partitions
from laneway._runtime.report import Reporter, RunReport
from laneway._runtime.retry_source import RetrySource
from laneway._runtime.worker_loop import Request
from laneway.observe import Tally
from laneway.testing._clients import FakeAdmin, FakeMonitor, FakeReader, FakeRecovery, FakeSender
from laneway.testing._consumer import FakeConsumer
from laneway.testing._worker import VirtualWorker

if TYPE_CHECKING:
    import random

    from laneway._declare.app import App
    from laneway._runtime.topics import ReadPlan
    from laneway.observe import Event, Listener
    from laneway.testing._fake_topics import FakeTopics
    from laneway.testing._virtual_time import FakeClock, VirtualLoop

__all__ = ["FakeEvents", "FakeLoop", "VirtualCheck"]

_COMMIT = 0.25  # seconds between commits, as of the loop
_TICK = 1e-6  # seconds at least between two rounds in which nothing is read
_HOLD = 0.5  # seconds without room before the loop pauses partitions


class FakeLoop:
    """A worker loop and its handlers, at work. `FakeMember` calls `read` when there may be something to do.

    Args:
        app: whose handlers.
        plan: what is read.
        kafka: where.
        virtual: where the handlers run.
        rng: mixes the schedule; None for the plain order.
        listener: hears of each event.
        changed: set whenever something may have been finished.
    """

    def __init__(
        self,
        app: App,
        plan: ReadPlan,
        kafka: FakeTopics,
        virtual: VirtualLoop,
        *,
        rng: random.Random | None,
        listener: Listener,
        changed: asyncio.Event,
    ) -> None:
        self._clock = kafka.clock
        self._changed = changed
        self.workers = [
            VirtualWorker(
                route, app.name, sender=FakeSender(kafka), loop=virtual, listener=listener, rng=rng, progress=changed
            )
            for route in app.routes
        ]
        by_topic: dict[str, list[VirtualWorker]] = {}
        delays: dict[str, float] = {}
        for worker in self.workers:
            for step in worker.processor.steps:
                topic = step.spec.topic.name
                by_topic.setdefault(topic, []).append(worker)
                if topic in plan.beside:
                    delays[topic] = step.spec.delay.total_seconds()
        owned, clock = Partitions(), _LoopClock(kafka.clock)
        self._monitor = FakeMonitor(kafka, owned, delays)
        monitor: Any = self._monitor  # as far as it is asked
        self.consumer = FakeConsumer(kafka, clock=clock, committed=kafka.offsets.setdefault(app.name, {}), rng=rng)
        readers: Any = {topic: FakeReader(kafka, skip_lost=plan.skip_lost, rng=rng) for topic in plan.beside}
        admin: Any = FakeAdmin(kafka)
        clients = LoopClients(
            source=self.consumer,
            commits=self.consumer,
            retry_source=RetrySource(plan.beside, owned, {}, skip_lost=plan.skip_lost, readers=readers),
            recovery=FakeRecovery(app.name, self.workers, kafka),
            monitor=monitor,
            admin=admin,
            lease=Lease(math.inf),
            listener=listener,
            clock=clock,
        )
        self.loop = group_loop(plan, clients, by_topic, owned)
        self.health = LoopHealth(
            self.loop, self.workers, monitor, sources=plan.topics, where="memory", clock=kafka.clock
        )
        self._finished = 0
        self._dirty_since: float | None = None
        self.loop.begin()
        for worker in self.workers:
            worker.start()

    def pause(self, *, on: bool) -> None:
        """Read nothing for now, or continue."""
        self.loop.request(Request.PAUSE if on else Request.RESUME)
        self._changed.set()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is read and no call runs."""
        return self.loop.status().is_holding and not self.is_busy

    @property
    def is_busy(self) -> bool:
        """Whether a call of a handler runs."""
        return any(worker.is_busy for worker in self.workers)

    @property
    def is_idle(self) -> bool:
        """Whether no handler holds a record."""
        return all(worker.is_idle and not worker.has_answers for worker in self.workers)

    @property
    def is_over(self) -> bool:
        """Whether everything that was begun before `finish` is finished."""
        return all(worker.is_over for worker in self.workers)

    @property
    def progress(self) -> tuple[int, int]:
        """How many offsets were read, and how many records are finished."""
        return self.loop.partitions.spanned, sum(worker.processor.tally.finished for worker in self.workers)

    def tally(self) -> Tally:
        """What was done so far."""
        total = Tally()
        for worker in self.workers:
            total.add(worker.processor.tally)
            total.already_copied += worker.already_copied
        total.gaps += self.loop.gaps
        return total

    def news(self) -> dict[str, Tally]:
        """What was done since the last call, by topic."""
        found: dict[str, Tally] = {}
        for worker in self.workers:
            found.setdefault(worker.spec.topic.name, Tally()).add(worker.news())
        return found

    def finish(self) -> None:
        """Read nothing more, and finish what was begun."""
        self.loop.request(Request.STOP)
        for worker in self.workers:
            worker.finish()

    def abandon(self) -> None:
        """Forget what is in flight, as a killed process does."""
        for worker in self.workers:
            worker.abandon()

    def read(self) -> list[float]:
        """Read what there is; gives the seconds after which it has to be called again, the least of them counts."""
        now, before = self._clock.monotonic(), self._extent
        self._monitor.look()
        self.loop.tend(now)
        is_full = self.loop.step() > 0
        self._monitor.look()  # of partitions that came inside the step
        has_read = before != self._extent or (self.consumer.has_answers and not is_full)
        for worker in self.workers:
            worker.dry(is_dry=not has_read)
        wait = [0.0] if has_read else [_HOLD] if is_full else []
        if self._monitor.next_due is not None:
            wait.append(self._monitor.next_due)
        finished = self.progress[1]
        if finished != self._finished:
            self._dirty_since = now if self._dirty_since is None else self._dirty_since
            if now - self._dirty_since >= _COMMIT:
                self._finished, self._dirty_since = finished, None
            else:
                wait.append(max(_TICK, self._dirty_since + _COMMIT - now))
        return wait

    @property
    def _extent(self) -> tuple[int, int]:
        return self.loop.partitions.spanned, len(self.loop.partitions)

    def until_deadline(self) -> float:
        """Seconds that giving partitions back may still take."""
        return max(_TICK, self.consumer.deadline - self._clock.monotonic())


class _LoopClock:
    """Virtual time for a loop that is driven step by step: it never waits inside a step."""

    def __init__(self, clock: FakeClock) -> None:
        self.monotonic = clock.monotonic
        self.wall = clock.wall

    def sleep(self, seconds: float) -> None:
        """The loop is driven again when there is something to do."""


class VirtualCheck(CheckAnswer):
    """Calls a health check once a second of virtual time, on the virtual loop."""

    async def run(self, changed: asyncio.Event) -> None:
        """Call it until cancelled; *changed* is set after each answer."""
        while True:
            with self._asking():
                answer = self._function()
                self._take(await self._in_time(answer) if inspect.isawaitable(answer) else answer)
            changed.set()
            await asyncio.sleep(self._every)


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
