"""App: collects handlers. It runs nothing itself; an engine does."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from laneway._units import Duration, Size, as_duration, as_size
from laneway.errors import DeclarationError
from laneway.retry import Retry, error_topic_name

if TYPE_CHECKING:
    from laneway._record import Record, Topic
    from laneway.typing import Engine, Outcome

__all__ = ["App", "Buffer", "Kind", "Order", "Route"]

Order = Literal["key", "partition", "none"]
Kind = Literal["single", "batch", "unique", "columnar"]
OrderBy = Callable[[Any], Any]
"""What orders records instead of the Kafka key: a function of the record; None means no order."""
F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class Buffer:
    """How much may wait in memory, for each task or process, before it stops reading.

    Args:
        records: read and not yet finished. 20,000 keeps several hundred lanes busy through uneven keys.
        size: bytes of their keys and values. With the client's own prefetch (as much again) this bounds memory.
    """

    records: int = 20_000
    size: Size = "64MiB"

    def __post_init__(self) -> None:
        """Check and normalise."""
        if self.records < 1:
            raise DeclarationError(f"Buffer(records={self.records}): at least 1 record must fit")
        try:
            object.__setattr__(self, "size", as_size(self.size))
        except ValueError as error:
            raise DeclarationError(f"Buffer: {error}") from error


@dataclass(frozen=True, slots=True)
class Route:
    """One handler and how it is to be run: what `App.handler` and its siblings collect."""

    name: str
    topic: Topic[Any]
    function: Callable[..., Any]
    kind: Kind = "single"
    lanes: int = 1
    retry: Retry = field(default_factory=Retry)
    timeout: timedelta | None = None
    order: Order = "key"
    strict: bool = False
    size: int = 1
    within: timedelta = timedelta(seconds=3)
    buffer: Buffer = field(default_factory=Buffer)
    error_topic: str | None = None
    order_by: OrderBy | None = None

    @property
    def is_batch(self) -> bool:
        """Whether the handler takes several records at once, as a `Batch`."""
        return self.kind in ("batch", "unique")

    @property
    def is_async(self) -> bool:
        """Whether the handler is an ``async def``."""
        call = getattr(self.function, "__call__", None)  # noqa: B004 - an object with an async __call__ counts too
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(call)

    @property
    def kept_order(self) -> Order:
        """The order really kept: with no more than one lane a partition is worked through one record at a time."""
        return "partition" if self.lanes <= 1 and self.kind == "single" else self.order

    def order_value(self, record: Record[Any]) -> Any:
        """What orders a record; one for which it cannot be told keeps the order of its key."""
        try:
            return record.key if self.order_by is None else self.order_by(record)
        except Exception:  # noqa: BLE001 - a user's function, on a record that may be poison
            return (record.key,)

    def error_topic_of(self, app: str) -> str:
        """Name of the topic where failed records are parked."""
        return self.error_topic or error_topic_name(self.topic.name, app)

    def with_changes(self, **changes: Any) -> Route:
        """A copy with some fields replaced, checked again."""
        return _checked(replace(self, **changes))


class App:
    """Handlers that share one name, which is also the consumer group.

    Args:
        name: consumer group, client id and checkpoint name.

    Example:
        >>> app = App("billing")
        >>> @app.handler(Topic("orders"), lanes=8)
        ... def charge(record): ...
        >>> [route.name for route in app.routes]
        ['charge']
    """

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            # The name becomes a group id and part of a path, so nothing that could climb out of a folder.
            raise DeclarationError(
                f"App({name!r}): use 1 to 200 letters, digits, '.', '_' or '-', starting with a letter or digit"
            )
        self.name = name
        self._routes: dict[str, Route] = {}
        self._setup: list[Callable[[], Any]] = []
        self._cleanup: list[Callable[[], Any]] = []

    @property
    def routes(self) -> tuple[Route, ...]:
        """The handlers, in the order of their declaration."""
        return tuple(self._routes.values())

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
        buffer: Buffer | None = None,
    ) -> Callable[[F], F]:
        """Declare a function that takes one record and returns nothing, a message or several.

        The function stays as it is: callable, picklable, testable.

        Args:
            topic: what to read.
            lanes: how many keys of a partition may be in work at once. 1 by default, which is one record at a time per
                partition, because a function must be written to run concurrently. The lanes of all partitions of one
                process are a pool.
            retry: what to do when the function raises; by default the record is parked at once.
            timeout: time limit of one call. An async call is cancelled; a sync call cannot be stopped, so its record
                counts as failed once it returns, and its key waits until then.
            order: what runs one after the other: records of a ``key``, of a ``partition``, or ``none``.
            order_by: what stands in for the key: a function of the record, such as ``by_header("customer")`` or
                ``by_field("customer.id")``. Records of one value that are in different partitions have no order.
            strict: forbid a busy partition to borrow the lanes of an idle one.
            buffer: how much may wait in memory.
        """
        return self._declare(
            topic=topic,
            kind="single",
            lanes=lanes,
            order=order,
            order_by=order_by,
            strict=strict,
            **_common(retry, timeout, buffer),
        )

    def batch_handler(
        self,
        topic: Topic[Any],
        *,
        size: int,
        within: Duration = "3s",
        lanes: int = 1,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        buffer: Buffer | None = None,
    ) -> Callable[[F], F]:
        """Declare a function that takes a `Batch` of up to *size* records, gathered for at most *within*.

        A batch may hold several records of one key, in order; a key is never in two batches at once.

        Args:
            topic: what to read.
            size: most records in a batch.
            within: how long a record may wait for its batch to fill.
            lanes: how many batches per partition may be in work at once.
            retry: what to do when the function raises; the whole batch is tried again or parked.
            timeout: time limit of one call, as for `handler`.
            buffer: how much may wait in memory.
        """
        return self._declare(
            topic=topic,
            kind="batch",
            lanes=lanes,
            size=size,
            within=_duration(within, "within"),
            **_common(retry, timeout, buffer),
        )

    def unique_handler(
        self,
        topic: Topic[Any],
        *,
        size: int,
        within: Duration = "3s",
        lanes: int = 1,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        buffer: Buffer | None = None,
    ) -> Callable[[F], F]:
        """Declare a function that takes a `Batch` with only the newest record of each key that was gathered.

        Older records of a key are superseded: they never reach the function, and are finished only when the newest one
        is. A tombstone counts as newest. Records without a key supersede nothing.

        Args:
            topic: what to read.
            size: most records gathered for a call; the function gets as many as there are keys among them.
            within: how long a record may wait for the others.
            lanes: how many calls per partition may be in work at once.
            retry: what to do when the function raises; a record that came meanwhile supersedes the failed one.
            timeout: time limit of one call, as for `handler`.
            buffer: how much may wait in memory.
        """
        return self._declare(
            topic=topic,
            kind="unique",
            lanes=lanes,
            size=size,
            within=_duration(within, "within"),
            **_common(retry, timeout, buffer),
        )

    def columnar_handler(
        self, topic: Topic[Any], *, size: int = 50_000, retry: Retry | None = None, buffer: Buffer | None = None
    ) -> Callable[[F], F]:
        """Declare a function that takes a `pyarrow.Table` of up to *size* records.

        Columns: topic, partition, offset, timestamp, key, value, headers. Tables of one task come one after the
        other, so order holds; no Python object is made per record beyond the Kafka client's own.
        """
        return self._declare(
            topic=topic,
            kind="columnar",
            size=size,
            retry=retry or Retry(),
            buffer=buffer or Buffer(records=max(size, 1)),
        )

    def setup(self, function: F) -> F:
        """Run *function* once in each worker process before its first record, to open a pool or load a model."""
        self._setup.append(function)
        return function

    def cleanup(self, function: F) -> F:
        """Run *function* when a worker process ends in good order."""
        self._cleanup.append(function)
        return function

    @property
    def setups(self) -> tuple[Callable[[], Any], ...]:
        """What runs once in each worker process before its first record."""
        return tuple(self._setup)

    @property
    def cleanups(self) -> tuple[Callable[[], Any], ...]:
        """What runs when a worker process ends in good order."""
        return tuple(self._cleanup)

    def configured(
        self, changes: dict[str, dict[str, Any]], topics: dict[str, str], without: Collection[str] = ()
    ) -> App:
        """A copy of this app with handler fields and topic names replaced, as a configuration asks for.

        Args:
            changes: handler name to the fields to replace.
            topics: name in code to real name.
            without: handlers that are switched off.
        """
        unknown = sorted(set(changes) - set(self._routes))
        if unknown:
            known = ", ".join(sorted(self._routes)) or "none"
            raise DeclarationError(f"app {self.name!r} has no handler {', '.join(unknown)}; it has: {known}")
        copy = App(self.name)
        copy._setup, copy._cleanup = self._setup, self._cleanup
        for name, route in self._routes.items():
            if name in without:
                continue
            fields = dict(changes.get(name, {}))
            if route.topic.name in topics:
                fields["topic"] = replace(route.topic, name=topics[route.topic.name])
            copy._routes[name] = route.with_changes(**fields)
        return copy

    def run(self, engine: Engine | None = None) -> Outcome:
        """Run the handlers until a stop signal, on Spark unless told otherwise.

        Args:
            engine: where to run; a `SparkEngine` made from ``laneway.yaml`` and the environment by default.
        """
        if engine is None:
            from laneway.engines.spark import SparkEngine

            engine = SparkEngine()
        return engine.run(self)

    def _declare(self, **fields: Any) -> Callable[[F], F]:
        def register(function: F) -> F:
            name = getattr(function, "__name__", type(function).__name__)
            if name in self._routes:
                raise DeclarationError(f"app {self.name!r} already has a handler named {name!r}; names must differ")
            self._routes[name] = _checked(Route(name=name, function=function, **fields))
            return function

        return register

    def __repr__(self) -> str:
        """As it is written."""
        return f"App({self.name!r})"


def _common(retry: Retry | None, timeout: Duration | None, buffer: Buffer | None) -> dict[str, Any]:
    """What every kind of handler may be told, with its defaults."""
    limit = None if timeout is None else _duration(timeout, "timeout")
    return {"retry": retry or Retry(), "timeout": limit, "buffer": buffer or Buffer()}


def _duration(value: Duration, name: str) -> timedelta:
    try:
        return as_duration(value)
    except ValueError as error:
        raise DeclarationError(f"{name}: {error}") from error


def _checked(route: Route) -> Route:
    """Refuse what cannot work, with the reason."""
    where = f"handler {route.name!r}"
    if not callable(route.function):
        raise DeclarationError(f"{where}: {route.function!r} is not a function")
    if route.lanes < 0:
        raise DeclarationError(f"{where}: lanes={route.lanes}; lanes is 0 or more (0 and 1: one record at a time)")
    if route.size < 1:
        raise DeclarationError(f"{where}: size={route.size}; a batch holds at least 1 record")
    if route.order not in ("key", "partition", "none"):
        raise DeclarationError(f"{where}: order={route.order!r}; use 'key', 'partition' or 'none'")
    if route.kind == "columnar" and route.is_async:
        raise DeclarationError(f"{where}: a columnar handler is a plain def; async gains nothing on a table")
    if route.order_by is not None and not callable(route.order_by):
        raise DeclarationError(f"{where}: order_by={route.order_by!r}; give a function, or by_header(…) or by_field(…)")
    if route.error_topic == route.topic.name:
        raise DeclarationError(f"{where}: its error topic is the topic it reads, so a failed record would never end")
    if route.kind != "single" and route.buffer.records < route.size:
        return replace(route, buffer=Buffer(route.size, route.buffer.size))
    return route
