"""Dedup: which records of a handler may be called, and which are done. `laneway.dedup` has the parts behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from laneway._declare.record import Record

__all__ = ["Dedup", "guarded"]


class Dedup(Protocol):
    """A stage around the calls of a handler, and a step between the end of a call and the end of its record.

    Lanes call `begin`, `begin_async` and `check`, outside any lock. The processor calls the rest, which never waits.
    """

    wake: Callable[[], None] | None
    """Called on another thread when `confirmed` has news; the runner sets it."""
    pending: int
    """Records whose marks are under way."""
    unclaimed: int
    """Records that were called without a claim, because the store was away."""

    @property
    def away_until(self) -> float:
        """While the store is away and records wait for it, when it is asked again; else a moment that is over."""
        ...

    def begin(self, records: Sequence[Record[Any]]) -> None:
        """Claim the records of a turn, in one round trip."""
        ...

    async def begin_async(self, records: Sequence[Record[Any]]) -> None:
        """As `begin`, on an event loop."""
        ...

    def check(self, record: Record[Any]) -> None:
        """Raise what keeps a record from being called: `Duplicate`, or an error."""
        ...

    def ended(self, records: Iterable[Record[Any]]) -> None:
        """The turn of these records is over; what was handled is marked by now."""
        ...

    def mark(self, records: Sequence[Record[Any]]) -> Sequence[Record[Any]]:
        """Mark records as done; returns those that are finished at once. `confirmed` gives the others."""
        ...

    def confirmed(self) -> list[Record[Any]]:
        """Records that are marked now, each once."""
        ...

    def finished(self, records: Iterable[Record[Any]]) -> None:
        """The outcome of these records is durable: claims that are not marked are given back."""
        ...

    def leave(self, topic: str, partition: int) -> None:
        """A partition was given away: its claims are given back, those of running calls when they end."""
        ...

    def close(self) -> None:
        """Give back what is left."""
        ...


def guarded(function: Callable[[Record[Any]], Any], dedup: Dedup) -> Callable[[Record[Any]], Any]:
    """A function that is not called with records that are done, or that others have."""
    check = dedup.check

    def call(record: Record[Any]) -> Any:
        check(record)
        return function(record)

    return call
