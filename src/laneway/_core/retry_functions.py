"""One function for all steps of a handler, where others stand in for it on some."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from laneway._declare.handler import is_coroutine_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laneway._declare.handler import HandlerSpec

__all__ = ["AsyncStepFunction", "StepFunction", "on_all_steps"]


def on_all_steps(spec: HandlerSpec, app: str, *, has_threads: bool = True) -> HandlerSpec:
    """The handler with a function that calls the one which stands in on the step of a record.

    Args:
        spec: the handler.
        app: the app's name.
        has_threads: whether plain functions beside async ones run on threads.
    """
    if not spec.step_functions:
        return spec
    functions = {spec.retry_topic_of(app, step): function for step, function in spec.step_functions.items()}
    if any(map(is_coroutine_function, (spec.function, *functions.values()))):
        joint: StepFunction = AsyncStepFunction(spec.function, functions, spec.lanes if has_threads else 0)
    else:
        joint = StepFunction(spec.function, functions)
    return replace(spec, function=joint, step_functions={})


class StepFunction:
    """Calls a handler, or the function that stands in for it on the retry topic that its records come from.

    A class of its own, so that it can be pickled for a handler with processes.

    Args:
        function: the handler.
        by_topic: retry topic to the function that stands in.
    """

    def __init__(self, function: Callable[..., Any], by_topic: Mapping[str, Callable[..., Any]]) -> None:
        self._function = function
        self._by_topic = by_topic

    def __call__(self, records: Any, *more: Any) -> Any:
        """Call it with a record, a batch or a table, all of which is of one topic."""
        return self._chosen(records)(records, *more)

    def _chosen(self, records: Any) -> Callable[..., Any]:
        topic = getattr(records, "topic", None)
        if topic is None:
            topic = records.column("topic")[0].as_py() if hasattr(records, "column") else records.records[0].topic
        return self._by_topic.get(topic, self._function)


class AsyncStepFunction(StepFunction):
    """The same when one of the functions is async.

    Args:
        function: the handler.
        by_topic: retry topic to the function that stands in.
        threads: how many threads the plain ones among them have; with none they run on the event loop.
    """

    def __init__(self, function: Callable[..., Any], by_topic: Mapping[str, Callable[..., Any]], threads: int) -> None:
        super().__init__(function, by_topic)
        self._pool = ThreadPoolExecutor(threads, "laneway-step") if threads else None

    async def __call__(self, records: Any, *more: Any) -> Any:
        """Await it."""
        function = self._chosen(records)
        if is_coroutine_function(function):
            return await function(records, *more)
        if self._pool is None:
            return function(records, *more)
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, records, *more)
