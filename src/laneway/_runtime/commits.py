"""When and how finished offsets are committed."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from laneway.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laneway._kafka import OffsetAndMetadata, Place
    from laneway._runtime.partition import Partitions
    from laneway._runtime.rebalance import Rebalance
    from laneway._runtime.worker_loop import RecordSource

__all__ = ["CommitStrategy", "Committer"]

_COMMIT = 0.25  # seconds between commits; what a killed process finished since the last one runs again
_COUNT = 50_000  # records after which a commit comes sooner
_ASK = 1.0  # seconds between questions for the ids of the topics, when nothing is to be committed
_AGAIN = 0.2  # seconds before a commit is tried again that could not be sent
_LAST = 10.0  # seconds that the last commit may take
_APART = 1.0  # seconds without an answer after which the last commit goes over a connection of its own


class CommitStrategy(Protocol):
    """How offsets reach the group; only the loop's thread calls it.

    A `GroupConsumer` commits by itself. A producer that commits them in its own transaction, together with the messages
    that the same records have led to, takes its place here; `GroupConsumer.metadata` identifies the member.
    """

    def commit(self, offsets: Mapping[Place, OffsetAndMetadata]) -> None:
        """Commit, and return when the broker has it.

        Raises:
            BrokerUnavailableError: it did not happen, and may when tried again.
            FencedError: the group has removed this member.
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
        """The answers to `commit_soon` since the last call, in order: the error, or None."""
        ...


class Committer:
    """Commits for a loop while it runs, and for the last time. The loop's thread owns it.

    Args:
        source: reads as a member of the group.
        rebalance: knows the partitions, and the answers to commits.
        partitions: the owned ones.
        now: the time, as `time.monotonic` gives it.
    """

    def __init__(self, source: RecordSource, rebalance: Rebalance, partitions: Partitions, now: float) -> None:
        self._source = source
        self._rebalance = rebalance
        self._partitions = partitions
        self._committed, self._asked = now, 0.0
        self._due: tuple[int, dict[Place, OffsetAndMetadata]] | None = None
        """What is to be committed when the brokers have said that the topics are the same, and in which epoch."""
        self._question: tuple[Mapping[Place, OffsetAndMetadata], float] | None = None
        """A commit that asks whether the partitions are still owned, and when it was sent."""
        self._last: tuple[float, float] | None = None
        """When the last commit began, and when to try it on another connection."""
        self.count = 0
        """Records that were read since the last commit."""
        self.is_done = False
        """Whether everything finished was committed at the end."""

    def tend(self, now: float) -> None:
        """Act on answers, and commit when it is time."""
        answered = self._rebalance.take_answers()
        if self._last is not None:
            return  # another commit would overwrite the marker that nothing is under way
        if not self._rebalance.lease.is_valid:
            self._ask_for_lease(answered)
        elif now - self._committed >= _COMMIT or self.count >= _COUNT:
            self._commit(now)

    def _ask_for_lease(self, answered: list[Mapping[Place, OffsetAndMetadata]]) -> None:
        """No poll came for longer than a session lasts: ask the group whether the partitions are still owned.

        A commit asks it: the group refuses a member that it has removed. It has the same content as the regular
        commits, which wait for the answer.
        """
        lease = self._rebalance.lease
        asked, self._question = self._question, None
        if not self._partitions:
            lease.confirm(lease.now())
        elif asked is not None and any(said is asked[0] for said in answered):
            lease.confirm(asked[1])
        elif self._source.is_member:
            self._partitions.failed(self._partitions)  # or nothing would be due that was sent before
            due, now = self._partitions.due(), lease.now()
            if self._rebalance.commits.commit_soon(due):
                self._partitions.sent(due)
                self._question = due, now
            else:
                self._question = asked

    def _commit(self, now: float) -> None:
        """Send a commit, when it is known that the topics are still those that were read.

        Its content is fixed before the brokers are asked, so it has nothing of a topic that is recreated later.
        """
        logs = self._rebalance.logs
        if self._due is None:
            due = self._partitions.due()
            if not due and now - self._asked < _ASK:
                self._committed, self.count = now, 0
                return
            self._due, self._asked = (self._source.epoch, due), now
            logs.ask()
        if not logs.is_answered:
            return
        is_sure, (epoch, due) = logs.is_sure(), self._due
        self._committed, self.count, self._due = now, 0, None
        # A partition of an earlier epoch may belong to another member by now; a later commit says the same and more.
        if not is_sure or epoch != self._source.epoch or (due and not self._rebalance.commits.commit_soon(due)):
            self._committed = now - _COMMIT + _AGAIN
        else:
            self._partitions.sent(due)

    def commit_now(self, now: float) -> bool:
        """Commit what is finished, and return when the broker has it; False when it has not."""
        self._committed, self.count, self._due = now, 0, None
        self._rebalance.take_answers()
        self._rebalance.logs.look(self._partitions)
        return self._rebalance.commit_now(self._partitions.due(), now + _AGAIN)

    def commit_last(self, now: float) -> bool:
        """Commit what is finished, and see it acknowledged; ask it until it says True, and read in between.

        During a rebalance the broker answers no commit on the member's own connection. The rebalance is over when every
        member has joined again or its session has ended, which takes long when one was killed. So a commit that is not
        answered soon is sent over another connection too.
        """
        if self._last is None:
            self._last = now, now + _APART
            self._rebalance.logs.look(self._partitions)
        if self._rebalance.is_expelled:
            return True
        began, apart = self._last
        due = self._partitions.due(tuple(self._partitions))
        self.is_done = not due
        if not due or now - began > _LAST:
            return True
        if now > apart:
            self._last = began, now + _APART
            with suppress(AdminError):  # the commit under way may still be answered
                self._rebalance.commits.commit_apart(due)
                self._rebalance.committed(due)
        elif self._rebalance.commits.commit_soon(due):
            self._partitions.sent(due)
        return False
