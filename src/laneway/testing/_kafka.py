"""FakeKafka: topics in memory, faults on demand, and apps that run on them in virtual time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from laneway._units import as_duration
from laneway.errors import DeclarationError, EngineError
from laneway.instrumentation import Tally
from laneway.testing._loop import VirtualLoop
from laneway.testing._member import Member
from laneway.testing._store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway._app import App
    from laneway._units import Duration
    from laneway.testing._clock import FakeClock

__all__ = ["FakeKafka"]


class FakeKafka(Store):
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
        self._members: list[Member] = []
        self._loop: VirtualLoop | None = None
        self._tally = Tally()

    def crash(self) -> None:
        """Kill the apps: what is in flight is forgotten, and at the next `drain` uncommitted records run again.

        Messages that were written stay written. Calls under way are cancelled, because a test's process goes on;
        whatever they still return or raise has no effect.
        """
        for member in self._members:
            member.crash()

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
        self._run(lambda loop: loop.run_while(lambda: not self._is_done, seconds))
        if not self._is_done:
            raise EngineError("some calls wait for something else than time, so they never end by themselves")

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

    def attach(self, app: App, *, seed: int | None, skip_lost: bool) -> Member:
        """Let an app run on this Kafka."""
        if not app.routes:
            raise DeclarationError(f"app {app.name!r} has no handlers; declare one with @app.handler(topic)")
        if self._loop is None:
            self._loop = VirtualLoop(self.clock)
        rng = None if seed is None else random.Random(seed)  # noqa: S311 - a schedule, not a secret
        member = Member(app, self, self._loop, rng=rng, skip_lost=skip_lost)
        self._members.append(member)
        return member

    def detach(self, member: Member) -> None:
        """End an app in good order."""
        try:
            member.end()
        finally:
            self._tally.add(member.tally)
            self._members.remove(member)
            if not self._members and self._loop is not None:
                loop, self._loop = self._loop, None
                loop.end()

    def _run(self, step: Callable[[VirtualLoop], None]) -> None:
        if self._loop is None:
            raise EngineError("no app runs on this FakeKafka; use `with running(app) as kafka:`")
        try:
            for member in self._members:
                member.start()
                member.wake()
            step(self._loop)
            for member in self._members:
                member.raise_if_failed()
        finally:
            for member in self._members:
                member.commit()

    def _woken(self, topic: str) -> None:
        for member in self._members:
            member.wake(topic)
