"""Replies: the messages that a handler returned, on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from laneway.errors import ProduceError, TimestampRefusedError
from laneway.pipeline._outbox import Letter, is_hopeless
from laneway.retry import Park, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laneway._record import Record
    from laneway.pipeline._copies import Copies
    from laneway.pipeline._outbox import Outbox
    from laneway.pipeline._result import Posted

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
        left, is_parked = len(posted), False

        def landed() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._handled(records, older, is_parked=False)

        def undeliverable(letter: Letter, error: Exception) -> bool:
            nonlocal is_parked
            if not is_hopeless(error) and not isinstance(error, TimestampRefusedError):
                return False
            why = ProduceError(f"a message for {letter.posted[0]} cannot be delivered: {text_of(error)}")
            if records and not is_parked:
                is_parked = True
                self._copies.send_all(
                    [(record, why, Park()) for record in records],
                    lambda: self._handled(records, older, is_parked=True),
                )
            elif not records and self._notice is not None:
                self._notice(
                    f"{why}; it is given up, since every record of its batch was marked and none can be parked"
                )
            return True

        if not posted:
            left = 1
            landed()
        for message in posted:
            self._outbox.post(Letter(message, landed, undeliverable))
