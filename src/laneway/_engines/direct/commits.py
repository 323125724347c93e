"""Commits: the seam between what is finished and how the group learns of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laneway._kafka import OffsetAndMetadata, Place
    from laneway.errors import AdminError

__all__ = ["Commits"]


class Commits(Protocol):
    """How offsets reach the group; the member's thread is the only one that calls it.

    A `GroupConsumer` commits by itself. A producer that commits them in its own transaction, together with the messages
    that the same records have led to, takes its place here; `GroupConsumer.metadata` tells it for whom.
    """

    def commit(self, offsets: Mapping[Place, OffsetAndMetadata]) -> None:
        """Commit, and return when the broker has it.

        Raises:
            BrokerUnavailableError: it did not happen, and may when tried again.
            FencedError: the group goes on without us.
        """
        ...

    def commit_soon(self, offsets: Mapping[Place, OffsetAndMetadata]) -> bool:
        """Begin to commit; False, and nothing happens, while an earlier one is under way."""
        ...

    def commit_apart(self, offsets: Mapping[Place, OffsetAndMetadata]) -> None:
        """Commit although an earlier commit is under way and is not answered, and return when the broker has it.

        Raises:
            AdminError: it is not known to have happened.
        """
        ...

    def answers(self) -> list[tuple[Mapping[Place, OffsetAndMetadata], AdminError | None]]:
        """What became of `commit_soon` since this was last asked, in order: None, or why the broker has it not."""
        ...
