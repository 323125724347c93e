"""App: collects handlers. It runs nothing itself; an engine does."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from laneway._declare.error_consumer import ErrorConsumer
from laneway._declare.extensions import Extensions
from laneway._declare.handler import (
    ERROR_PATTERN,
    RETRY_PATTERN,
    Buffer,
    HandlerSpec,
    Order,
    OrderBy,
    Oversize,
    checked,
)
from laneway._declare.header_styles import STYLES, Style
from laneway._declare.retry import Retry
from laneway._declare.units import Duration, as_duration
from laneway.errors import DeclarationError

if TYPE_CHECKING:
    from datetime import timedelta

    from laneway._declare.breaker import Breaker
    from laneway._declare.health import Stall
    from laneway._declare.ordering import Grouping
    from laneway._declare.record import Topic
    from laneway.typing import Engine, Outcome

__all__ = ["App"]

F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class App(Extensions):
    """Handlers that share one name, which is also the consumer group.

    Args:
        name: consumer group, client id and checkpoint name.
        error_topic: pattern of the error topics' names, with ``{topic}``, ``{app}`` and ``{handler}``.
        retry_topic: pattern of the retry topics' names, with ``{step}`` too.
        error_headers: header names that parked copies have in addition to laneway's own: ``spring`` for tools of Spring
            Kafka, ``connect`` for tools of Kafka Connect.
        oversize: a copy that is too large for the error topic waits (``wait``), or is written without its value
            (``reference``).
        errors: runs over parked records; by default only manual ones.

    Example:
        >>> from laneway import Topic
        >>> app = App("billing")
        >>> @app.handler(Topic("orders"), lanes=8)
        ... def charge(record): ...
        >>> [route.name for route in app.routes]
        ['charge']
    """

    def __init__(
        self,
        name: str,
        *,
        error_topic: str = ERROR_PATTERN,
        retry_topic: str = RETRY_PATTERN,
        error_headers: Style = "laneway",
        oversize: Oversize = "wait",
        errors: ErrorConsumer | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            # The name becomes a group id and part of a path, so it must not contain a path separator.
            raise DeclarationError(
                f"App({name!r}): use 1 to 200 letters, digits, '.', '_' or '-', starting with a letter or digit"
            )
        if error_headers not in STYLES:
            raise DeclarationError(f"App(error_headers={error_headers!r}): use {', '.join(map(repr, STYLES))}")
        if not isinstance(errors, ErrorConsumer | None):
            raise DeclarationError(f'App(errors={errors!r}): give ErrorConsumer(cron="*/15 * * * *")')
        super().__init__(name)
        self.errors = errors
        self._common: dict[str, Any] = {
            "error_topic": error_topic,
            "retry_topic": retry_topic,
            "error_headers": error_headers,
            "oversize": oversize,
        }
        self.engine: Callable[[], Any] | None = None
        """Returns the direct engine that runs this app in this process, if any."""
        self._setup: list[Callable[[], Any]] = []
        self._cleanup: list[Callable[[], Any]] = []

    def handler(  # noqa: PLR0913 - the options of a decorator, each by its keyword
        self,
        topic: Topic[Any],
        *,
        lanes: int = 1,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        order: Order = "key",
        order_by: OrderBy | None = None,
        strict: bool = False,
        breaker: Breaker | None = None,
        buffer: Buffer | None = None,
        delay: Duration = "0s",
        acknowledge: Literal["auto", "manual"] = "auto",
        processes: int = 0,
    ) -> Callable[[F], F]:
        """Declare a function that takes one record and returns nothing, a message, or several messages.

        The function itself is unchanged: callable, picklable, testable.

        Args:
            topic: the topic to read.
            lanes: how many keys of a partition may be handled at the same time. 1 by default, one record at a time per
                partition, because a function must be written to run concurrently. The lanes of all partitions of one
                process are a pool.
            retry: what to do when the function raises; by default the record is parked at once.
            timeout: time limit of one call. An async call is cancelled; a sync call cannot be stopped, so its record
                counts as failed when it returns, and its key waits until then.
            order: which records are handled one after the other: those of a ``key``, of a ``partition``, or ``none``.
            order_by: replaces the key for ordering: a function of the record, such as ``by_header("customer")`` or
                ``by_field("customer.id")``. Records with the same value in different partitions are not ordered.
            strict: each partition keeps its lanes; otherwise a busy one borrows those of an idle one.
            breaker: circuit breaker: when to stop calling a failing function, and how to probe it; by default none.
            buffer: limits of what may wait in memory.
            delay: handle a record only when its timestamp is this old, at most this long after it was first seen.
            acknowledge: ``manual`` passes an `Ack` as second argument: the record is finished by a call of it, and not
                when the function returns.
            processes: run the function in this many processes, for CPU-bound work. A timeout then really stops a call.
                They replace the lanes; setup hooks run in each. On direct each process imports the function, so it must
                be in a module. On Spark each Python worker has this many.
        """
        return self._declare(
            topic=topic,
            kind="single",
            lanes=lanes,
            order=order,
            order_by=order_by,
            strict=strict,
            delay=_duration(delay, "delay"),
            is_manual=_is_manual(acknowledge),
            processes=processes,
            **_common(retry, timeout, breaker, buffer),
        )

    def batch_handler(  # noqa: PLR0913 - as for `handler`
        self,
        topic: Topic[Any],
        *,
        size: int,
        within: Duration = "3s",
        lanes: int = 1,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        breaker: Breaker | None = None,
        buffer: Buffer | None = None,
        bisect: bool = False,
        processes: int = 0,
    ) -> Callable[[F], F]:
        """Declare a function that takes a `Batch` of up to *size* records, collected for at most *within*.

        A batch may hold several records of one key, in order; a key is never in two batches at once.

        Args:
            topic: the topic to read.
            size: maximum records per batch.
            within: how long a record may wait for its batch to fill. On Spark a batch also ends when all records
                of its micro-batch are read, and on the fake at the end of the topic.
            lanes: how many batches per partition may be handled at the same time.
            retry: what to do when the function raises; the whole batch is retried or parked.
            timeout: time limit of one call, as for `handler`.
            breaker: circuit breaker, as for `handler`.
            buffer: limits of what may wait in memory.
            bisect: when the function raises, call it again with each half, down to single records. Records that fail
                alone are retried or parked, the others are finished. After a failed record, later ones of its key wait
                for its outcome. Calls are repeated, so the function must be idempotent. One bad record among *n* costs
                at most 2·log2(*n*) extra calls, *n* bad ones 2·*n*. If no record can succeed, raise `RetryAfter`:
                it applies to the whole batch, like `Reject` and `Skip`, and is not bisected.
            processes: run the function in this many processes, as for `handler`.
        """
        return self._declare(
            topic=topic,
            kind="batch",
            lanes=lanes,
            size=size,
            within=_duration(within, "within"),
            bisect=bisect,
            processes=processes,
            **_common(retry, timeout, breaker, buffer),
        )

    def custom_handler(  # noqa: PLR0913 - as for `handler`
        self,
        topic: Topic[Any],
        *,
        kind: Grouping,
        size: int,
        within: Duration = "3s",
        lanes: int = 1,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        breaker: Breaker | None = None,
        buffer: Buffer | None = None,
        bisect: bool = False,
        processes: int = 0,
    ) -> Callable[[F], F]:
        """Declare a function that takes a `Batch` of records that belong together, as *kind* groups them.

        Records are collected as for `batch_handler`. Then *kind* splits them into groups, and the function is called
        with one group after the other. Each group has its own outcome. Records of one key may be in several groups:
        they run in the order of the groups, but after a failure later ones of the key wait for its outcome.

        Args:
            topic: the topic to read.
            kind: `GroupedBy` or another object with a method ``split(records)``; see `Grouping`. If it loses, repeats
                or invents a record, all collected records fail.
            size: maximum records collected at once.
            within: how long a record may wait for the others, as for `batch_handler`.
            lanes: how many collections per partition may be handled at the same time.
            retry: what to do when the function raises; the group is retried or parked.
            timeout: time limit of one call, as for `handler`.
            breaker: circuit breaker, as for `handler`.
            buffer: limits of what may wait in memory.
            bisect: find the records that make a group fail, as for `batch_handler`.
            processes: run the function in this many processes, as for `handler`.
        """
        return self._declare(
            topic=topic,
            kind="custom",
            grouping=kind,
            lanes=lanes,
            size=size,
            within=_duration(within, "within"),
            bisect=bisect,
            processes=processes,
            **_common(retry, timeout, breaker, buffer),
        )

    def unique_handler(  # noqa: PLR0913 - as for `handler`
        self,
        topic: Topic[Any],
        *,
        size: int,
        within: Duration = "3s",
        lanes: int = 1,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        breaker: Breaker | None = None,
        buffer: Buffer | None = None,
        bisect: bool = False,
        processes: int = 0,
    ) -> Callable[[F], F]:
        """Declare a function that takes a `Batch` with only the newest collected record of each key.

        Older records of a key are superseded: they never reach the function, and are finished when the newest one is. A
        tombstone may be the newest. Records without a key supersede nothing.

        Args:
            topic: the topic to read.
            size: maximum records collected for a call; the function gets one per key.
            within: how long a record may wait for the others, as for `batch_handler`.
            lanes: how many calls per partition may run at the same time.
            retry: what to do when the function raises; a newer record supersedes the failed one.
            timeout: time limit of one call, as for `handler`.
            breaker: circuit breaker, as for `handler`.
            buffer: limits of what may wait in memory.
            bisect: find the records that make a call fail, as for `batch_handler`.
            processes: run the function in this many processes, as for `handler`.
        """
        return self._declare(
            topic=topic,
            kind="unique",
            lanes=lanes,
            size=size,
            within=_duration(within, "within"),
            bisect=bisect,
            processes=processes,
            **_common(retry, timeout, breaker, buffer),
        )

    def columnar_handler(
        self,
        topic: Topic[Any],
        *,
        size: int = 50_000,
        retry: Retry | None = None,
        breaker: Breaker | None = None,
        buffer: Buffer | None = None,
    ) -> Callable[[F], F]:
        """Declare a function that takes a `pyarrow.Table` of up to *size* records.

        Columns: topic, partition, offset, timestamp, key, value, headers. Tables of one task come one after the
        other, so the order is kept. No Python object is created per record beyond the Kafka client's own.
        """
        return self._declare(
            topic=topic,
            kind="columnar",
            size=size,
            retry=retry or Retry(),
            breaker=breaker,
            buffer=buffer or Buffer(records=max(size, 1)),
        )

    def setup(self, function: F) -> F:
        """Run *function* once in each worker process before its first record, to open a pool or load a model."""
        self._setup.append(function)
        return function

    def cleanup(self, function: F) -> F:
        """Run *function* when a worker process ends cleanly."""
        self._cleanup.append(function)
        return function

    @property
    def setups(self) -> tuple[Callable[[], Any], ...]:
        return tuple(self._setup)

    @property
    def cleanups(self) -> tuple[Callable[[], Any], ...]:
        return tuple(self._cleanup)

    def configured(
        self, changes: dict[str, dict[str, Any]], topics: dict[str, str], without: Collection[str] = ()
    ) -> App:
        """A copy of this app with handler fields and topic names replaced, for a configuration.

        Args:
            changes: handler name to the fields to replace.
            topics: name in code to real name.
            without: handlers that are disabled.
        """
        unknown = sorted(set(changes) - set(self._routes))
        if unknown:
            known = ", ".join(sorted(self._routes)) or "none"
            raise DeclarationError(f"app {self.name!r} has no handler {', '.join(unknown)}; it has: {known}")
        copy = App(self.name, errors=self.errors, **self._common)
        copy._setup, copy._cleanup = self._setup, self._cleanup
        self._share_with(copy, without)
        for name, route in self._routes.items():
            if name in without:
                continue
            fields = dict(changes.get(name, {}))
            if route.topic.name in topics:
                fields["topic"] = replace(route.topic, name=topics[route.topic.name])
            copy._routes[name] = route.with_changes(**fields)
        return copy

    def run(self, engine: Engine | None = None) -> Outcome:
        """Run the handlers until a stop signal, on *engine* or on the configured one."""
        if engine is None:
            from laneway._engines.chosen import default_engine

            engine = default_engine()
        return engine.run(self)

    def why(self) -> list[Stall]:
        """What is stuck and why, while an engine of this process runs the app; see its `why`."""
        engine = None if self.engine is None else self.engine()
        return [] if engine is None else list(engine.why())

    def _declare(self, **fields: Any) -> Callable[[F], F]:
        def register(function: F) -> F:
            name = getattr(function, "__name__", type(function).__name__)
            if name in self._routes:
                raise DeclarationError(f"app {self.name!r} already has a handler named {name!r}; names must differ")
            self._routes[name] = checked(HandlerSpec(name=name, function=function, **self._common, **fields))
            return function

        return register

    def __repr__(self) -> str:
        """As in code."""
        return f"App({self.name!r})"


def _common(
    retry: Retry | None, timeout: Duration | None, breaker: Breaker | None, buffer: Buffer | None
) -> dict[str, Any]:
    limit = None if timeout is None else _duration(timeout, "timeout")
    return {"retry": retry or Retry(), "timeout": limit, "breaker": breaker, "buffer": buffer or Buffer()}


def _duration(value: Duration, name: str) -> timedelta:
    try:
        return as_duration(value)
    except ValueError as error:
        raise DeclarationError(f"{name}: {error}") from error


def _is_manual(acknowledge: str) -> bool:
    if acknowledge not in ("auto", "manual"):
        raise DeclarationError(f"acknowledge={acknowledge!r}; use 'auto' or 'manual'")
    return acknowledge == "manual"
