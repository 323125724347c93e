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
from laneway._runtime.lifecycle import Lifecycle
from laneway._runtime.topics import ReadPlan, feeds_of
from laneway.errors import EngineError
from laneway.observe import Tally
from laneway.testing._fake_loop import FakeEvents, FakeLoop, VirtualCheck

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from laneway._declare.app import App
    from laneway._declare.health import Health, Stall
    from laneway._declare.units import Duration
    from laneway._kafka import Place
    from laneway.testing._kafka import FakeKafka
    from laneway.testing._virtual_time import VirtualLoop

__all__ = ["FakeMember"]

_PATIENCE = 60.0  # seconds for answers, which come at once here
_BUDGET = 60.0  # seconds that giving partitions back may take; longer calls run again at the next owner


class FakeMember:
    """One member of an app's group, with the calls of an engine. `FakeKafka.members` gives those of an app.

    *limits* say where to end in each partition, whatever is written there meanwhile; None for no end.
    """

    def __init__(
        self,
        app: App,
        kafka: FakeKafka,
        *,
        rng: random.Random | None,
        skip_lost: bool,
        healthy: Callable[[], Any] | None = None,
        limits: Mapping[Place, int] | None = None,
    ) -> None:
        check_together(app.name, app.routes)
        self.app = app
        self._kafka = kafka
        self._virtual: VirtualLoop = kafka.loop
        self._rng = rng
        self._skip_lost = skip_lost
        self._healthy = healthy
        self._limits = limits
        self._past = Tally()
        self._events = FakeEvents(app)
        self._changed = asyncio.Event()
        self.moved = asyncio.Event()
        """Set after each round of its loop, and at its end."""
        self._is_dead = False
        """Whether it was killed or has left, and so is not started again by `drain`."""
        self.life: Lifecycle
        self._run: FakeLoop | None
        self._task: asyncio.Task[None] | None
        self._check_task: asyncio.Task[None] | None
        self._final: State | None
        """The state after a stop that was asked for."""
        self._forget(Lifecycle(None if limits is not None else self._events))
        self._prepare_topics()

    @property
    def partitions(self) -> list[Place]:
        """The partitions of its sources that it has: topic and number."""
        sources = {route.topic.name for route in self.app.routes}
        return [] if self._run is None else sorted(each for each in self._run.loop.partitions if each[0] in sources)

    @property
    def state(self) -> State:
        """Its state, as of an engine."""
        return self.life.state

    def health(self) -> Health:
        """How it is doing, by the virtual clock."""
        return self._health.health()

    def why(self, after: Duration = "1s") -> list[Stall]:
        """What has stood still for so long in virtual time, and what it waits for; the longest first."""
        return self._health.why(as_duration(after).total_seconds())

    def wait_for(self, state: State, timeout: float = 86_400.0) -> bool:
        """Let virtual time pass until the member enters *state*, or is in it; False after *timeout* seconds.

        Raises:
            EngineError: a handler or a subscriber calls it: time passes only when the test lets it.
        """
        before, life = self.life.count(state), self.life

        def is_so() -> bool:
            return life.state is state or life.count(state) > before

        self._kafka.run_until(is_so, timeout)
        return is_so()

    def pause(self) -> None:
        """Begin nothing until `resume`, as `pause` of an engine."""
        self._pause.request(on=True)
        self.wake()

    def resume(self) -> None:
        """Continue after `pause`."""
        self._pause.request(on=False)
        self.wake()

    def stop(self) -> None:
        """Finish what was begun, commit and leave the group, which gives its partitions to others.

        It takes effect during the next `drain` or `advance`.
        """
        self._stop(State.STOPPED)

    def close(self) -> None:
        """As `stop`; the final state is ``closed``."""
        self._stop(State.CLOSED)

    def stop_listening(self) -> None:
        """Read nothing more, finish what was begun, and stay in the group; the state becomes ``stopped``.

        `start` reads again.
        """
        self._running_loop().finish()
        self._is_listening = self._restarts = False
        self.wake()

    def start(self) -> None:
        """Read again after `stop_listening`, as soon as what was begun is finished.

        Raises:
            EngineError: it does not run.
        """
        self._running_loop()
        self._restarts = not self._is_listening
        self.wake()

    def crash(self) -> None:
        """Kill this process alone: what is in flight is forgotten, and other members take over its partitions.

        `restart` starts it again.
        """
        self.kill()
        self._is_dead = True
        self._kafka.wake()

    def restart(self) -> None:
        """Start it again after a crash or a stop; it joins its group at the next `drain` or `advance`."""
        self._is_dead = False

    def expel(self) -> None:
        """Let the group give its partitions to others while it works on them, as after a long suspension.

        What its calls have not finished does not count and runs at the other members. It joins again at once.
        """
        if self._run is not None:
            self._kafka.group(self.app.name).expel(self._run.consumer)
            self._kafka.wake()

    # --- what FakeKafka asks of it -------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a call of a handler runs."""
        return self._run is not None and self._run.is_busy

    @property
    def is_done(self) -> bool:
        """Whether every record of its partitions is finished; if it reads nothing more, what it began."""
        if self._run is None:
            return True
        if self._final is not None:
            return self.has_left
        if not self._is_listening:
            return self._run.is_over and not self._restarts
        parts = self._run.loop.partitions
        return (
            self._kafka.group(self.app.name).is_settled(self._run.consumer)
            and all(parts[place].position >= self._end_of(place) for place in parts)
            and self._run.is_idle
        )

    def _end_of(self, place: Place) -> int:
        end = self._kafka[place].end
        return end if self._limits is None else min(end, self._limits.get(place, 0))

    @property
    def tally(self) -> Tally:
        """What was done so far, before crashes too."""
        total = Tally()
        total.add(self._past)
        if self._run is not None:
            total.add(self._run.tally())
        return total

    def wake(self) -> None:
        """Look for something to do."""
        self._changed.set()

    def join(self) -> None:
        """Run the setup hooks and join the group, unless that is done or it was killed."""
        if self._run is not None or self._is_dead:
            return
        self.life.enter(State.INITIALISING)
        self._call_all(self.app.setups)
        self._open()
        self._task = self._virtual.create_task(self._work())

    def begin_batch(self) -> None:
        """The test lets the app work."""
        self._events.reporter.flush(is_new=True)

    def end_batch(self) -> None:
        """The app has done what it can for now."""
        for topic, tally in ({} if self._run is None else self._run.news()).items():
            if tally.read or tally.finished or tally.retried:
                self._events.reporter.batch(topic, tally)

    def commit(self) -> None:
        """Commit what is finished."""
        if self._run is not None and not (self._has_failed or self.has_left):
            self._run.loop.commit()

    def raise_if_failed(self) -> None:
        """Raise what has ended the loop or a handler's run, if anything has."""
        for worker in () if self._run is None else self._run.workers:
            if worker.error is not None:
                raise worker.error
        if self._has_failed and self._task is not None:
            self._task.result()

    def kill(self, life: Lifecycle | None = None) -> None:
        """Lose everything that is in flight, as a killed process does."""
        self._past = self.tally
        if self._run is not None:
            self._run.abandon()
            self._kafka.group(self.app.name).forget(self._run.consumer)
        for task in (self._task, self._check_task):
            if task is not None:
                task.cancel()
        self._forget(life or Lifecycle(None if self._limits is not None else self._events))
        self.moved.set()

    def end(self) -> None:
        """End now: calls under way are cancelled, what is finished is committed, and the group is left."""
        if self._run is None:
            return
        run, life, final = self._run, self.life, self._final or State.STOPPED
        life.enter(State.CLOSING, "closing")
        run.abandon()
        try:
            if not (self._has_failed or self.has_left):
                run.loop.close()
        finally:
            self.kill(life)
            self._kafka.wake()
            self._call_all(self.app.cleanups)
            life.enter(final)

    def _forget(self, life: Lifecycle) -> None:
        """What a new process knows."""
        self._run = self._task = self._check_task = self._final = None
        self._is_listening, self._restarts = True, False
        self.has_left = False
        """Whether it has left its group by itself; its cleanup hooks are still to be run."""
        self.life = life
        self._health = HealthMonitor(life, self._kafka.clock)
        self._pause = PauseControl(life)
        self._seen = (0, 0)

    # --- the loop ------------------------------------------------------------------------------------------------

    def _stop(self, final: State) -> None:
        self._is_dead = True
        if self._run is None:
            self.life.enter(final)
            return
        self._run.finish()
        self._final, self._is_listening = final, False
        self.wake()

    def _running_loop(self) -> FakeLoop:
        if self._run is None:
            raise EngineError("this member does not run; it starts at the first drain() or advance()")
        return self._run

    def _prepare_topics(self) -> None:
        for route in self.app.routes:
            count = len(self._kafka.ensure(route.topic.name).logs)
            for name in (route.error_topic_of(self.app.name), *route.retry_topics_of(self.app.name)):
                if len(self._kafka.ensure(name, count).logs) < count:
                    self._kafka.grow(name, count)

    def _open(self) -> None:
        """Start a loop, which joins the group."""
        self.life.enter(State.STARTING)
        self._prepare_topics()
        name, routes = self.app.name, self.app.routes
        sources = dict.fromkeys(route.topic.name for route in routes)
        feeds = {topic: feeds_of(name, [each for each in routes if each.topic.name == topic]) for topic in sources}
        plan = ReadPlan.of(feeds, skip_lost=self._skip_lost, limits=self._limits, budget=_BUDGET, patience=_PATIENCE)
        self._run = FakeLoop(
            self.app, plan, self._kafka, self._virtual, rng=self._rng, listener=self._events, changed=self._changed
        )
        check = None if self._healthy is None else VirtualCheck(self._healthy, clock=self._kafka.clock)
        if check is not None:
            self._check_task = self._virtual.create_task(check.run(self._changed))
        self._health.watch([self._run.health], check)
        self._pause.watch([self._run], check)
        self._kafka.group(name).join(self._run.consumer)
        self._is_listening, self._restarts = True, False
        self.life.enter(State.CONSUMING)

    async def _work(self) -> None:
        while self._run is not None and not self.has_left:
            self._changed.clear()
            try:
                wait = self._round(self._run)
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

    def _round(self, run: FakeLoop) -> float | None:
        """Take part in the group, read what there is; gives how long to wait if nothing happens meanwhile."""
        if self._is_listening:
            self._pause.apply()  # before anything is read
        elif self._is_stopped(run):
            return 0.0
        epoch = run.consumer.epoch
        self._prepare_topics()
        may_read = self._kafka.group(self.app.name).attend(run.consumer)
        wait = [run.until_deadline()] if run.consumer.releasing else []
        if may_read:
            wait = run.read()
        if run.consumer.epoch != epoch:
            self._kafka.wake()
        if self._is_listening:
            self._pause.apply()
        if run.progress != self._seen:
            self._health.see()
            self._seen = run.progress
        return min(wait, default=None)

    def _is_stopped(self, run: FakeLoop) -> bool:
        """Finish what was begun, then leave, start a new loop or wait for `start`; True when the loop has ended."""
        if self.life.state is not State.STOPPED:
            self.life.enter(State.STOPPING, "finishing records in flight")
        if not run.is_over:
            return False
        group = self._kafka.group(self.app.name)
        if self._final is None and not self._restarts:
            run.loop.commit()
            self.life.enter(State.STOPPED, "not reading; call start() to continue")
            return False
        run.loop.close()
        group.forget(run.consumer)
        self._kafka.wake()
        if self._final is not None:
            self.has_left = True
            return True
        self.life.enter(State.CLOSING, "closing")
        self.end_batch()
        self._past = self.tally
        run.abandon()
        if self._check_task is not None:
            self._check_task.cancel()
        self._open()
        return True

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
