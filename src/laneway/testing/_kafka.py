"""FakeKafka: topics in memory, faults on demand, and apps that run on them in virtual time."""

from __future__ import annotations

import random
import weakref
from typing import TYPE_CHECKING, Any

from laneway._declare.error_consumer import ErrorRuns
from laneway._declare.state import State
from laneway._declare.units import as_duration
from laneway.errors import DeclarationError, EngineError
from laneway.observe import Tally
from laneway.testing._error_run import ErrorRun, ErrorSchedule
from laneway.testing._fake_member import FakeMember
from laneway.testing._fake_topics import FakeTopics
from laneway.testing._group import FakeGroup
from laneway.testing._producer import FakeProducer
from laneway.testing._virtual_time import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laneway._declare.app import App
    from laneway._declare.interceptors import Interceptor
    from laneway._declare.record import Topic
    from laneway._declare.units import Duration
    from laneway.settings import Settings
    from laneway.testing._virtual_time import FakeClock

__all__ = ["FakeKafka"]

_WAITS = "some calls wait for something else than time, so they never end by themselves"


class FakeKafka(FakeTopics):
    """A Kafka in memory. Nothing is sent anywhere, and time passes only when `drain` or `advance` lets it.

    Not thread-safe: the test's thread owns it.

    Args:
        partitions: of topics that are not created on purpose.
        clock: virtual time; a new one by default.

    Example:
        >>> from laneway import Topic
        >>> kafka = FakeKafka()
        >>> orders = Topic("orders")
        >>> kafka.produce(orders.message(b"two books", key="42")).offset
        0
        >>> [record.value for record in kafka.records(orders)]
        [b'two books']
    """

    def __init__(self, *, partitions: int = 4, clock: FakeClock | None = None) -> None:
        super().__init__(partitions, clock)
        self._members: list[FakeMember] = []
        self._groups: dict[str, FakeGroup] = {}
        self._schedules: dict[int, ErrorSchedule] = {}
        self.error_runs = ErrorRuns()
        """What runs over error topics did, manual ones and those on a schedule."""
        self._loop: VirtualLoop | None = None
        self._is_at_work = False
        self._tally = Tally()

    def producer(
        self,
        settings: Settings | None = None,
        *,
        topics: Iterable[Topic[Any]] = (),
        interceptors: Iterable[Interceptor] = (),
        transactional_id: str = "",
    ) -> FakeProducer:
        """A `Producer` whose messages are written here; the arguments are those of `Producer`."""
        return FakeProducer(self, settings, topics=topics, interceptors=interceptors, transactional_id=transactional_id)

    def members(self, app: str | App) -> list[FakeMember]:
        """The members of an app's group that run on this Kafka, in the order in which they joined."""
        name = app if isinstance(app, str) else app.name
        return [member for member in self._members if member.app.name == name]

    def rebalance(self, app: str | App) -> None:
        """Let each partition of an app go to the next member; where there is one member, it gets its own back.

        It takes effect during the next `drain` or `advance`: what was begun of a partition is finished and committed
        before its next owner reads it.
        """
        self.group(app if isinstance(app, str) else app.name).rotate()
        self.wake()

    def crash(self) -> None:
        """Kill the apps: what is in flight is forgotten, and at the next `drain` uncommitted records run again.

        Messages that were written stay written. Calls under way are cancelled, because a test's process goes on;
        whatever they still return or raise has no effect. To kill one member of several, see `FakeMember.crash`.
        """
        for member in list(self._members):
            member.kill()
            if isinstance(member, ErrorRun):
                self._forget(member)

    def drain(self, *, within: Duration = "1h") -> None:
        """Run until no handler is at work and none can begin before time moves.

        Time moves only while a call of a handler waits for it, as in ``await asyncio.sleep(20)``. What waits for a
        back-off or for a topic that cannot be written stays; `advance` is for that. A call that waits for
        something else than time, such as an `asyncio.Event` of the test, is left waiting.

        Args:
            within: most virtual time that handlers may take.

        Raises:
            EngineError: handlers were still at work after that time.
            DataLossError: records were deleted before they were read.
        """
        seconds = as_duration(within).total_seconds()
        self._run(lambda loop: loop.run_while(lambda: any(member.is_busy for member in self._members), seconds))

    def advance(self, duration: Duration) -> None:
        """Let virtual time pass, and run everything that falls due meanwhile."""
        seconds = as_duration(duration).total_seconds()
        self._run(lambda loop: loop.run_due(seconds))

    def finish(self, *, within: Duration = "1d") -> None:
        """Run until every record has reached its end, letting time pass for back-offs too.

        Raises:
            EngineError: some had not after *within*.
        """
        seconds = as_duration(within).total_seconds()
        try:
            self._run(lambda loop: loop.run_while(lambda: not self._is_done, seconds))
        except EngineError:
            self._raise_if_paused()
            raise
        self._raise_if_paused()
        if not self._is_done:
            raise EngineError(_WAITS)

    def run_errors(self, app: App, *, seed: int | None = None, within: Duration = "1d") -> Tally:
        """Run once over the error topics of an app, as its `ErrorConsumer` says, and give back what was done.

        The app need not run. Back-offs are waited for.

        Args:
            app: whose parked records to take up.
            seed: mixes the schedule, as for `running`.
            within: most virtual time it may take.

        Raises:
            EngineError: a run on a schedule is under way, or it had not ended after *within*.
        """
        if self._error_run_of(app) is not None:
            raise EngineError(f"a run over the error topics of app {app.name!r} is under way; let it end first")
        seconds = as_duration(within).total_seconds()
        run = self._attached_run(app, None if seed is None else random.Random(seed))  # noqa: S311 - as below
        try:
            self._run(lambda loop: loop.run_while(lambda: not run.is_done, seconds))
            if not run.is_done:
                raise EngineError(_WAITS)
        finally:
            self.detach(run)
            self.error_runs.tally.add(run.tally)
        self.error_runs.runs += 1
        return run.tally

    async def run_scheduled(self, app: App, rng: random.Random | None) -> None:
        """Run over the error topics of an app that runs, unless a run is under way; its schedule calls it."""
        if self._error_run_of(app) is not None:
            self.error_runs.left_out += 1
            return
        run = self._attached_run(app, rng)
        run.join()
        run.begin_batch()
        while not run.is_done and run.failure is None:
            if self.is_paused(app):
                run.stop()  # the next run continues from there
            run.moved.clear()
            await run.moved.wait()
            if run not in self._members:
                return
        self.error_runs.runs += run.failure is None and not run.has_left
        self.error_runs.failed += run.failure is not None
        run.end_batch()
        self.detach(run)
        self.error_runs.tally.add(run.tally)

    def _attached_run(self, app: App, rng: random.Random | None) -> ErrorRun:
        is_alone = all(member.app is not app for member in self._members)
        run = ErrorRun(app, self, rng=rng, hooks=is_alone)
        self._members.append(run)
        return run

    def _error_run_of(self, app: App) -> ErrorRun | None:
        runs = (member for member in self._members if isinstance(member, ErrorRun))
        return next((run for run in runs if run.of == app.name), None)

    @property
    def _is_done(self) -> bool:
        return all(member.is_done for member in self._members)

    @property
    def tally(self) -> Tally:
        """What the apps that run on it did so far."""
        total = Tally()
        total.add(self._tally)
        for member in self._members:
            total.add(member.tally)
        return total

    @property
    def loop(self) -> VirtualLoop:
        """Where the handlers of all apps run."""
        if self._loop is None:
            self._loop = VirtualLoop(self.clock)
        return self._loop

    def is_paused(self, app: App) -> bool:
        """Whether a member of an app is paused."""
        return any(member.state in (State.PAUSING, State.PAUSED) for member in self.members(app))

    def attach(
        self,
        app: App,
        *,
        seed: int | None,
        skip_lost: bool,
        healthy: Callable[[], Any] | None = None,
        on_schedule: bool = False,
    ) -> FakeMember:
        """Let an app run on this Kafka; *on_schedule* says whether runs over its error topics begin by themselves."""
        if not app.routes:
            raise DeclarationError(f"app {app.name!r} has no handlers; declare one with @app.handler(topic)")
        rng = None if seed is None else random.Random(seed)  # noqa: S311 - a schedule, not a secret
        member = FakeMember(app, self, rng=rng, skip_lost=skip_lost, healthy=healthy)
        self._members.append(member)
        if app.engine is None or app.engine() is None:
            app.engine = weakref.ref(member)
        if on_schedule and len(self.members(app)) == 1:
            self._schedules[id(member)] = ErrorSchedule(self, app, rng)
        return member

    def detach(self, member: FakeMember) -> None:
        """End an app cleanly."""
        if id(member) in self._schedules:
            self._schedules.pop(id(member)).end()
            run = self._error_run_of(member.app)
            if run is not None:
                self.detach(run)
        try:
            member.end()
        finally:
            self._forget(member)
            if not self._members and self._loop is not None:
                loop, self._loop = self._loop, None
                loop.end()

    def group(self, name: str) -> FakeGroup:
        """The consumer group of an app."""
        if name not in self._groups:
            self._groups[name] = FakeGroup(self)
        return self._groups[name]

    def run_until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Let virtual time pass until *condition* is true, but no longer than so many seconds."""
        self._run(lambda loop: loop.run_due(seconds, condition))

    def wake(self) -> None:
        """Let all members look for something to do."""
        for member in self._members:
            member.wake()

    def _forget(self, member: FakeMember) -> None:
        self._tally.add(member.tally)
        self._members.remove(member)
        if member.app.engine is not None and member.app.engine() is member:
            member.app.engine = None

    def _run(self, step: Callable[[VirtualLoop], None]) -> None:
        if self._loop is None:
            raise EngineError("no app runs on this FakeKafka; use `with running(app) as kafka:`")
        if self._is_at_work:
            raise EngineError("a handler or subscriber cannot let virtual time pass; only the test itself can")
        self._is_at_work = True
        try:
            self._work(self._loop, step)
        finally:
            self._is_at_work = False

    def _work(self, loop: VirtualLoop, step: Callable[[VirtualLoop], None]) -> None:
        try:
            for member in self._members:
                member.join()
                member.begin_batch()
                member.wake()
            step(loop)
            for member in self._members:
                member.raise_if_failed()
                if member.has_left:
                    member.end()
        finally:
            for member in self._members:
                member.commit()
        for member in self._members:
            member.end_batch()

    def _raise_if_paused(self) -> None:
        for member in self._members:
            if not member.is_done and member.state in (State.PAUSING, State.PAUSED):
                detail = member.life.detail or "call resume() on it"
                raise EngineError(f"a member of app {member.app.name!r} is paused, so its records wait: {detail}")

    def _woken(self, topic: str) -> None:
        del topic
        self.wake()
