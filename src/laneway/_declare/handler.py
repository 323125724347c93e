"""HandlerSpec: one handler and its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from string import Formatter
from typing import TYPE_CHECKING, Any, Literal

from laneway._declare.interceptors import Interceptors
from laneway._declare.retry import Retry
from laneway._declare.units import Size, as_size
from laneway.errors import DeclarationError

if TYPE_CHECKING:
    from laneway._core.error_run_filter import ErrorRunFilter
    from laneway._declare.breaker import Breaker
    from laneway._declare.header_styles import Style
    from laneway._declare.ordering import Grouping
    from laneway._declare.record import Record, Topic

Oversize = Literal["wait", "reference"]
OVERSIZE: tuple[Oversize, ...] = ("wait", "reference")
"""What happens to a copy that is too large for the error topic even without its trace."""
_ANY = "\0"  # stands for the app, whose name a spec does not know; no topic name contains it

__all__ = [
    "ERROR_PATTERN",
    "RETRY_PATTERN",
    "Buffer",
    "HandlerSpec",
    "Kind",
    "Order",
    "OrderBy",
    "Oversize",
    "check_together",
    "checked",
    "error_topic_name",
    "is_coroutine_function",
    "topic_name",
]

Order = Literal["key", "partition", "none"]
Kind = Literal["single", "batch", "unique", "custom", "columnar"]
OrderBy = Callable[[Any], Any]
"""Replaces the Kafka key for ordering: a function of the record; None means no order."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """How much may wait in memory per task or process before it stops reading.

    Args:
        records: records that are read and not finished. 20,000 keeps several hundred lanes busy with uneven keys.
        size: bytes of their keys and values. Together with the client's prefetch (as much again) it bounds memory.
    """

    records: int = 20_000
    size: Size = "64MiB"

    def __post_init__(self) -> None:
        """Validate and normalise."""
        if self.records < 1:
            raise DeclarationError(f"Buffer(records={self.records}): at least 1 record must fit")
        try:
            object.__setattr__(self, "size", as_size(self.size))
        except ValueError as error:
            raise DeclarationError(f"Buffer: {error}") from error


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """One handler and its options, as `App.handler` and its siblings collect them."""

    name: str
    topic: Topic[Any]
    function: Callable[..., Any]
    kind: Kind = "single"
    lanes: int = 1
    retry: Retry = field(default_factory=Retry)
    timeout: timedelta | None = None
    breaker: Breaker | None = None
    order: Order = "key"
    strict: bool = False
    size: int = 1
    within: timedelta = timedelta(seconds=3)
    buffer: Buffer = field(default_factory=Buffer)
    error_topic: str | None = None
    retry_topic: str | None = None
    order_by: OrderBy | None = None
    delay: timedelta = timedelta(0)
    """A record is not handled before its timestamp is this old."""
    step: int = 0
    """0: the source topic; 1 and more: the retry topic of that step."""
    source: str = ""
    """The source topic of the steps; empty if this handler reads it itself."""
    cluster: str | None = None
    """Name of the cluster it reads from, after the configuration was applied; None for the default."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Topic in code to where messages for it go: its real name, or ``name@cluster`` on another cluster than `cluster`.
    Topics that are not in it keep their name and go to `cluster`."""
    error_headers: Style = "laneway"
    oversize: Oversize = "wait"
    """What happens to a copy that is too large for the error topic."""
    step_functions: Mapping[int, Callable[..., Any]] = field(default_factory=dict)
    """Functions that replace the handler on some steps."""
    error_function: Callable[..., Any] | None = None
    """Replaces the handler in error runs."""
    rerun: ErrorRunFilter | None = None
    """Set in an error run."""
    interceptors: Interceptors = field(default_factory=Interceptors)
    wanted: frozenset[type] = frozenset()
    grouping: Grouping | None = None
    bisect: bool = False
    """Whether the halves of a failed batch are called again, to find the records that made it fail."""
    is_manual: bool = False
    """Whether an `Ack` finishes the record, and not the return of the handler."""
    processes: int = 0
    """How many processes run the handler, per process that runs tasks; 0 for none."""

    @property
    def is_batch(self) -> bool:
        return self.kind in ("batch", "unique", "custom")

    @property
    def is_async(self) -> bool:
        return is_coroutine_function(self.function)

    @property
    def kept_order(self) -> Order:
        """The effective order: with one lane a partition is handled one record at a time."""
        is_serial = self.lanes <= 1 and not self.processes and self.kind == "single"
        return "partition" if is_serial else self.order

    def order_value(self, record: Record[Any]) -> Any:
        """The ordering key of a record; if it cannot be computed, the record's own key."""
        try:
            return record.key if self.order_by is None else self.order_by(record)
        except Exception:  # noqa: BLE001 - a user's function, on a record that may be poison
            return (record.key,)

    def lane_key(self, record: Record[Any]) -> Any:
        """What records that are handled one after the other have in common; None for a record without order."""
        order = self.kept_order
        if order == "key":
            return self.order_value(record)
        return record.partition if order == "partition" else None

    def error_topic_of(self, app: str) -> str:
        pattern = self.error_topic or ERROR_PATTERN
        return topic_name(pattern, topic=self.source or self.topic.name, app=app, handler=self.name)

    def retry_topic_of(self, app: str, step: int) -> str:
        """Name of the retry topic of a step, from 1 on."""
        pattern = self.retry_topic or RETRY_PATTERN
        return topic_name(pattern, topic=self.source or self.topic.name, app=app, handler=self.name, step=step)

    def retry_topics_of(self, app: str) -> list[str]:
        """Names of all its retry topics, in the order of the steps."""
        return [self.retry_topic_of(app, step) for step in range(1, self.retry.hops + 1)]

    def at_step(self, app: str, step: int) -> HandlerSpec:
        """The spec for one step of the ladder; 0 is this one."""
        if not step:
            return self
        return replace(
            self,
            topic=replace(self.topic, name=self.retry_topic_of(app, step)),
            function=self.step_functions.get(step, self.function),
            step=step,
            source=self.source or self.topic.name,
            delay=self.retry.delays[step - 1],
        )

    @property
    def parks_behind(self) -> bool:
        """Whether later records of a key queue behind one that waits on a retry topic."""
        return self.retry.mode == "ordered" and bool(self.retry.hops) and self.kept_order != "none"

    def with_changes(self, **changes: Any) -> HandlerSpec:
        """A copy with some fields replaced, validated again."""
        return checked(replace(self, **changes))


def is_coroutine_function(function: Any) -> bool:
    """Whether a function is an ``async def``; an object with an async ``__call__`` counts too."""
    call = getattr(function, "__call__", None)  # noqa: B004 - see above
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def checked(route: HandlerSpec) -> HandlerSpec:
    """Refuse options that cannot work, with the reason."""
    where = f"handler {route.name!r}"
    if not callable(route.function):
        raise DeclarationError(f"{where}: {route.function!r} is not a function")
    if route.lanes < 0:
        raise DeclarationError(f"{where}: lanes={route.lanes}; lanes is 0 or more (0 and 1: one record at a time)")
    if route.size < 1:
        raise DeclarationError(f"{where}: size={route.size}; a batch holds at least 1 record")
    if route.oversize not in OVERSIZE:
        raise DeclarationError(f"{where}: oversize={route.oversize!r}; use {', '.join(map(repr, OVERSIZE))}")
    if route.order not in ("key", "partition", "none"):
        raise DeclarationError(f"{where}: order={route.order!r}; use 'key', 'partition' or 'none'")
    if route.kind == "columnar" and route.is_async:
        raise DeclarationError(f"{where}: a columnar handler is a plain def; async gains nothing on a table")
    if route.kind == "columnar" and route.parks_behind:
        raise DeclarationError(
            f"{where}: mode='ordered' follows single records, a columnar handler takes tables; use mode='unordered'"
        )
    if route.order_by is not None and not callable(route.order_by):
        raise DeclarationError(f"{where}: order_by={route.order_by!r}; give a function, or by_header(…) or by_field(…)")
    _check_processes(route, where)
    _check_batch(route, where)
    _check_names(route, where)
    if route.kind != "single" and route.buffer.records < route.size:
        return replace(route, buffer=Buffer(route.size, route.buffer.size))
    return route


def _check_processes(route: HandlerSpec, where: str) -> None:
    if route.processes < 0:
        raise DeclarationError(f"{where}: processes={route.processes}; it must be 0 (none) or more")
    if route.processes and route.is_manual:
        raise DeclarationError(f"{where}: manual acknowledgement works only in this process; remove processes")
    if route.processes and (route.is_async or route.kind == "columnar"):
        what = (
            "an async handler waits and does not compute"
            if route.is_async
            else "Arrow computes on tables without Python's lock"
        )
        raise DeclarationError(f"{where}: processes={route.processes}: {what}; remove processes")


def _check_batch(route: HandlerSpec, where: str) -> None:
    """Refuse bisect without batches, and objects that are no grouping."""
    if route.bisect and not route.is_batch:
        raise DeclarationError(f"{where}: bisect=True halves batches, and a {route.kind} handler takes none")
    if route.kind != "custom":
        return
    kind: Any = route.grouping
    split = getattr(kind, "split", None)
    if isinstance(kind, type):
        raise DeclarationError(f"{where}: kind={kind.__name__} is a class; pass an instance")
    if not callable(split) or isinstance(kind, (str, bytes)):
        raise DeclarationError(
            f"{where}: kind={kind!r} has no method split(records); give GroupedBy(…) or a kind of your own"
        )
    if inspect.iscoroutinefunction(split):
        raise DeclarationError(f"{where}: split() of {type(kind).__name__} is async; it is a plain def for any handler")


def _check_names(route: HandlerSpec, where: str) -> None:
    """Refuse retry and error topics that are the source topic, or each other."""
    beside = [route.error_topic_of(_ANY), *route.retry_topics_of(_ANY)]
    if route.topic.name in beside or (route.error_topic and route.error_topic == route.source):
        raise DeclarationError(
            f"{where}: the error topic is also the source topic, so a failing record would loop forever; choose "
            "another error_topic"
        )
    if len(set(beside)) < len(beside):
        named = ", ".join(sorted(name.replace(_ANY, "{app}") for name in beside))
        raise DeclarationError(
            f"{where}: two of its retry and error topics have the same name ({named}); "
            "a pattern of several retry topics holds {step}"
        )


def check_together(app: str, routes: Iterable[HandlerSpec]) -> None:
    """Refuse handlers that would get each other's records from their retry and error topics.

    Raises:
        DeclarationError: names the two, and what to write instead.
    """
    found = list(routes)
    # Topics of the same name on two clusters are different topics.
    sources = {(route.cluster, route.topic.name): route.name for route in found if route.rerun is None}
    owners: dict[tuple[str | None, str], str] = {}
    for route in found:
        beside = [] if route.rerun is not None else [route.error_topic_of(app), *route.retry_topics_of(app)]
        for name in beside:
            replace(route.topic, name=name)  # refuses names that Kafka would refuse
        if route.topic.name == (beside or [""])[0]:
            raise DeclarationError(
                f"handler {route.name!r}: the error topic is also the source topic, so a failing record would loop "
                "forever; choose another error_topic"
            )
        for name in beside[1:]:
            place = (route.cluster, name)
            if place in sources:
                raise DeclarationError(
                    f"{name} is a retry topic of {route.name!r}, but handler {sources[place]!r} reads it"
                )
            if place in owners:
                raise DeclarationError(
                    f"handlers {owners[place]!r} and {route.name!r} have the same retry topic {name}, so each would "
                    'get the other\'s; separate them with App(…, retry_topic="{topic}.{app}.{handler}.retry.{step}")'
                )
            owners[place] = route.name


ERROR_PATTERN = "{topic}.{app}.error"
"""One per source topic and app, so that apps never read each other's failures."""
RETRY_PATTERN = "{topic}.{app}.retry.{step}"
"""One per source topic, app and step."""
_FIELDS = ("topic", "app", "handler", "step")


def topic_name(pattern: str, *, topic: str, app: str, handler: str = "", step: int = 0) -> str:
    """Format a pattern with ``{topic}``, ``{app}``, ``{handler}`` and ``{step}``.

    Example:
        >>> topic_name("{topic}.{app}.retry.{step}", topic="orders", app="billing", step=2)
        'orders.billing.retry.2'
    """
    try:
        parts = [part for part in Formatter().parse(pattern) if part[1] is not None]
    except ValueError as error:
        raise DeclarationError(f"{pattern!r} is not a pattern of a topic's name: {error}") from error
    for _, name, form, conversion in parts:
        if name not in _FIELDS or conversion or "{" in (form or ""):
            known = ", ".join(f"{{{field}}}" for field in _FIELDS)
            raise DeclarationError(f"{pattern!r}: there is no {{{name}}}; a topic's name may use {known}")
    try:
        return pattern.format(topic=topic, app=app, handler=handler, step=step)
    except ValueError as error:
        raise DeclarationError(f"{pattern!r} is not a pattern of a topic's name: {error}") from error


def error_topic_name(topic: str, app: str) -> str:
    """Name of the error topic by the default pattern."""
    return topic_name(ERROR_PATTERN, topic=topic, app=app)
