"""CopyWriter: builds the copies of records for retry and error topics. It sends nothing and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway._core.headers import Failure, deferred_headers, own_size, parked_headers
from laneway._core.interceptors import intercepted_copy
from laneway._core.messages import ErrorCopy, RetryCopy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._clock import Clock
    from laneway._core.events import EventEmitter
    from laneway._core.headers import Reduction
    from laneway._core.turn import EncodedMessage
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record

__all__ = ["CopyWriter"]


class CopyWriter:
    """Builds the copies of one handler's records.

    Args:
        spec: the handler.
        app: the app's name.
        clock: the time.
        events: reports error interceptors that fail.
    """

    def __init__(self, spec: HandlerSpec, app: str, clock: Clock, events: EventEmitter) -> None:
        self._spec = spec
        self._app = app = app if spec.rerun is None else spec.rerun.app
        self._clock = clock
        self._events = events
        self._error_topic = spec.error_topic_of(app)
        self._retry_topics = spec.retry_topics_of(app)
        self._delays = [round(delay.total_seconds() * 1000) for delay in spec.retry.delays]
        self._interceptors = spec.interceptors.error
        self._keeps_cause = bool(self._interceptors)

    def for_retry(
        self, record: Record[Any], step: int, error: Exception | None, superseded: Sequence[Record[Any]] = ()
    ) -> RetryCopy:
        """The copy for the retry topic of a step."""
        # The same partition: what queues behind a record must be found where that record is. The time of this copy,
        # because the delay is counted from it; the record's own is in a header.
        now = int(self._clock.wall() * 1000)
        failure = None if error is None else Failure.of(error, with_trace=False)
        due = now + self._delays[step - 1]
        headers = deferred_headers(record, failure, app=self._app, handler=self._spec.name, step=step, due=due)
        encoded = (self._retry_topics[step - 1], record.key, record.raw, headers, record.partition, now)
        return RetryCopy(step, encoded, record, failure, error if self._keeps_cause else None, superseded)

    def for_error(
        self,
        record: Record[Any],
        failure: Failure,
        error: Exception | None,
        superseded: Sequence[Record[Any]] = (),
    ) -> ErrorCopy | None:
        """The copy for the error topic; None when an error interceptor lets none go out."""
        cause = error if self._keeps_cause else None  # else it is dropped, with the stack frames that it holds
        encoded = self.encoded(record, failure, cause, "")
        return None if encoded is None else ErrorCopy(encoded, record, failure, cause, superseded)

    def encoded(
        self, record: Record[Any], failure: Failure, cause: Exception | None, reduced: Reduction
    ) -> EncodedMessage | None:
        """What is sent to the error topic; None when an error interceptor lets nothing go out."""
        headers = parked_headers(
            record,
            failure,
            app=self._app,
            handler=self._spec.name,
            now=int(self._clock.wall() * 1000),
            reduced=reduced,
            style=self._spec.error_headers,
        )
        value = None if isinstance(reduced, int) else record.raw
        # The record's own timestamp and no partition: records of one key stay together on the error topic.
        encoded = (self._error_topic, record.key, value, headers, None, record.timestamp)
        if not self._interceptors or cause is None:
            return encoded
        # Also when it is made smaller: what was masked in the first copy must not be in the second.
        return intercepted_copy(encoded, record, cause, self._interceptors, self._events)

    def headers_size(self, record: Record[Any]) -> int:
        """Bytes of the headers of its own that a copy of a record has."""
        return own_size(record, self._spec.error_headers)
