"""Interceptors: see or change records and messages of handlers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from laneway.errors import DeclarationError

__all__ = ["Interception", "Interceptor", "Interceptors", "Side", "is_async", "name_of"]

Side = Literal["consume", "produce", "error", "last"]
SIDES: tuple[Side, ...] = ("consume", "produce", "error", "last")
Interceptor = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Interceptors:
    """The interceptors of one handler, in the order they run."""

    consume: tuple[Interceptor, ...] = ()
    """Each takes a record before the handler and returns it, a changed one, or None to drop it."""
    produce: tuple[Interceptor, ...] = ()
    """Each takes a message that the handler returned and returns it, a changed one, or None to drop it."""
    error: tuple[Interceptor, ...] = ()
    """Each takes the copy for the error topic, with record and error; None finishes the record without a copy."""
    last: tuple[Interceptor, ...] = ()
    """Each is called with a record whose copy could not be written; True means it was saved elsewhere."""


@dataclass(slots=True)
class Interception:
    """All interceptors of an app. Resolved per handler only when everything is declared."""

    declared: list[tuple[Side, str | None, Interceptor]] = field(default_factory=list)
    """Side, name of the handler (None for all), and function."""

    def add(self, side: Side, handler: Callable[..., Any] | str | None, function: Interceptor) -> None:
        """Declare an interceptor.

        Raises:
            DeclarationError: it cannot be an interceptor.
        """
        if not callable(function):
            raise DeclarationError(f"{side} interceptor {function!r} is not a function")
        if is_async(function):
            raise DeclarationError(
                f"{side} interceptor {name_of(function)!r} is async; interceptors are plain functions, because they "
                "run for each record of sync handlers too"
            )
        self.declared.append((side, None if handler is None else name_of(handler), function))

    def resolved(self, kinds: Mapping[str, str], app: str) -> dict[str, Interceptors]:
        """The interceptors of each handler, those for all handlers first.

        Raises:
            DeclarationError: one cannot work with its handler.
        """
        for side, name, function in self.declared:
            _check(side, name, function, kinds, app)
        return {name: Interceptors(*(tuple(self._of(side, name)) for side in SIDES)) for name in kinds}

    def without(self, handlers: Collection[str]) -> Interception:
        """A copy without the interceptors of disabled handlers."""
        return Interception([found for found in self.declared if found[1] not in handlers])

    def _of(self, wanted: str, handler: str) -> Iterator[Interceptor]:
        for scope in (None, handler):
            yield from (function for side, name, function in self.declared if (side, name) == (wanted, scope))


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call returns an awaitable."""
    call = getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ counts too
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def name_of(function: Callable[..., Any] | str) -> str:
    """The name of a function in an app."""
    return function if isinstance(function, str) else getattr(function, "__name__", type(function).__name__)


def _check(side: Side, name: str | None, function: Interceptor, kinds: Mapping[str, str], app: str) -> None:
    what = f"{side} interceptor {name_of(function)!r}"
    if name is not None and name not in kinds:
        raise DeclarationError(f"{what}: app {app!r} has no handler {name!r}; it has: {', '.join(kinds) or 'none'}")
    columnar = [found for found, kind in kinds.items() if kind == "columnar" and name in (None, found)]
    if columnar and side == "consume":
        raise DeclarationError(
            f"{what} takes records, but columnar handler {columnar[0]!r} takes tables; declare it with "
            f"{side}_interceptor(of=…) for other handlers, and change the table in {columnar[0]!r} itself"
        )
    if columnar and side == "produce" and name is not None:
        raise DeclarationError(f"{what}: columnar handler {name!r} returns no messages, so it would never run")
