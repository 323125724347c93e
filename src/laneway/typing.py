"""Protocols: what laneway asks of the things that are plugged into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway._declare.app import App
    from laneway._declare.record import Headers, Record
    from laneway.observe import Tally

__all__ = ["Engine", "Outcome", "Sender", "Source"]


class Outcome(Protocol):
    """What a run did."""

    tally: Tally


class Engine(Protocol):
    """Runs the handlers of an app. Spark, direct and the in-memory fake are engines."""

    def run(self, app: App) -> Outcome:
        """Run until told to stop."""
        ...


class Source(Protocol):
    """Where a runner reads from. Only the runner's own thread calls it."""

    is_exhausted: bool
    """Nothing more will come."""

    def fetch(self, most: int, timeout: float) -> list[Record[Any]]:
        """Up to *most* records, waiting no longer than *timeout* seconds; those of a partition in offset order."""
        ...


class Sender(Protocol):
    """Puts messages on topics. Calls come one at a time, under the runner's lock; callbacks run inside `poll`."""

    def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        delivered: Callable[[Exception | None], None],
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Hand over a message.

        *delivered* is called once, later, inside `poll`: with None when every in-sync replica has it, else with why.
        """
        ...

    def poll(self) -> None:
        """Run the callbacks of messages whose fate is known."""
        ...

    def hurry(self) -> None:
        """As `poll`; and what waits for further messages to go with it goes now, since none will come."""
        ...
