"""Extensions: what an app declares besides handlers: replacements, interceptors and subscribers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, overload

from laneway._declare.interceptors import Interception
from laneway._declare.record import Message, Record
from laneway._declare.subscribers import Subscribers
from laneway.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Collection

    from laneway._declare.handler import HandlerSpec
    from laneway._declare.interceptors import Side
    from laneway.events import Event

__all__ = ["Extensions"]

A = TypeVar("A", bound="Event")
B = TypeVar("B", bound="Event")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Consume = TypeVar("Consume", bound=Callable[[Record[Any]], "Record[Any] | None"])
Produce = TypeVar("Produce", bound=Callable[[Message[Any]], "Message[Any] | None"])
Error = TypeVar("Error", bound=Callable[[Message[bytes], Record[Any], Exception], "Message[Any] | None"])
Last = TypeVar("Last", bound=Callable[[Record[Any], Exception], "bool | None"])
Handler = Callable[..., Any]


class Extensions:
    """The part of an `App` that adds to its handlers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._routes: dict[str, HandlerSpec] = {}
        self._interception = Interception()
        self._subscribers = Subscribers()
        self._wanted: set[type] = set()

    def retry_handler(self, of: Callable[..., Any] | str, *, step: int | None = None) -> Callable[[F], F]:
        """Declare a function that replaces a handler for records from a retry topic.

        Args:
            of: the handler, or its name.
            step: the step, from 1 on; all steps by default.
        """

        def register(function: F) -> F:
            route = self._route_of(of)
            hops = range(1, route.retry.hops + 1)
            if not hops or (step is not None and step not in hops):
                raise DeclarationError(
                    f"handler {route.name!r} has no retry topic of step {step or 1}; its steps come from "
                    'retry=Retry.steps("5s", "1m") with mode="unordered" or mode="ordered"'
                )
            chosen = dict.fromkeys(hops if step is None else (step,), function)
            self._routes[route.name] = route.with_changes(step_functions={**route.step_functions, **chosen})
            return function

        return register

    def error_handler(self, of: Callable[..., Any] | str) -> Callable[[F], F]:
        """Declare a function that replaces a handler in runs over its parked records.

        It takes what the handler takes: a record, a `Batch` of one, or a table of one row. Runs are declared with
        ``App(..., errors=ErrorConsumer(...))``.

        Args:
            of: the handler, or its name.

        Example::

            @app.error_handler(of=charge)
            def charge_manually(record: Record[Order]) -> None:
                desk.open_case(record.value, record.header("laneway-error-message"))
        """

        def register(function: F) -> F:
            route = self._route_of(of)
            if not callable(function):
                raise DeclarationError(f"error handler of {route.name!r}: {function!r} is not a function")
            self._routes[route.name] = route.with_changes(error_function=function)
            return function

        return register

    def consume_interceptor(self, *, of: Handler | str | None = None) -> Callable[[Consume], Consume]:
        """Declare a function that sees each record before the handler, with its value decoded.

        It returns the record, a changed copy (``record.replaced(value=…)``), or None to drop it, which counts as
        skipped. Only the handler sees the change; retries and copies on retry and error topics have the original
        record. An exception fails the record, as if the handler had raised it.

        Interceptors run in the order of their declaration, those of all handlers first.

        Args:
            of: the handler, or its name; all handlers by default. Not for columnar ones, which take tables.

        Example::

            @app.consume_interceptor()
            def decrypt(record: Record[bytes]) -> Record[bytes]:
                return record.replaced(value=key.decrypt(record.value))
        """
        return self._intercept("consume", of)

    def produce_interceptor(self, *, of: Handler | str | None = None) -> Callable[[Produce], Produce]:
        """Declare a function that sees each message that a handler returned, before it is encoded.

        It returns the message, a changed copy (``message.replaced(headers=…)``), or None to drop it. An exception fails
        the record, as if the handler had raised it.

        Args:
            of: the handler, or its name; all handlers by default.
        """
        return self._intercept("produce", of)

    def error_interceptor(self, *, of: Handler | str | None = None) -> Callable[[Error], Error]:
        """Declare a function that sees each copy before it goes to the error topic, with the record and its error.

        It returns the copy, a changed one (to mask a value or add headers), or None: then the record is finished
        without a copy and counts as dropped. It does not see copies for retry topics. If it fails, the copy is written
        without its changes, because a record must not be lost, and `laneway.events.InterceptorFailed` is emitted.

        Args:
            of: the handler, or its name; all handlers by default.

        Example::

            @app.error_interceptor()
            def mask(message: Message[bytes], record: Record[Any], error: Exception) -> Message[bytes]:
                return message.replaced(value=b"***")
        """
        return self._intercept("error", of)

    def last_step(self, *, of: Handler | str | None = None) -> Callable[[Last], Last]:
        """Declare a function that is called at each failed attempt to write the copy for the error topic.

        It takes the record and the error. The record stays unfinished, its key waits, and the copy is retried, unless
        the function returns True: then it has saved the record elsewhere, and the record is finished and counts as
        rescued. It runs on the reading thread, so it should be short; an exception changes nothing.

        Args:
            of: the handler, or its name; all handlers by default.

        Example::

            @app.last_step()
            def to_disk(record: Record[Any], error: Exception) -> bool:
                return spool.append(record.key, record.raw)
        """
        return self._intercept("last", of)

    @overload
    def on(self, kind: type[A], /) -> Callable[[Callable[[A], R]], Callable[[A], R]]: ...
    @overload
    def on(self, kind: type[A], other: type[B], /) -> Callable[[Callable[[A | B], R]], Callable[[A | B], R]]: ...
    @overload
    def on(
        self, kind: type[Event], other: type[Event], third: type[Event], /, *more: type[Event]
    ) -> Callable[[F], F]: ...
    def on(self, *kinds: Any) -> Callable[[Any], Any]:
        """Declare a function that is called with each event of the given kinds; see `laneway.events`.

        It is called in the process that runs the app, one call at a time: on Spark in the driver after each batch,
        which waits for it, so it should be short. It may hold a lock or a connection, because it is never pickled. An
        exception is logged and has no other effect.

        Example::

            @app.on(RecordParked)
            def alarm(event: RecordParked) -> None:
                pager.send(f"{event.handler}: {event.error}")
        """

        def register(function: F) -> F:
            self._subscribers.add(kinds, function)
            self._wanted.update(kinds)
            return function

        return register

    def tell(self, *events: Event) -> None:
        """Pass events to the subscribers, in order. Engines call it."""
        if self._wanted:
            self._subscribers.tell(*events)

    def wants(self, kind: type[Event]) -> bool:
        """Whether a kind of event has a subscriber."""
        return kind in self._wanted

    def _intercept(self, side: Side, of: Handler | str | None) -> Callable[[F], F]:
        def register(function: F) -> F:
            self._interception.add(side, of, function)
            return function

        return register

    @property
    def routes(self) -> tuple[HandlerSpec, ...]:
        """The handlers, in the order of their declaration, each with its interceptors and subscriptions."""
        found = tuple(self._routes.values())
        if not self._interception.declared and not self._wanted:
            return found
        resolved = self._interception.resolved({route.name: route.kind for route in found}, self.name)
        wanted = frozenset(self._wanted)
        return tuple(replace(route, interceptors=resolved[route.name], wanted=wanted) for route in found)

    def _share_with(self, copy: Extensions, without: Collection[str]) -> None:
        """Copy the extensions to a copy of the app, except those of handlers that it lacks."""
        copy._subscribers, copy._wanted = self._subscribers, self._wanted
        copy._interception = self._interception.without(without)

    def _route_of(self, handler: Callable[..., Any] | str) -> HandlerSpec:
        for route in self._routes.values():
            if handler in (route.name, route.function):
                return route
        known = ", ".join(self._routes) or "none"
        raise DeclarationError(f"app {self.name!r} has no handler {handler!r}; it has: {known}")
