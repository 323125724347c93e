"""All errors of laneway, and the signals that a handler may raise on purpose.

::

    LanewayError
    ├── SettingsError         a configuration file, variable or flag is wrong; lists every problem at once
    ├── DeclarationError      an app, topic or handler is declared in a way that cannot work
    ├── CodecError            bytes cannot be turned into a value, or a value into bytes
    ├── DedupError            a record's id is missing, or was used with another payload
    ├── UnavailableError      a service does not answer; the record waits
    │   ├── SchemaRegistryError    the schema registry
    │   ├── DedupStoreError        the store of handled records
    │   └── ClaimedError           another process is at work on the record's id
    ├── EngineError           an engine cannot start or continue
    │   ├── CheckpointError   Spark's temporary folder cannot be written
    │   └── DataLossError     unread records are gone from the topic
    ├── ProduceError          the brokers did not accept a message
    │   ├── InDoubtError           it is unknown whether they have it
    │   ├── TransactionAbortedError  nothing of a transaction counts
    │   ├── ProducerFencedError    another producer has its transactional id
    │   ├── MessageTooLargeError   it is larger than the topic allows
    │   └── TimestampRefusedError  its timestamp is further from now than the topic allows
    ├── AdminError            a topic or offset request failed
    ├── BrokerError           the development broker cannot be fetched, started or stopped
    └── UnreachableStateError this should never happen; please open an issue

Signals are not errors and do not end in ``Error``: `Reject`, `Skip`, `RetryAfter`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

__all__ = [
    "AdminError",
    "BrokerError",
    "CheckpointError",
    "ClaimedError",
    "CodecError",
    "DataLossError",
    "DeclarationError",
    "DedupError",
    "DedupStoreError",
    "Duplicate",
    "EngineError",
    "HandlerDiedError",
    "HandlerTimeoutError",
    "InDoubtError",
    "LanewayError",
    "MessageTooLargeError",
    "Problem",
    "ProduceError",
    "ProducerFencedError",
    "Reject",
    "RetryAfter",
    "SchemaRegistryError",
    "SettingsError",
    "Skip",
    "TimestampRefusedError",
    "TransactionAbortedError",
    "Unacknowledged",
    "UnavailableError",
    "UnreachableStateError",
]


class LanewayError(Exception):
    """The base class of all errors of laneway."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in the configuration, and its fix.

    Args:
        source: the file, environment variable or flag.
        line: line in the file, counted from 1; None when there is no file.
        key: dotted path of the setting, such as ``handlers.charge.lanes``.
        message: what is wrong.
        fix: what to write instead.
    """

    source: str
    line: int | None
    key: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        """One line: place, key, problem, fix."""
        place = f"{self.source}:{self.line}" if self.line else self.source
        text = f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"
        return f"{text}. Fix: {self.fix}" if self.fix else text


class SettingsError(LanewayError):
    """The configuration is wrong; `problems` has all reasons, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = f"{count} problem{'s' if count != 1 else ''} in the configuration"
        super().__init__("\n".join([head, *(f"  {problem}" for problem in self.problems)]))


class DeclarationError(LanewayError):
    """An app, topic or handler is declared in a way that cannot work."""


class CodecError(LanewayError):
    """Bytes cannot be turned into a value, or a value into bytes."""


class DedupError(LanewayError):
    """The id of a record is missing, or was used before with another payload. The record is parked."""


class UnavailableError(LanewayError):
    """A service does not answer, or refuses to.

    It says nothing about the record, which is tried again without using an attempt until the service answers.

    Args:
        text: what happened.
        retry_after: seconds before which asking again is useless.
    """

    def __init__(self, text: str, retry_after: float = 1.0) -> None:
        super().__init__(text)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[UnavailableError], tuple[str, float]]:
        """Pickle both arguments."""
        return (type(self), (str(self), self.retry_after))


class SchemaRegistryError(UnavailableError):
    """The schema registry does not answer, or refuses to."""


class DedupStoreError(UnavailableError):
    """The store of handled records does not answer, or refuses to."""


class ClaimedError(UnavailableError):
    """Another process has claimed the id of a record and has not finished it."""


class EngineError(LanewayError):
    """An engine cannot start or continue."""


class CheckpointError(EngineError):
    """Spark's temporary folder cannot be written."""


class DataLossError(EngineError):
    """Unread records are gone from the topic (retention, deletion, truncation)."""


class ProduceError(LanewayError):
    """The brokers did not accept a message."""


class InDoubtError(ProduceError):
    """It is unknown whether the brokers have a message, or committed a transaction: no answer came to what was sent."""


class TransactionAbortedError(ProduceError):
    """A transaction was aborted: consumers with ``read_committed`` see nothing of it. It may be tried again."""


class ProducerFencedError(ProduceError):
    """Another producer uses the transactional id, or the transaction took too long. This producer can go no further."""


class MessageTooLargeError(ProduceError):
    """A message is larger than its topic or the client allows."""


class TimestampRefusedError(ProduceError):
    """A message's timestamp is further in the future or past than its topic allows."""


class AdminError(LanewayError):
    """A topic or offset request failed."""


class BrokerError(LanewayError):
    """The development broker cannot be fetched, started or stopped; the message says how to fix it."""


class HandlerDiedError(LanewayError):
    """The process in which a handler ran died."""


class HandlerTimeoutError(LanewayError):
    """A handler ran longer than its time limit."""


class UnreachableStateError(LanewayError):
    """This should never happen. Please open an issue if it does."""


class Reject(Exception):  # noqa: N818 - a signal, not an error
    """Raised by a handler to send the record straight to the error topic."""

    def __init__(self, reason: str = "rejected by the handler") -> None:
        super().__init__(reason)


class Skip(Exception):  # noqa: N818 - a signal, not an error
    """Raised by a handler to finish the record without handling it; it counts as skipped."""

    def __init__(self, reason: str = "skipped by the handler") -> None:
        super().__init__(reason)


class Duplicate(Skip):
    """The record's id is done already: the record is finished without a call and counts as duplicate."""

    def __init__(self, reason: str = "its id was handled before") -> None:
        super().__init__(reason)


class RetryAfter(Exception):  # noqa: N818 - a signal, not an error
    """Raised by a handler to retry the record, not before *delay* has passed; it uses one attempt.

    With attempts left the record waits in place, for *delay* instead of the usual pause. With retry topics it goes to
    the next step that waits for *delay* or longer; when no step left does, it waits in place instead of taking the
    next step. With `Retry(attempts=1)` and no steps, the default, it gets up to ten retries; then its record is parked.
    """

    def __init__(
        self, delay: float | str | timedelta | None = None, reason: str = "the handler requested a retry"
    ) -> None:
        self.delay = delay
        super().__init__(reason)

    def __reduce__(self) -> tuple[type[RetryAfter], tuple[float | str | timedelta | None, str]]:
        """Pickle both arguments."""
        return (type(self), (self.delay, str(self)))


class Unacknowledged(Exception):  # noqa: N818 - a signal, not an error
    """Internal: a handler returned without acknowledging its record, which is neither handled nor failed yet."""

    def __init__(self, ack: object) -> None:
        super().__init__("waits for acknowledgement")
        self.ack = ack


def text_of(error: BaseException) -> str:
    """The text of any exception, also of one whose ``__str__`` fails."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - __str__ is user code too
        return "<no text: its __str__ failed>"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
