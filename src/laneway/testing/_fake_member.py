"""FakeMember: one process of an app on a fake Kafka. It runs the worker loop of the other engines, in virtual time."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from laneway._declare.handler import check_together
from laneway._declare.state import State
from laneway._declare.units import as_duration
from laneway._runtime.controls import PauseControl
from laneway._runtime.health.monitor import HealthMonitor
from laneway._runtime.health.snapshot import LoopHealth
from laneway._runtime.lifecycle import Lifecycle
from laneway._runtime.topics import ReadPlan, feeds_of
from laneway._runtime.worker_loop import Request
from laneway.observe import Tally
from laneway.testing._fake_loop import FakeEvents, fake_loop

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from laneway._declare.app import App
    from laneway._declare.health import Health, Stall
    from laneway._declare.units import Duration
    from laneway._kafka import Place
    from laneway._runtime.worker_loop import WorkerLoop
    from laneway.testing._clients import FakeMonitor
    from laneway.testing._consumer import FakeConsumer
    from laneway.testing._kafka import FakeKafka
    from laneway.testing._loop import VirtualLoop
    from laneway.testing._worker import VirtualWorker

__all__ = ["FakeMember"]

_COMMIT = 0.25  # seconds between commits, as of the loop
_TICK = 1e-6  # seconds at least between two rounds in which nothing is read
_HOLD = 0.5  # seconds without room before the loop pauses partitions
_PATIENCE = 60.0  # seconds for answers, which come at once here
BUDGET = 60.0
"""Seconds that giving partitions back may take; calls that last longer run again at the next owner."""


class FakeMember:
    """One member of an app's group. `FakeKafka.members` gives those of an app.

    Args:
        app: whose handlers to run.
        kafka: what they read and write.
        loop: where they run.
        rng: mixes the schedule; None for the plain order.
        skip_lost: go on when records were deleted before they were read.
        limits: where to end in each partition, whatever is written there meanwhile; None for no end.
    """

    def __init__(
        self,
        app: App,
        kafka: FakeKafka,
        loop: VirtualLoop,
        *,
        rng: random.Random | None,
        skip_lost: bool,
        limits: Mapping[Place, int] | None = None,
    ) -> None:
        check_together(app.name, app.routes)
        self.app = app
        self._kafka = kafka
        self._virtual = loop
        self._rng = rng
        self._skip_lost = skip_lost
        self._limits = limits
        self._past = Tally()
        self._events = FakeEvents(app)
        self._changed = asyncio.Event()
        self.moved = asyncio.Event()
        """Set after each round of its loop, and at its end."""
        self._loop: WorkerLoop | None
        self._consumer: FakeConsumer
        self._monitor: FakeMonitor
        self._workers: list[VirtualWorker]
        self._task: asyncio.Task[None] | None
        self._seen: tuple[int, int]
        self._finished: int
        self._dirty_since: float | None
        self._is_dead = False
        """Whether it was killed by itself or has left, and so is not started again by `drain`."""
        self._is_leaving: bool
        self.has_left: bool
        """Whether it has left its group by itself; its cleanup hooks are still to be run."""
        self._topics = [
            (route.topic.name, (route.error_topic_of(app.name), *route.retry_topics_of(app.name)))
            for route in app.routes
        ]
        """Each source, and what is written beside it."""
        self._prepare_topics()
        self._forget()

    @property
    def partitions(self) -> list[Place]:
        """The partitions of its sources that it has: topic and number."""
        sources = {route.topic.name for route in self.app.routes}
        return [] if self._loop is None else sorted(place for place in self._loop.partitions if place[0] in sources)

    @property
    def state(self) -> State:
        """Its state, as of an engine."""
        return self._life.state

    def health(self) -> Health:
        """How it is doing, by the virtual clock."""
        return self._health.health()

    def why(self, after: Duration = "1s") -> list[Stall]:
        """What has stood still for so long in virtual time, and what it waits for; the longest first."""
        return self._health.why(as_duration(after).total_seconds())

    def pause(self) -> None:
        """Begin nothing until `resume`, as `pause` of an engine."""
        self._pause.request(on=True)
        self.wake()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._pause.request(on=False)
        self.wake()

    def crash(self) -> None:
        """Kill this process alone: what is in flight is forgotten, and other members take over its partitions.

        `restart` starts it again.
        """
        self.kill()
        self._is_dead = True
        self._kafka.wake()

    def restart(self) -> None:
        """Start it again after a crash or when it has left; it joins its group at the next `drain` or `advance`."""
        self._is_dead = False

    def expel(self) -> None:
        """Let the group give its partitions to others while it is at work on them, as after a long suspension.

        What its calls have not finished counts no more and runs at the other members. It joins again at once.
        """
        if self._loop is not None:
            self._kafka.group(self.app.name).expel(self._consumer)
            self._kafka.wake()

    def leave(self) -> None:
        """Finish what was begun, commit and leave the group, which gives its partitions to others.

        It takes effect during the next `drain` or `advance`.
        """
        if self._loop is not None:
            self._loop.request(Request.STOP)
            for worker in self._workers:
                worker.finish()
            self._is_dead = self._is_leaving = True
            self.wake()

    # --- what FakeKafka asks of it -------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a call of a handler is under way."""
        return any(worker.is_busy for worker in self._workers)

    @property
    def is_done(self) -> bool:
        """Whether every record there is of its partitions has reached its end."""
        if self._loop is None:
            return True
        if self._is_leaving:
            return self.has_left
        parts = self._loop.partitions
        ends = {place: self._end_of(place) for place in parts}
        return (
            self._kafka.group(self.app.name).is_settled(self._consumer)
            and all(parts[place].position >= end for place, end in ends.items())
            and all(worker.is_idle and not worker.has_answers for worker in self._workers)
        )

    def _end_of(self, place: Place) -> int:
        end = self._kafka[place].end
        return end if self._limits is None else min(end, self._limits.get(place, 0))

    @property
    def tally(self) -> Tally:
        """What was done so far, before crashes too."""
        total = Tally()
        total.add(self._past)
        for worker in self._workers:
            total.add(worker.processor.tally)
            total.already_copied += worker.already_copied
        total.gaps += 0 if self._loop is None else self._loop.gaps
        return total

    def wake(self) -> None:
        """Look for something to do."""
        self._changed.set()

    def start(self) -> None:
        """Run the setup hooks and join the group, unless that is done or it was killed."""
        if self._loop is not None or self._is_dead:
            return
        self._call_all(self.app.setups)
        self._prepare_topics()
        self._open()
        for worker in self._workers:
            worker.start()
        self._kafka.group(self.app.name).join(self._consumer)
        self._task = self._virtual.create_task(self._work())
        self._life.enter(State.CONSUMING)

    def begin_batch(self) -> None:
        """The test lets the app work."""
        self._events.reporter.flush(is_new=True)

    def end_batch(self) -> None:
        """The app has done what it can for now."""
        found: dict[str, Tally] = {}
        for worker in self._workers:
            found.setdefault(worker.spec.topic.name, Tally()).add(worker.news())
        for topic, tally in found.items():
            if tally.read or tally.finished or tally.retried:
                self._events.reporter.batch(topic, tally)

    def commit(self) -> None:
        """Commit what is finished."""
        if self._loop is not None and not self._has_failed:
            self._loop.commit()

    def raise_if_failed(self) -> None:
        """Raise what has ended the loop or a handler's run, if anything has."""
        for worker in self._workers:
            if worker.error is not None:
                raise worker.error
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    def kill(self) -> None:
        """Lose everything that is in flight, as a killed process does."""
        self._past = self.tally
        for worker in self._workers:
            worker.abandon()
        if self._loop is not None:
            self._kafka.group(self.app.name).forget(self._consumer)
        if self._task is not None:
            self._task.cancel()
        self._forget()
        self.moved.set()

    def end(self) -> None:
        """End now: calls under way are cancelled, what is finished is committed, and the group is left."""
        if self._loop is None:
            return
        loop, life = self._loop, self._life
        for worker in self._workers:
            worker.abandon()
        try:
            if not (self._has_failed or self.has_left):
                loop.close()
        finally:
            self.kill()
            self._kafka.wake()
            self._call_all(self.app.cleanups)
            life.enter(State.STOPPED)

    def _forget(self) -> None:
        """What a new process knows."""
        self._loop, self._task, self._workers = None, None, []
        self._is_leaving = self.has_left = False
        self._life = Lifecycle(self._events if self._limits is None else None)
        self._health = HealthMonitor(self._life, self._kafka.clock)
        self._pause = PauseControl(self._life)
        self._seen, self._finished, self._dirty_since = (0, 0), 0, None

    # --- the loop ------------------------------------------------------------------------------------------------

    def _prepare_topics(self) -> None:
        for source, names in self._topics:
            count = len(self._kafka.ensure(source).logs)
            for name in names:
                if len(self._kafka.ensure(name, count).logs) < count:
                    self._kafka.grow(name, count)

    def _open(self) -> None:
        name, routes = self.app.name, self.app.routes
        sources = dict.fromkeys(route.topic.name for route in routes)
        feeds = {topic: feeds_of(name, [each for each in routes if each.topic.name == topic]) for topic in sources}
        plan = ReadPlan.of(feeds, skip_lost=self._skip_lost, limits=self._limits, budget=BUDGET, patience=_PATIENCE)
        self._loop, self._consumer, self._monitor, self._workers = fake_loop(
            self.app, plan, self._kafka, self._virtual, rng=self._rng, listener=self._events, progress=self._changed
        )
        monitor: Any = self._monitor  # as far as it is asked
        watched = LoopHealth(
            self._loop, self._workers, monitor, sources=plan.topics, where="memory", clock=self._kafka.clock
        )
        self._health.watch([watched], None)
        self._pause.watch([_Paused(self, self._loop)], None)
        self._loop.begin()

    async def _work(self) -> None:
        while self._loop is not None and not self.has_left:
            self._changed.clear()
            try:
                wait = self._round(self._loop)
            finally:
                self.moved.set()
            if wait == 0.0:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _round(self, loop: WorkerLoop) -> float | None:
        """Take part in the group, read what there is; gives how long to wait if nothing happens meanwhile."""
        consumer, clock, epoch = self._consumer, self._kafka.clock, self._consumer.epoch
        if self._is_leaving and all(worker.is_over for worker in self._workers):
            loop.close()
            self._kafka.group(self.app.name).forget(consumer)
            self._kafka.wake()
            self.has_left = True
            return None
        self._prepare_topics()
        may_read = self._kafka.group(self.app.name).attend(consumer)
        wait = [max(_TICK, consumer.deadline - clock.monotonic())] if consumer.releasing else []
        if may_read:
            wait = self._read(loop)
        if consumer.epoch != epoch:
            self._kafka.wake()
        self._pause.apply()
        seen = (loop.partitions.spanned, sum(worker.processor.tally.finished for worker in self._workers))
        if seen != self._seen:
            self._health.see()
            self._seen = seen
        return min(wait, default=None)

    def _read(self, loop: WorkerLoop) -> list[float]:
        now, before = self._kafka.clock.monotonic(), (loop.partitions.spanned, len(loop.partitions))
        self._monitor.look()
        loop.tend(now)
        is_full = loop.step() > 0
        self._monitor.look()  # of partitions that came inside the step
        has_read = before != (loop.partitions.spanned, len(loop.partitions)) or (
            self._consumer.has_answers and not is_full
        )
        for worker in self._workers:
            worker.dry(is_dry=not has_read)
        wait = [0.0] if has_read else [_HOLD] if is_full else []
        if self._monitor.next_due is not None:
            wait.append(self._monitor.next_due)
        finished = sum(worker.processor.tally.finished for worker in self._workers)
        if finished != self._finished:
            self._dirty_since = now if self._dirty_since is None else self._dirty_since
            if now - self._dirty_since >= _COMMIT:
                self._finished, self._dirty_since = finished, None
            else:
                wait.append(max(_TICK, self._dirty_since + _COMMIT - now))
        return wait

    @property
    def _has_failed(self) -> bool:
        return self._task is not None and self._task.done() and not self._task.cancelled() and (
            self._task.exception() is not None
        )  # fmt: skip

    def _call_all(self, hooks: tuple[Callable[[], Any], ...]) -> None:
        for hook in hooks:
            result = hook()
            if inspect.isawaitable(result):
                self._virtual.complete(result)


class _Paused:
    """What a pause holds back: the loop of a member."""

    def __init__(self, member: FakeMember, loop: WorkerLoop) -> None:
        self._member = member
        self._loop = loop

    def pause(self, *, on: bool) -> None:
        """Read nothing for now, or go on."""
        self._loop.request(Request.PAUSE if on else Request.RESUME)
        self._member.wake()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is read and no call runs."""
        return self._loop.status().is_holding and not self._member.is_busy
