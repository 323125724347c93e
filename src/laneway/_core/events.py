"""EventEmitter: makes events of what happens to records, as few as a tally keeps."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from laneway.errors import text_of
from laneway.observe import (
    CopyFailed,
    InterceptorFailed,
    Listener,
    RecordDeduplicated,
    RecordDeferred,
    RecordDropped,
    RecordHandled,
    RecordParked,
    RecordRetried,
    RecordSkipped,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laneway._core.headers import Failure
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway.observe import Event, Notes, Tally

__all__ = ["EventEmitter", "short_text"]

_LONGEST = 300  # characters of an error's text; the whole of it is in the headers of the copy


class EventEmitter:
    """Makes the events of one handler's records. The processor owns it.

    Args:
        spec: the handler; it knows which events are subscribed to.
        tally: where events are kept until they are collected.
        listener: gets notes of what is waited for; a `Listener` also gets each event at once.
    """

    def __init__(
        self,
        spec: HandlerSpec,
        tally: Tally,
        listener: Notes | None = None,
    ) -> None:
        self._name = spec.name
        self._tally = tally
        self._notes = listener
        self._listener = listener if isinstance(listener, Listener) else None
        self._kept: Counter[type] = Counter()
        self._wants_handled = RecordHandled in spec.wanted
        self._wants_skipped = RecordSkipped in spec.wanted
        self._wants_deduplicated = RecordDeduplicated in spec.wanted
        self.wants_ends = self._wants_handled or self._wants_skipped or self._wants_deduplicated
        """Whether events of records that did not fail are wanted."""

    def emit(self, event: Event) -> None:
        """Keep an event while there are few of its kind."""
        if self._kept[type(event)] < event.most:
            self._kept[type(event)] += 1
            self._tally.events.append(event)
        if self._listener is not None:
            self._listener.event(event)

    def note(self, words: str) -> None:
        """Pass on a note for the log."""
        if self._notes is not None:
            self._notes.note(words)

    def skipped(self, records: Sequence[Record[Any]], reasons: Mapping[int, Exception]) -> None:
        """Records were skipped, those whose ids are among the reasons with one."""
        if self._wants_skipped:
            for record in records:
                if not self._has_room(RecordSkipped):
                    break
                why = reasons.get(id(record))
                self.emit(RecordSkipped(*self._place(record), "" if why is None else _short(text_of(why))))

    def handled(self, records: Sequence[Record[Any]]) -> None:
        """Records were handled."""
        if self._wants_handled:
            for record in records:
                if not self._has_room(RecordHandled):
                    break
                self.emit(RecordHandled(*self._place(record)))

    def deduplicated(self, records: Sequence[Record[Any]]) -> None:
        """Records were done before."""
        if self._wants_deduplicated:
            for record in records:
                if not self._has_room(RecordDeduplicated):
                    break
                self.emit(RecordDeduplicated(*self._place(record)))

    def retried(self, record: Record[Any], error: Exception, pause: float) -> None:
        """A call failed and is repeated."""
        if self._has_room(RecordRetried):
            self.emit(RecordRetried(*self._place(record), short_text(error), timedelta(seconds=pause)))

    def deferred(self, record: Record[Any], failure: Failure | None, step: int) -> None:
        """A copy is on a retry topic."""
        if self._has_room(RecordDeferred):
            self.emit(RecordDeferred(*self._place(record), _as_text(failure), step))

    def parked(self, record: Record[Any], failure: Failure, topic: str) -> None:
        """A copy is on the error topic."""
        if self._has_room(RecordParked):
            self.emit(RecordParked(*self._place(record), _as_text(failure), topic))

    def dropped(self, record: Record[Any], failure: Failure) -> None:
        """An interceptor let no copy go out."""
        if self._has_room(RecordDropped):
            self.emit(RecordDropped(*self._place(record), _as_text(failure)))

    def copy_failed(self, topic: str, error: Exception, tries: int) -> None:
        """A copy or message could not be written."""
        if self._has_room(CopyFailed):
            self.emit(CopyFailed(self._name, topic, short_text(error), tries))

    def interceptor_failed(self, interceptor: str, record: Record[Any], error: Exception) -> None:
        """An error interceptor failed."""
        if self._has_room(InterceptorFailed):
            place = (record.topic, record.partition, record.offset)
            event = InterceptorFailed(self._name, interceptor, *place, short_text(error))
            if not self._kept[InterceptorFailed]:  # once, since each copy would say the same
                self.note(f"{event}; the copy is parked as it was before it")
            self.emit(event)

    def _has_room(self, kind: type[Event]) -> bool:
        return self._listener is not None or self._kept[kind] < kind.most

    def _place(self, record: Record[Any]) -> tuple[str, str, int, int, int]:
        return (self._name, record.topic, record.partition, record.offset, record.attempt)


def short_text(error: Exception) -> str:
    """An error as events show it."""
    return _short(f"{type(error).__name__}: {text_of(error)}")


def _as_text(failure: Failure | None) -> str:
    """As `short_text`, of a failure that is kept as text."""
    return "" if failure is None else _short(f"{failure.type.rpartition('.')[2]}: {failure.message}")


def _short(text: str) -> str:
    return text[:_LONGEST]
