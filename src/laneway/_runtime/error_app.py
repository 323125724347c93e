"""ErrorApp: an app whose handlers read the error topics on which another app parks. Engines run it as any other."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from laneway._core.error_run_filter import ErrorRunFilter
from laneway._core.headers import returned_headers
from laneway._declare.app import App
from laneway._declare.error_consumer import ErrorConsumer
from laneway._declare.interceptors import Interceptors
from laneway._declare.record import Message, Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laneway._declare.handler import HandlerSpec
    from laneway._declare.header_styles import Style
    from laneway._declare.record import Record

__all__ = ["ErrorApp"]

_tables = threading.Lock()  # lanes of several partitions call a columnar handler, which expects one table at a time


class ErrorApp(App):
    """The handlers of an app, each reading its error topic, in the group ``<app>.errors``.

    Each handler reads the whole error topic and takes its own records, because handlers differ in lanes, retries, codec
    and kind.

    Args:
        app: the app.
        partitions: partition counts of its topics: a replayed record returns to its partition if it exists.
        hooks: whether to run the app's setup and cleanup hooks.
    """

    def __init__(self, app: App, partitions: Mapping[str, int], *, hooks: bool = False) -> None:
        super().__init__(app.name)
        self.name = f"{app.name}.errors"
        self.errors: ErrorConsumer = app.errors or ErrorConsumer()
        if hooks:
            self._setup, self._cleanup = list(app.setups), list(app.cleanups)
        app._share_with(self, ())  # noqa: SLF001 - of the same family
        by_topic: dict[tuple[str | None, str], list[str]] = {}
        for route in app.routes:
            by_topic.setdefault((route.cluster, route.error_topic_of(app.name)), []).append(route.name)
        for route in app.routes:
            topic = route.error_topic_of(app.name)
            rerun = ErrorRunFilter(app.name, route.name, tuple(by_topic[route.cluster, topic]), self.errors.max_errors)
            read = _reading(route, topic, rerun)
            self._routes[route.name] = _acting(read, self.errors, partitions.get(read.source, 0))

    @property
    def routes(self) -> tuple[HandlerSpec, ...]:
        """One handler for each handler of the app, with its interceptors."""
        return tuple(self._routes.values())


def _reading(route: HandlerSpec, topic: str, rerun: ErrorRunFilter) -> HandlerSpec:
    """The handler on its error topic, one record per call. Not validated: it parks on the topic it reads, by design."""
    return replace(
        route,
        topic=replace(route.topic, name=topic),
        source=route.source or route.topic.name,
        error_topic=topic,
        rerun=rerun,
        # Its steps are behind the record; calls in place are not.
        retry=replace(route.retry, delays=(), mode="blocking"),
        step_functions={},
        delay=timedelta(0),
        size=1,
        within=timedelta(0),
        bisect=False,
    )


def _acting(route: HandlerSpec, errors: ErrorConsumer, partitions: int) -> HandlerSpec:
    """The handler with its error handler's function, or one that replays."""
    raw: Topic[Any] = Topic(route.topic.name)
    if errors.action == "replay":
        replay = _Replay(Topic(route.source), partitions, route.error_headers)
        kept = Interceptors(error=route.interceptors.error)  # replayed records must be unchanged
        return replace(
            route,
            kind="single",
            topic=raw,
            function=replay,
            interceptors=kept,
            addresses={},  # its source is a real name
            timeout=None,
            breaker=None,
            is_manual=False,
            processes=0,
        )
    function = route.error_function or route.function
    if route.kind == "columnar":
        return replace(route, kind="single", topic=raw, function=_OneRow(function))
    return replace(route, kind="batch" if route.kind == "unique" else route.kind, function=function)


@dataclass(frozen=True, slots=True)
class _Replay:
    """Sends a record back to its topic unchanged. The topic is the handler's, whatever the headers say."""

    topic: Topic[Any]
    partitions: int
    style: Style

    def __call__(self, record: Record[Any]) -> Message[Any]:
        # The same partition: another producer may partition keys differently, and a key in two partitions runs twice.
        old = None if record.origin is None else record.origin.partition
        partition = old if old is not None and old < self.partitions else None
        headers = returned_headers(record, self.style)
        return Message(self.topic, record.raw, record.key, headers, partition, record.timestamp)


@dataclass(frozen=True, slots=True)
class _OneRow:
    function: Callable[[Any], Any]

    def __call__(self, record: Record[Any]) -> None:
        from laneway._kafka.convert import table_of_records

        with _tables:
            self.function(table_of_records(record.topic, [record]))
