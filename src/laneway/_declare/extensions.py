"""Extensions: what an app is given beside its handlers: interceptors and subscribers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, overload

from laneway._declare.interceptors import Interception
from laneway._declare.record import Message, Record
from laneway._declare.subscribers import Subscribers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

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
    """The part of an `App` that is not about its handlers."""

    def __init__(self) -> None:
        self._interception = Interception()
        self._subscribers = Subscribers()
        self._wanted: set[type] = set()

    def consume_interceptor(self, *, of: Handler | str | None = None) -> Callable[[Consume], Consume]:
        """Declare a function that sees each record before the handler does, when its value is decoded.

        It returns the record, a changed copy (``record.replaced(value=…)``), or None to drop it, which counts as
        skipped. Only the handler sees the change: the ledger, retries and the copies on retry and error topics have the
        record as it came. What it raises fails the record, as if the handler had raised it.

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

        It returns the message, a changed copy (``message.replaced(headers=…)``), or None to drop it. What it raises
        fails the record, as if the handler had raised it.

        Args:
            of: the handler, or its name; all handlers by default.
        """
        return self._intercept("produce", of)

    def error_interceptor(self, *, of: Handler | str | None = None) -> Callable[[Error], Error]:
        """Declare a function that sees each copy before it goes to the error topic, with the record and its error.

        It returns the copy, a changed one, to mask a value or add headers, or None: then the record is finished
        without a copy and counts as dropped. Copies for retry topics do not pass it. When it fails, the copy goes out
        as it was before it, since a record must not be lost, and `laneway.events.InterceptorFailed` tells.

        Args:
            of: the handler, or its name; all handlers by default.

        Example::

            @app.error_interceptor()
            def mask(message: Message[bytes], record: Record[Any], error: Exception) -> Message[bytes]:
                return message.replaced(value=b"***")
        """
        return self._intercept("error", of)

    def last_step(self, *, of: Handler | str | None = None) -> Callable[[Last], Last]:
        """Declare a function that is told when even the copy for the error topic cannot be written, at each try.

        It takes the record and why the copy failed. The record is unfinished, its key waits, the copy is tried again,
        unless the function returns True: then it has put the record somewhere safe, and the record is finished and
        counts as rescued. It runs on the reading thread, so it should be short; what it raises changes nothing.

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
        """Declare a function that is called with each event of some kinds; see `laneway.events`.

        It is called in the process that runs the app, one call at a time: on Spark in the driver after each batch,
        which waits for it, so it should be short. It may hold a lock or a connection: it does not travel. What it
        raises is reported in one line and harms nothing.

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
        """Tell the subscribers of events, in their order. Engines call it."""
        if self._wanted:
            self._subscribers.tell(*events)

    def wants(self, kind: type[Event]) -> bool:
        """Whether anybody subscribed to a kind of event."""
        return kind in self._wanted

    def _intercept(self, side: Side, of: Handler | str | None) -> Callable[[F], F]:
        def register(function: F) -> F:
            self._interception.add(side, of, function)
            return function

        return register

    def _extended(self, name: str, routes: Iterable[HandlerSpec]) -> tuple[HandlerSpec, ...]:
        """The routes with what concerns them."""
        found = tuple(routes)
        if not self._interception.declared and not self._wanted:
            return found
        resolved = self._interception.resolved({route.name: route.kind for route in found}, name)
        wanted = frozenset(self._wanted)
        return tuple(replace(route, interceptors=resolved[route.name], wanted=wanted) for route in found)

    def _share_with(self, copy: Extensions, without: Collection[str]) -> None:
        """Give a copy of the app the same, except what is only for handlers that it lacks."""
        copy._subscribers, copy._wanted = self._subscribers, self._wanted
        copy._interception = self._interception.without(without)
