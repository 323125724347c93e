"""BulkDelivery: what became of many messages."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from laneway.errors import ProduceError
from laneway.producer._delivery import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laneway.producer._delivery import Owner

__all__ = ["BulkClient", "BulkDelivery", "BulkProduceError", "FailedMessage"]

_KEPT = 1_000


class BulkClient(Protocol):
    """Sends the messages of a bulk."""

    def failed(self, topic: str, error: Any, answered: Callable[[ProduceError | None, int, int], None]) -> None:
        """Turn a client's own error into one that says more, and pass it on."""
        ...


class FailedMessage(NamedTuple):
    """A message of a bulk that was not written."""

    topic: str
    key: bytes | None
    error: ProduceError


class BulkProduceError(ProduceError):
    """Some messages of `produce_all` were not written.

    Args:
        total: how many messages there were.
        count: how many of them failed.
        failures: the first thousand of these.
    """

    def __init__(self, total: int, count: int, failures: Sequence[FailedMessage]) -> None:
        first = f"; the first for {failures[0].topic}: {failures[0].error}" if failures else ""
        super().__init__(f"{count:,} of {total:,} messages were not written{first}")
        self.total, self.count, self.failures = total, count, tuple(failures)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all arguments."""
        return (type(self), (self.total, self.count, self.failures))


class BulkDelivery(Pending[int]):
    """What became of the messages of one `produce_all`: ``await`` it, call `result`, or ignore it.

    The result is how many messages were written. If any was not, the wait raises a `BulkProduceError`.
    """

    __slots__ = ("_answers", "_broken", "_failed", "_failures", "_needed")

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner)
        self._answers = itertools.count(1)
        """Counts the answers, and the end of the sending as one more; a step of it is atomic."""
        self._needed: int | None = None
        self._failed = 0
        self._failures: list[FailedMessage] = []
        self._broken: Exception | None = None

    def callback(self, client: BulkClient) -> Callable[[Any, Any], None]:
        """What a client calls for each message of this bulk, with its error or None, and the message."""
        answers = self._answers

        def answered(error: Any, message: Any) -> None:
            if error is None:
                if next(answers) == self._needed:
                    self._end()
                return
            topic, key = message.topic(), message.key()
            if isinstance(error, ProduceError):
                self._fail(FailedMessage(topic, key, error))
                return

            def fail(found: ProduceError | None, _partition: int, _offset: int) -> None:
                self._fail(FailedMessage(topic, key, found or ProduceError(str(error))))

            client.failed(topic, error, fail)

        return answered

    def sent(self, count: int, broken: Exception | None = None) -> None:
        """All messages are sent.

        Args:
            count: how many.
            broken: the error of the iteration, if it ended early.
        """
        self._broken = broken
        self._needed = count + 1
        if next(self._answers) == count + 1:
            self._end()

    def _fail(self, failed: FailedMessage) -> None:
        with self._owner.lock:
            self._failed += 1
            if len(self._failures) < _KEPT:
                self._failures.append(failed)
        if next(self._answers) == self._needed:
            self._end()

    def _end(self) -> None:
        assert self._needed is not None  # noqa: S101 - for the type checker: an end needs a number
        total = self._needed - 1
        self._owner.answered(total - self._failed, self._failed)
        error: ProduceError | None = BulkProduceError(total, self._failed, self._failures) if self._failed else None
        if self._broken is not None:
            error = ProduceError(f"the messages ended early, after {total:,}: {self._broken!r}")
            error.__cause__ = self._broken
        self._finish(total - self._failed, error)

    def __del__(self) -> None:
        """Report errors that no code has seen."""
        if self._error is not None and not self._is_observed:
            self._owner.unobserved(max(1, self._failed), self._error)
