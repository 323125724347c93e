"""Listener: receives events, and in words what is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from laneway.observe._tally import Event

__all__ = ["Listener", "Notes"]


class Notes(Protocol):
    """Receives warnings about conditions that last. Any thread may call it, and it must not take long."""

    def note(self, words: str) -> None:
        """Report a condition that lasts; an empty text ends it."""


@runtime_checkable
class Listener(Notes, Protocol):
    """Receives events, too."""

    def event(self, event: Event) -> None: ...
