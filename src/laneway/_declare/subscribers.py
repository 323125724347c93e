"""Subscribers: functions that are called with events, in the process that runs the app."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from laneway._declare.interceptors import is_async, name_of
from laneway.errors import DeclarationError, text_of
from laneway.events import EVENTS
from laneway.observe import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway.events import Event

__all__ = ["Subscribers"]

_LOG = logger("events")


class Subscribers:
    """The functions that subscribed to an app's events. Any thread may emit; one function is called at a time.

    It is never sent to Spark's workers, so a function may hold a lock or a socket.
    """

    def __init__(self) -> None:
        self._functions: list[tuple[tuple[type[Event], ...], Callable[..., Any]]] = []
        # Reentrant, because a subscriber that pauses the engine causes an event itself.
        self._lock = threading.RLock()

    def add(self, kinds: tuple[type[Event], ...], function: Callable[..., Any]) -> None:
        """Subscribe a function to some kinds of events.

        Raises:
            DeclarationError: the kinds or the function are invalid.
        """
        known = ", ".join(kind.__name__ for kind in EVENTS)
        if not kinds:
            raise DeclarationError(f"app.on() names no event; give one or more of {known}")
        for kind in kinds:
            if kind not in EVENTS:
                raise DeclarationError(f"app.on({kind!r}): not an event; laneway.events has {known}")
        if not callable(function):
            raise DeclarationError(f"app.on(…): {function!r} is not a function of one event")
        if is_async(function):
            raise DeclarationError(f"subscriber {name_of(function)!r} is async; a subscriber is a plain function")
        self._functions.append((kinds, function))

    def tell(self, *events: Event) -> None:
        """Call each function with each event that it subscribed to. An exception is logged."""
        with self._lock:
            for event in events:
                for kinds, function in self._functions:
                    if isinstance(event, kinds):
                        self._call(function, event)

    def __reduce__(self) -> tuple[type[Subscribers], tuple[()]]:
        """Pickle without the functions, because they are called only here."""
        return (type(self), ())

    @staticmethod
    def _call(function: Callable[..., Any], event: Event) -> None:
        try:
            function(event)
        except Exception as error:  # noqa: BLE001 - user code
            reason = " ".join(f"{type(error).__name__}: {text_of(error)}".split())
            _LOG.error("subscriber %r failed on %s: %s", name_of(function), type(event).__name__, reason)
