"""Protocols of the parts that can be replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway._declare.app import App
    from laneway._declare.record import Headers, Record
    from laneway.observe import Tally

__all__ = ["Engine", "Outcome", "Sender", "Source"]


class Outcome(Protocol):
    """The result of a run."""

    tally: Tally


class Engine(Protocol):
    """Runs the handlers of an app. Spark, direct and the in-memory fake are engines."""

    def run(self, app: App) -> Outcome:
        """Run until a stop."""


class Source(Protocol):
    """The source of a runner's records. Only the runner's thread calls it."""

    is_exhausted: bool
    """Whether no more records will come."""

    def fetch(self, most: int, timeout: float) -> list[Record[Any]]:
        """Up to *most* records, waiting no longer than *timeout* seconds; those of a partition in offset order."""


class Sender(Protocol):
    """Sends messages. Calls come one at a time, under the runner's lock; callbacks run inside `poll`."""

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
        """Queue a message.

        *delivered* is called once, later, inside `poll`: with None when all in-sync replicas have it, or with
        the error.
        """

    def poll(self) -> None:
        """Run the callbacks of finished deliveries."""

    def hurry(self) -> None:
        """As `poll`; also send queued messages at once, because no more will come."""
