"""Runs over error topics on a fake Kafka: manually, or on a schedule in virtual time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from laneway._core.error_run_filter import is_new
from laneway._core.headers import parked_at
from laneway._declare.error_consumer import ErrorConsumer
from laneway._runtime.error_app import ErrorApp
from laneway.errors import LanewayError
from laneway.testing._fake_member import FakeMember

if TYPE_CHECKING:
    import asyncio
    import random

    from laneway._declare.app import App
    from laneway._kafka import Place
    from laneway.testing._kafka import FakeKafka
    from laneway.testing._loop import VirtualLoop

__all__ = ["ErrorRun", "ErrorSchedule"]


class ErrorRun(FakeMember):
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
        partitions = {route.topic.name: len(kafka.ensure(route.topic.name).logs) for route in app.routes}
        topics = {route.error_topic_of(app.name): partitions[route.topic.name] for route in app.routes}
        for topic, count in topics.items():
            kafka.ensure(topic, count)
        self.of = app.name
        errors = ErrorApp(app, partitions, hooks=hooks)
        limits = _limits(errors.name, list(topics), kafka, app.errors or ErrorConsumer())
        super().__init__(errors, kafka, loop, rng=rng, skip_lost=True, limits=limits)

    @property
    def failure(self) -> LanewayError | None:
        """What has ended it before its time."""
        try:
            self.raise_if_failed()
        except LanewayError as error:
            return error
        return None


def _limits(group: str, topics: list[str], kafka: FakeKafka, errors: ErrorConsumer) -> dict[Place, int]:
    """Where the run ends in each partition: before the first record that is new, else at the end of the log."""
    started, new = kafka.clock.wall() * 1000, errors.new / timedelta(milliseconds=1)
    limits: dict[Place, int] = {}
    for topic in topics:
        committed = kafka.committed(group, topic)
        for number, log in enumerate(kafka.ensure(topic).logs):
            waiting = log.read(committed.get(number, log.start), log.end)
            fresh = (entry for entry in waiting if is_new(parked_at(entry.as_record(topic, number)), started, new))
            first = next(fresh, None)
            limits[topic, number] = log.end if first is None else first.offset
    return limits


class ErrorSchedule:
    """Starts runs when they fall due, as long as the app runs.

    Args:
        kafka: where the app runs.
        loop: says when time has passed.
        app: which app.
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
        self._loop.create_task(self._kafka.run_scheduled(self._app, self._rng))
