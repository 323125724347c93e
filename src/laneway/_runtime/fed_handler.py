"""FedHandler: one handler at work, as the loop that feeds it sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from laneway._declare.record import Record
    from laneway._kafka import Place

__all__ = ["FedHandler"]


class FedHandler(Protocol):
    """Takes records of its topics and says how far it is. Only the thread of the loop calls it, but for `progress`."""

    @property
    def capacity(self) -> int:
        """How many records it may hold."""

    @property
    def room(self) -> int:
        """How many more records may be put in."""

    @property
    def is_half_free(self) -> bool:
        """Whether half of what it may hold is worked off, in records and in bytes."""

    def put(self, records: list[Record[Any]]) -> None:
        """Take records, those of each partition in offset order."""

    def open(self, place: Place) -> None:
        """Take records of a partition from now on."""

    def restart(self, place: Place, epoch: int) -> None:
        """A log begins again: what was read of it up to *epoch* counts no more."""

    def release(self, place: Place) -> None:
        """Begin nothing more of a partition."""

    def is_drained(self, place: Place) -> bool:
        """Whether a released partition has no record left that was begun."""

    def fence(self, place: Place, epoch: int) -> None:
        """Let nothing count that was read of a partition up to *epoch*, and forget what is known of it."""

    def progress(self, place: Place, start: int) -> tuple[int, list[int]]:
        """Up to where a partition was read, from *start* on, and what is unfinished of it. Any thread may ask."""

    def count(self, place: Place) -> int:
        """How many records of a partition are unfinished."""

    def has(self, place: Place) -> bool:
        """Whether something that was read of a partition may be unfinished."""

    def share(self, partitions: int) -> None:
        """So many partitions are ours: have lanes for each."""

    def lose(self, count: int) -> None:
        """So many records were deleted before they could be read."""
