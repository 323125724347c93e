"""ParkedCopy: a copy on its way to the error topic, and what becomes of one that does not fit there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway._core.outbox import Letter, is_hopeless
from laneway.errors import MessageTooLargeError, TimestampRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laneway._core.copies import Copies
    from laneway._core.headers import Failure, Reduction
    from laneway._core.result import Posted
    from laneway._declare.record import Record

    Make = Callable[[Reduction], Posted | None]
    """Makes a copy that leaves something out; None when an interceptor lets none go out."""

__all__ = ["ParkedCopy"]


class ParkedCopy(Letter):
    """One for the error topic, and how it is made smaller.

    The trace is what laneway added; without it the copy is hardly larger than the record was. Where even that does not
    fit, the whole copy is tried again and again, each time followed by the one without the trace: the limit may be
    raised. Or, if that is asked for, a reference goes out that tells where the record is.
    """

    __slots__ = ("_copies", "_failure", "_make", "_record", "_reduced", "_then")

    def __init__(
        self,
        copies: Copies,
        record: Record[Any],
        posted: Posted,
        then: Callable[[], None],
        failure: Failure,
        make: Make,
    ) -> None:
        super().__init__(posted)
        self._copies = copies
        self._record = record
        self._then = then
        self._failure = failure
        self._make = make
        self._reduced: Reduction = ""

    @property
    def records(self) -> Sequence[Record[Any]]:
        return (self._record,)

    def withdrawn(self) -> None:
        self._then()

    def landed(self) -> None:
        is_reduced = self._reduced != ""
        self._copies.parked(self._record, self._failure, self.posted[0], self._then, is_reduced=is_reduced)

    def undeliverable(self, error: Exception) -> bool:
        if isinstance(error, TimestampRefusedError):
            # A header tells the record's own; the time of the copy is better than none.
            self.posted = (*self.posted[:5], None)
        if not is_hopeless(error):
            return self._copies.is_rescued(self._record, error, self._then)
        self.is_changed = self._shrink(is_too_large=isinstance(error, MessageTooLargeError))
        if not self.is_changed and self._copies.is_rescued(self._record, error, self._then):
            return True
        smaller = self._make(self._reduced)
        if smaller is None:
            self._copies.drop(self._record, self._failure)
            self._then()
            return True
        self.posted = smaller
        return False

    def _shrink(self, *, is_too_large: bool) -> bool:
        """Choose what to send next; False when there is nothing smaller, so that it waits."""
        if self._reduced == "":
            self._reduced = "trace"
        elif is_too_large and self._copies.waits:
            self._reduced = ""
            return False
        elif self._reduced == "trace":
            # What no client takes may be in a header that an interceptor has made.
            self._reduced = self._copies.headers_size(self._record) if is_too_large else 0
        elif self._reduced:
            self._reduced //= 2
        else:
            return False
        return True
