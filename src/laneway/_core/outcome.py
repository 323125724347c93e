"""What follows for a record that was not handled. `decide` makes outcomes, the processor applies them.

Records that were handled, skipped or have led to messages need no outcome of their own: a report lists them in bulk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._core.acks import Ack
    from laneway._declare.record import Record

__all__ = ["ERROR_TOPIC", "AwaitAck", "Copy", "Outcome", "RetryAt"]

ERROR_TOPIC = 0
"""In place of the step of a copy: it goes to the error topic."""


class RetryAt(NamedTuple):
    """The record stays at the head of its key and is called again at a time."""

    record: Record[Any]
    at: float
    pause: float
    error: Exception
    counts: bool = True
    """Whether the call used an attempt."""


class Copy(NamedTuple):
    """A copy goes to a retry topic or the error topic; the record is finished when it is acknowledged."""

    record: Record[Any]
    step: int
    """Of the retry topic; `ERROR_TOPIC` for the other one."""
    error: Exception | None
    """None: it did not fail, it only waits behind its key."""
    holds_key: bool = True
    """Whether the key waits for the acknowledgement."""
    superseded: Sequence[Record[Any]] = ()
    """Older records of the key, finished with it."""


class AwaitAck(NamedTuple):
    """The handler has left the record to its `Ack`; the key waits."""

    record: Record[Any]
    ack: Ack


Outcome = RetryAt | Copy | AwaitAck
