"""Runs over an app's error topics in this process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from laneway._declare.units import in_words
from laneway._engines.direct.crew import Crew
from laneway._runtime.error_runs import ErrorSchedule, error_plans
from laneway.observe import Tally

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from laneway._declare.app import App
    from laneway._declare.cron import Cron
    from laneway._declare.error_consumer import ErrorRuns
    from laneway._runtime.error_runs import ErrorPlan
    from laneway.events import Event
    from laneway.settings import Settings

__all__ = ["DirectErrorSchedule", "ErrorRun"]

_LOOK = 0.02  # seconds between looks at a run
_FIRST = 3.0  # seconds that the first records may take, once the group has let us in


class ErrorRun:
    """Runs plans one after the other. When several processes do so at once, their group shares the partitions out.

    Args:
        settings: the configuration.
        loop: gives the loop that async handlers run on.
        tell: told of events; any thread calls it.
        note: told in words what is waited for; any thread calls it.
        done: called with topic and tally of what was done, now and then.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        loop: Callable[[], asyncio.AbstractEventLoop],
        tell: Callable[[Event], None],
        note: Callable[[str], None],
        done: Callable[[str, Tally], None],
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._tell = tell
        self._note = note
        self._done = done

    def run(self, plan: ErrorPlan, is_interrupted: Callable[[], bool], is_forced: Callable[[], bool]) -> bool:
        """Run a plan to its end, or until interrupted; False when what was begun was not finished and committed.

        Args:
            plan: what to run.
            is_interrupted: asked often; once it says yes, what was begun is finished and nothing more is begun.
            is_forced: asked from then on; once it says yes, nothing is waited for any more.
        """
        limits = {(plan.topic.name, partition): end for partition, end in plan.ends.items()}
        crew = Crew(
            plan.app.name,
            plan.routes,
            plan.topic.cluster,
            self._settings,
            loop=self._loop,
            tell=self._tell,
            note=self._note,
            limits=limits,
        )
        crew.start()
        try:
            self._work(crew, plan, lambda: crew.is_past(limits) or is_interrupted())
            crew.stop()
            deadline = time.monotonic() + self._settings.drain.total_seconds()
            while not (crew.is_finished or is_forced()) and time.monotonic() < deadline:
                self._look(crew, plan)
                time.sleep(_LOOK)
            is_finished = crew.is_finished
        finally:
            is_committed = crew.end(is_forced)
            self._tell_news(crew, plan)
        return is_finished and is_committed

    def _work(self, crew: Crew, plan: ErrorPlan, is_over: Callable[[], bool]) -> None:
        """Let the crew work until it is past the ends, or waits in vain: another process may hold the partitions."""
        patience = max(_FIRST, plan.idle.total_seconds())
        worked = time.monotonic()
        while not is_over():
            if self._look(crew, plan) or not crew.is_idle or not crew.worker_loop.status().has_joined:
                worked = time.monotonic()
            elif time.monotonic() - worked > patience:
                self._note(f"no record of {plan.topic.name} came for {in_words(plan.idle)}: the run is over")
                return
            time.sleep(_LOOK)

    def _look(self, crew: Crew, plan: ErrorPlan) -> bool:
        """Tell what was done; whether it was anything."""
        crew.raise_if_failed()
        return self._tell_news(crew, plan)

    def _tell_news(self, crew: Crew, plan: ErrorPlan) -> bool:
        total = Tally()
        for news in crew.news().values():
            total.add(news)
        self._done(plan.topic.name, total)
        return total.read > 0


class DirectErrorSchedule(ErrorSchedule):
    """Runs are members of a group of their own, beside that of the app.

    Args:
        app: whose error topics, as the configuration has it.
        cron: when.
        settings: the configuration.
        run: runs plans.
        note: told in words what went wrong; an empty text when that is over.
        runs: where runs are counted.
    """

    def __init__(
        self,
        app: App,
        cron: Cron,
        *,
        settings: Settings,
        run: ErrorRun,
        note: Callable[[str], None],
        runs: ErrorRuns,
    ) -> None:
        super().__init__(app, cron, note=note, runs=runs)
        self._settings = settings
        self._one = run

    def _run(self, *, refresh: bool) -> None:
        plans = error_plans(self._app, self._settings, refresh=refresh, is_stopping=self._stopping.is_set)
        self._planned(refresh=refresh)
        for plan in plans:
            if self._stopping.is_set():
                return
            if not self._one.run(plan, lambda: self._is_interrupted or self._is_ending, lambda: self._is_ending):
                return
        self._succeeded()
