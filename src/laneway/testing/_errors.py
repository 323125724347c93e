"""Runs over error topics on a fake Kafka: manually, or on a schedule in virtual time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from laneway._core.error_run_filter import is_new
from laneway._core.headers import parked_at
from laneway._runtime.error_app import ErrorApp
from laneway.errors import LanewayError
from laneway.testing._listener import Listener
from laneway.testing._member import Member

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Callable

    from laneway._declare.app import App
    from laneway.testing._kafka import FakeKafka
    from laneway.testing._loop import VirtualLoop

__all__ = ["ErrorRun", "ErrorSchedule"]


class ErrorRun(Member):
    """One run over the error topics of an app, as far as they reach at this moment.

    Args:
        app: whose error topics.
        kafka: where they are.
        loop: where it runs.
        rng: mixes the schedule; None for the plain order.
        hooks: whether the app's setup and cleanup hooks belong to it, because no other member runs the app.
    """

    def __init__(
        self, app: App, kafka: FakeKafka, loop: VirtualLoop, *, rng: random.Random | None, hooks: bool
    ) -> None:
        partitions = {}
        for route in app.routes:
            source = kafka.ensure(route.topic.name)
            partitions[route.topic.name] = len(source.logs)
            kafka.ensure(route.error_topic_of(app.name), len(source.logs))
        self.of = app.name
        errors = ErrorApp(app, partitions, hooks=hooks)
        super().__init__(errors, kafka, loop, rng=rng, skip_lost=True)
        self._listener = _OfRecords(errors)
        started, new = kafka.clock.wall() * 1000, errors.errors.new / timedelta(milliseconds=1)
        self._limits = {route.topic.name: self._limits_of(route.topic.name, started, new) for route in errors.routes}

    def end_when_done(self, ended: Callable[[Exception | None], None]) -> None:
        """Begin, and tell when it is over, with why if it failed."""

        def look() -> None:
            try:
                self.raise_if_failed()
            except LanewayError as error:
                ended(error)
            else:
                if self.is_done:
                    ended(None)

        self.start()
        self.begin_batch()
        for station in self._stations:
            station.ended = lambda: self._loop.call_soon(look)
        self.wake()
        self._loop.call_soon(look)

    def _limits_of(self, topic: str, started: float, new: float) -> dict[int, int]:
        """Where the run ends in each partition: before the first record that is new, else at the end of the log."""
        committed, limits = self._kafka.committed(self.app, topic), {}
        for number, log in enumerate(self._kafka.ensure(topic).logs):
            waiting = log.read(committed.get(number, log.start), log.end)
            fresh = (entry for entry in waiting if is_new(parked_at(entry.as_record(topic, number)), started, new))
            first = next(fresh, None)
            limits[number] = log.end if first is None else first.offset
        return limits


class ErrorSchedule:
    """Starts runs when they fall due, as long as the app runs.

    Args:
        kafka: where the app runs.
        loop: says when time has passed.
        app: which app; it has a schedule.
        rng: mixes the schedule of each run.
    """

    def __init__(self, kafka: FakeKafka, loop: VirtualLoop, app: App, rng: random.Random | None) -> None:
        self._kafka = kafka
        self._loop = loop
        self._app = app
        self._rng = rng
        self._timer: asyncio.TimerHandle | None = None
        self._arm()

    def end(self) -> None:
        """Start no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        cron = None if self._app.errors is None else self._app.errors.due
        if cron is not None:
            now = datetime.fromtimestamp(self._kafka.clock.wall(), UTC)
            self._timer = self._loop.call_later((cron.next_after(now) - now).total_seconds(), self._fire)

    def _fire(self) -> None:
        self._arm()
        self._kafka.start_errors(self._app, self._rng)


class _OfRecords(Listener):
    """Reports what happens to records, and not that the app begins or ends, for it does not."""

    def changed(self, state: str) -> None:
        del state
