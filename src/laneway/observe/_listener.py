"""Listener: receives events, and in words what is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from laneway.observe._tally import Event

__all__ = ["Listener", "Notes"]


class Notes(Protocol):
    """Receives in words what lasts while an app runs. Any thread may call it, and it must not take long."""

    def note(self, words: str) -> None:
        """Something lasts, and is waited for; empty when it is over."""


@runtime_checkable
class Listener(Notes, Protocol):
    """Receives each event, too."""

    def event(self, event: Event) -> None:
        """Something happened."""
