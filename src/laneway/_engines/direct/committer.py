"""Committer: when the group learns what is finished."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from laneway.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laneway._engines.direct.assignment import Assignment
    from laneway._kafka import GroupConsumer, OffsetAndMetadata, Place
    from laneway._runtime.partition import Partitions

__all__ = ["Committer"]

_COMMIT = 0.25  # seconds between commits; what a killed process finished since the last one runs again
_COUNT = 50_000  # records after which a commit comes sooner
_ASK = 1.0  # seconds between questions for the ids of the topics, when nothing is to be committed
_AGAIN = 0.2  # seconds before a commit is tried again that could not be sent
_LAST = 10.0  # seconds that the last commit may take
_APART = 1.0  # seconds without an answer after which the last commit goes over a connection of its own


class Committer:
    """Commits for a member while it runs, and for the last time. The member's thread owns it.

    Args:
        membership: the member, as Kafka sees it.
        assignment: knows the partitions, and what became of commits.
        partitions: those that are ours.
        now: the time, as `time.monotonic` gives it.
    """

    def __init__(self, membership: GroupConsumer, assignment: Assignment, partitions: Partitions, now: float) -> None:
        self._membership = membership
        self._assignment = assignment
        self._partitions = partitions
        self._committed, self._asked = now, 0.0
        self._due: tuple[int, dict[Place, OffsetAndMetadata]] | None = None
        """What is to be committed when the brokers have said that the topics are the same, and in which epoch."""
        self._question: tuple[Mapping[Place, OffsetAndMetadata], float] | None = None
        """A commit that asks whether the partitions are still ours, and when it was sent."""
        self._last: tuple[float, float] | None = None
        """When the last commit began, and when to try it on another connection."""
        self.count = 0
        """Records that were read since the last commit."""
        self.is_done = False
        """Whether everything finished was committed at the end."""

    def tend(self, now: float) -> None:
        """Act on answers, and commit when it is time."""
        heard = self._assignment.hear_commits()
        if self._last is not None:
            return  # another commit behind the last one would take its word back that all is clean
        if not self._assignment.lease.is_valid:
            self._ask_for_lease(heard)
        elif now - self._committed >= _COMMIT or self.count >= _COUNT:
            self._commit(now)

    def _ask_for_lease(self, heard: list[Mapping[Place, OffsetAndMetadata]]) -> None:
        """No poll came for longer than a session lasts: ask the group whether the partitions are still ours.

        A commit asks it: the group takes none of one whom it has given up. It says of each partition what is finished
        by now, as the regular ones do, which wait for the answer.
        """
        lease = self._assignment.lease
        asked, self._question = self._question, None
        if not self._partitions:
            lease.confirm(lease.now())
        elif asked is not None and any(said is asked[0] for said in heard):
            lease.confirm(asked[1])
        elif self._membership.is_member:
            self._partitions.failed(self._partitions)  # or nothing would be due that was sent before
            due, now = self._partitions.due(), lease.now()
            if self._assignment.commits.commit_soon(due):
                self._partitions.sent(due)
                self._question = due, now
            else:
                self._question = asked

    def _commit(self, now: float) -> None:
        """Send a commit, when it is known that the topics are still those that were read.

        What it says is taken down before the brokers are asked, so nothing of a topic that is recreated later is in it.
        """
        logs = self._assignment.logs
        if self._due is None:
            due = self._partitions.due()
            if not due and now - self._asked < _ASK:
                self._committed, self.count = now, 0
                return
            self._due, self._asked = (self._membership.epoch, due), now
            logs.ask()
        if not logs.is_answered:
            return
        is_sure, (epoch, due) = logs.is_sure(), self._due
        self._committed, self.count, self._due = now, 0, None
        # What was taken down in an earlier epoch may be another member's by now; a later commit says the same and more.
        if not is_sure or epoch != self._membership.epoch or (due and not self._assignment.commits.commit_soon(due)):
            self._committed = now - _COMMIT + _AGAIN
        else:
            self._partitions.sent(due)

    def commit_last(self, now: float) -> bool:
        """Commit what is finished, and see it acknowledged; ask it until it says True, and read in between.

        During a rebalance the broker answers no commit on the member's own connection. The rebalance is over when every
        member has joined again or its session has ended, which takes long when one was killed. So a commit that is not
        answered soon is sent over another connection too.
        """
        if self._last is None:
            self._last = now, now + _APART
            self._assignment.logs.look(self._partitions)
        if self._assignment.is_expelled:
            return True
        began, apart = self._last
        due = self._partitions.due(tuple(self._partitions))
        self.is_done = not due
        if not due or now - began > _LAST:
            return True
        if now > apart:
            self._last = began, now + _APART
            with suppress(AdminError):  # the commit under way may still be answered
                self._assignment.commits.commit_apart(due)
                self._assignment.committed(due)
        elif self._assignment.commits.commit_soon(due):
            self._partitions.sent(due)
        return False
