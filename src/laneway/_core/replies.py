"""Replies: the messages that a handler returned, on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from laneway._core.outbox import Letter, is_hopeless
from laneway._declare.retry import Park
from laneway.errors import ProduceError, TimestampRefusedError, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laneway._core.copies import Copies
    from laneway._core.outbox import Outbox
    from laneway._core.result import Posted
    from laneway._declare.record import Record

__all__ = ["Replies"]


class _Handled(Protocol):
    def __call__(self, records: Sequence[Record[Any]], older: Sequence[Record[Any]], *, is_parked: bool) -> None: ...


class Replies:
    """Sends messages; the records that led to them are finished when the last one is acknowledged.

    Args:
        outbox: what sends them.
        copies: where the records go when a message can never be delivered.
        handled: told of records, and of those that they supersede, when their messages are safe.
        notice: told in words when a message is given up.
    """

    def __init__(
        self, outbox: Outbox, copies: Copies, *, handled: _Handled, notice: Callable[[str], None] | None
    ) -> None:
        self._outbox = outbox
        self._copies = copies
        self._handled = handled
        self._notice = notice

    def send(self, records: Sequence[Record[Any]], posted: list[Posted], older: Sequence[Record[Any]] = ()) -> None:
        """Send the messages of records that were handled."""
        if not posted:
            self._handled(records, older, is_parked=False)
            return
        reply = _Reply(self, records, older, len(posted))
        for message in posted:
            self._outbox.post(_Message(message, reply))

    def landed(self, reply: _Reply) -> None:
        """All messages of a reply are safe."""
        self._handled(reply.records, reply.older, is_parked=False)

    def park(self, reply: _Reply, why: ProduceError) -> None:
        """One of them can never be delivered."""
        if reply.records:
            self._copies.send_all(
                [(record, why, Park()) for record in reply.records],
                lambda: self._handled(reply.records, reply.older, is_parked=True),
            )
        elif self._notice is not None:
            self._notice(f"{why}; it is given up, since every record of its batch was marked and none can be parked")


class _Reply:
    """What records led to: one message, or several."""

    __slots__ = ("is_parked", "left", "older", "records", "replies")

    def __init__(
        self, replies: Replies, records: Sequence[Record[Any]], older: Sequence[Record[Any]], left: int
    ) -> None:
        self.replies = replies
        self.records = records
        self.older = older
        self.left = left
        """Messages that are not safe yet."""
        self.is_parked = False


class _Message(Letter):
    """One message of a reply."""

    __slots__ = ("_reply",)

    def __init__(self, posted: Posted, reply: _Reply) -> None:
        super().__init__(posted)
        self._reply = reply

    @property
    def records(self) -> Sequence[Record[Any]]:
        return self._reply.records

    def landed(self) -> None:
        reply = self._reply
        reply.left -= 1
        if not reply.left:
            reply.replies.landed(reply)

    def undeliverable(self, error: Exception) -> bool:
        if not is_hopeless(error) and not isinstance(error, TimestampRefusedError):
            return False
        reply = self._reply
        if not (reply.records and reply.is_parked):
            reply.is_parked = True
            why = ProduceError(f"a message for {self.posted[0]} cannot be delivered: {text_of(error)}")
            reply.replies.park(reply, why)
        return True
