"""Runs over error topics on a fake Kafka: manually, or on a schedule in virtual time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from laneway._core.error_run_filter import end_of_run, next_run
from laneway._core.headers import parked_at
from laneway._declare.error_consumer import ErrorConsumer
from laneway._runtime.error_app import ErrorApp
from laneway.testing._fake_member import FakeMember

if TYPE_CHECKING:
    import random

    from laneway._declare.app import App
    from laneway._kafka import Place
    from laneway.testing._kafka import FakeKafka

__all__ = ["ErrorRun", "ErrorSchedule"]


class ErrorRun(FakeMember):
    """One run over the error topics of an app, up to their ends at this moment.

    *hooks* says whether the app's setup and cleanup hooks belong to it, because no other member runs the app.
    """

    def __init__(self, app: App, kafka: FakeKafka, *, rng: random.Random | None, hooks: bool) -> None:
        partitions = {route.topic.name: len(kafka.ensure(route.topic.name).logs) for route in app.routes}
        topics = {route.error_topic_of(app.name): partitions[route.topic.name] for route in app.routes}
        for topic, count in topics.items():
            kafka.ensure(topic, count)
        self.of = app.name
        errors = ErrorApp(app, partitions, hooks=hooks)
        limits = _limits(errors.name, list(topics), kafka, app.errors or ErrorConsumer())
        super().__init__(errors, kafka, rng=rng, skip_lost=True, limits=limits)

    @property
    def failure(self) -> Exception | None:
        """The error that ended it early, if any."""
        try:
            self.raise_if_failed()
        except Exception as error:  # noqa: BLE001 - a failed run must not end the schedule
            return error
        return None


def _limits(group: str, topics: list[str], kafka: FakeKafka, errors: ErrorConsumer) -> dict[Place, int]:
    started, within = kafka.clock.wall() * 1000, errors.new / timedelta(milliseconds=1)
    limits: dict[Place, int] = {}
    for topic in topics:
        committed = kafka.committed(group, topic)
        for number, log in enumerate(kafka.ensure(topic).logs):
            open_ = log.read(committed.get(number, log.start), log.end)
            parked = ((entry.offset, parked_at(entry.as_record(topic, number))) for entry in open_)
            limits[topic, number] = end_of_run(parked, log.end, started=started, within=within)
    return limits


class ErrorSchedule:
    """Starts an app's runs when they are due in virtual time, one after the other, until `end`."""

    def __init__(self, kafka: FakeKafka, app: App, rng: random.Random | None) -> None:
        self._kafka = kafka
        self._app = app
        self._rng = rng
        self._task = kafka.loop.create_task(self._work())

    def end(self) -> None:
        """Start no more."""
        self._task.cancel()

    async def _work(self) -> None:
        cron = None if self._app.errors is None else self._app.errors.due
        if cron is None:
            return
        due = cron.next_after(self._now())
        while True:
            await asyncio.sleep((due - self._now()).total_seconds())
            if not self._kafka.is_paused(self._app):
                await self._kafka.run_scheduled(self._app, self._rng)
            due, left_out = next_run(cron, due, self._now())
            self._kafka.error_runs.left_out += left_out

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._kafka.clock.wall(), UTC)
