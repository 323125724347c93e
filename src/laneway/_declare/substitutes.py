"""Functions that replace a handler for its failed records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from laneway._declare.extensions import Extensions
from laneway.errors import DeclarationError

if TYPE_CHECKING:
    from laneway._declare.handler import HandlerSpec

__all__ = ["Substitutes"]

F = TypeVar("F", bound=Callable[..., Any])


class Substitutes(Extensions):
    """The part of an `App` that declares replacements of handlers."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self._routes: dict[str, HandlerSpec] = {}

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

    def _route_of(self, handler: Callable[..., Any] | str) -> HandlerSpec:
        for route in self._routes.values():
            if handler in (route.name, route.function):
                return route
        known = ", ".join(self._routes) or "none"
        raise DeclarationError(f"app {self.name!r} has no handler {handler!r}; it has: {known}")
