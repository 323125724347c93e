"""Ways to run an app on a fake Kafka: step by step, or as an engine."""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from laneway._declare.state import State
from laneway._runtime.health.monitor import HealthMonitor
from laneway._runtime.lifecycle import Lifecycle
from laneway.errors import DeclarationError, EngineError
from laneway.observe import Tally
from laneway.testing._kafka import FakeKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laneway._declare.app import App
    from laneway._declare.health import Health, Stall
    from laneway._declare.units import Duration
    from laneway.testing._fake_member import FakeMember

__all__ = ["FakeEngine", "FakeReport", "running"]

OnDataLoss = Literal["fail", "continue"]


@contextmanager
def running(
    app: App,
    *,
    kafka: FakeKafka | None = None,
    seed: int | None = None,
    on_data_loss: OnDataLoss = "fail",
    members: int = 1,
    healthy: Callable[[], Any] | None = None,
) -> Iterator[FakeKafka]:
    """Run an app without a broker, without Spark and in virtual time.

    The handlers run through the same code as on the other engines. Async handlers run on an event loop that jumps
    instead of waiting, so ``await asyncio.sleep(20)`` takes no time. Sync handlers are called one at a time;
    ``time.sleep`` really sleeps, and a time limit of a sync handler is measured in real time. When the app's error
    consumer has a schedule, its runs begin in virtual time too.

    Args:
        app: whose handlers to run. Its topics and error topics are created where they are missing.
        kafka: what it runs on; a new one by default. Several apps may run on one.
        seed: mixes the order in which keys and partitions get their turn, the same way for the same seed. None is
            the plain order. With a seed the jitter of back-offs is fixed too.
        on_data_loss: what to do when records were deleted before they were read, in the words of the settings.
        members: how many members of its group run it, each as a process of its own; `FakeKafka.members` gives them.
        healthy: a health check, sync or async, called once a second of virtual time. No call is started while it
            returns false, raises an error or has not answered for five seconds.

    Example:
        >>> from laneway import App, Retry, Topic
        >>> app, orders = App("billing"), Topic("orders")
        >>> @app.handler(orders, retry=Retry(attempts=2, backoff="5s", jitter=0))
        ... def charge(record):
        ...     if record.attempt == 1:
        ...         raise ConnectionError
        >>> with running(app) as kafka:
        ...     record = kafka.produce(orders.message(b"two books", key="42"))
        ...     kafka.drain()
        ...     before = kafka.tally.handled
        ...     kafka.advance("5s")
        ...     (before, kafka.tally.handled)
        (0, 1)
    """
    kafka = FakeKafka() if kafka is None else kafka
    with _seeded(seed):
        skip_lost = _skips_lost(on_data_loss)
        if members < 1:
            raise DeclarationError(f"members={members}; an app is run by at least 1")
        found = [
            kafka.attach(
                app,
                seed=None if seed is None else seed + number,
                skip_lost=skip_lost,
                healthy=healthy,
                on_schedule=True,
            )
            for number in range(members)
        ]
        try:
            yield kafka
        finally:
            for member in found:
                kafka.detach(member)


@dataclass(slots=True)
class FakeReport:
    """What a run on a `FakeEngine` did."""

    app: str
    tally: Tally = field(default_factory=Tally)


class FakeEngine:
    """An engine that handles what there is on a `FakeKafka`, back-offs included, and returns.

    Args:
        kafka: what it runs on.
        seed: mixes the schedule, as for `running`.
        on_data_loss: as for `running`.
        within: most virtual time it may take.
        healthy: as for `running`.

    Example:
        >>> from laneway import App, Topic
        >>> app, orders, kafka = App("billing"), Topic("orders"), FakeKafka()
        >>> @app.handler(orders)
        ... def charge(record): ...
        >>> record = kafka.produce(orders.message(b"two books", key="42"))
        >>> app.run(FakeEngine(kafka)).tally.handled
        1
    """

    def __init__(
        self,
        kafka: FakeKafka,
        *,
        seed: int | None = None,
        on_data_loss: OnDataLoss = "fail",
        within: Duration = "1d",
        healthy: Callable[[], Any] | None = None,
    ) -> None:
        self._kafka = kafka
        self._seed = seed
        self._skips_lost = _skips_lost(on_data_loss)
        self._within = within
        self._healthy = healthy
        self._is_running = False
        self._member: FakeMember | None = None

    def health(self) -> Health:
        """How the last run is doing, or was at its end, by the virtual clock."""
        return HealthMonitor(Lifecycle()).health() if self._member is None else self._member.health()

    def why(self, after: Duration = "1s") -> list[Stall]:
        """What has stood still for so long in virtual time, and what it waits for."""
        return [] if self._member is None else self._member.why(after)

    @property
    def state(self) -> State:
        """Its state."""
        return State.STOPPED if self._member is None else self._member.state

    def stop(self) -> None:
        """Let `run` return when what was begun is finished, as `stop` of an engine; a handler may call it."""
        self._running_member().stop()

    def close(self) -> None:
        """As `stop`; the final state is ``closed``."""
        self._running_member().close()

    def pause(self) -> None:
        """Begin nothing until `resume`."""
        self._running_member().pause()

    def resume(self) -> None:
        """Continue after `pause`."""
        self._running_member().resume()

    def stop_listening(self) -> None:
        """Read nothing more; `run` returns when what was begun is finished, unless `start` is called before."""
        self._running_member().stop_listening()

    def start(self) -> None:
        """Read again after `stop_listening`."""
        self._running_member().start()

    def wait_for(self, state: State, timeout: float | None = None) -> bool:
        """Whether it is in a state.

        Raises:
            EngineError: it is not: nothing can be waited for while `run` has the test's thread.
        """
        del timeout
        if self.state is state:
            return True
        raise EngineError(
            "FakeEngine runs on the test's thread, so nothing happens while that waits; "
            "use running(app) and wait_for of its member"
        )

    def _running_member(self) -> FakeMember:
        if self._member is None or not self._is_running:
            raise EngineError(
                "no run is active: FakeEngine.run returns when everything is handled. Call this in a handler, "
                "or use running(app) and the same call of its member"
            )
        return self._member

    def run(self, app: App) -> FakeReport:
        """Handle everything that waits."""
        with _seeded(self._seed):
            member = self._member = self._kafka.attach(
                app, seed=self._seed, skip_lost=self._skips_lost, healthy=self._healthy
            )
            self._is_running = True
            try:
                self._kafka.finish(within=self._within)
            finally:
                self._is_running = False
                self._kafka.detach(member)
            return FakeReport(app.name, member.tally)


def _skips_lost(on_data_loss: str) -> bool:
    if on_data_loss not in ("fail", "continue"):
        raise DeclarationError(f"on_data_loss={on_data_loss!r}; use 'fail' or 'continue'")
    return on_data_loss == "continue"


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Fix the jitter, which comes from the module's own generator, and put back what was there."""
    if seed is None:
        yield
        return
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)
