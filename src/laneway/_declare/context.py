"""The record that is being handled, for code that the handler calls."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laneway._declare.record import Record

__all__ = ["current_record", "set_current_record"]

_current: ContextVar[Record[Any] | None] = ContextVar("laneway_current_record", default=None)
set_current_record = _current.set
"""Called by the lane before each call of a single handler, and with None after a turn of sync calls."""


def current_record() -> Record[Any] | None:
    """The record that the calling code is handling; None outside a handler, and in handlers of several records.

    It is right in async handlers and the tasks they start, in handlers on threads, and in processes. A thread that a
    handler starts itself has it only if it is started with ``contextvars.copy_context().run``. It is the record as it
    was read: changes by consume interceptors are not in it.

    Example::

        def correlation_id() -> bytes | None:
            record = current_record()
            return None if record is None else record.header("correlation-id")
    """
    return _current.get()
