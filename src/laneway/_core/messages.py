"""Messages on their way: what a handler returned, and the copies of records that failed; and the codecs of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway.codecs import Framed, Raw

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from laneway._core.headers import Failure, Reduction
    from laneway._core.outbox import Generation
    from laneway._core.scheduler import KeyQueue
    from laneway._core.turn import EncodedMessage
    from laneway._declare.record import Record, Topic
    from laneway.codecs import Codec

__all__ = ["CopyMessage", "ErrorCopy", "PendingMessage", "Reply", "ReplyMessage", "RetryCopy", "codec_of", "decoder_of"]


class PendingMessage:
    """One message until its outcome is known. The outbox owns it meanwhile."""

    __slots__ = ("answers", "encoded", "generation", "next", "queue", "size", "tries")

    answers: deque[tuple[PendingMessage, Exception | None]]
    """Where the sender's answer goes; the outbox sets it."""
    generation: Generation

    def __init__(self, encoded: EncodedMessage, queue: KeyQueue[Record[Any]] | None = None) -> None:
        self.encoded = encoded
        self.queue = queue
        """Held until it has arrived."""
        self.next: PendingMessage | None = None
        """Sent only when this one is over, because their order on the topic counts."""
        self.tries = 0
        self.size = _length(encoded[1]) + _length(encoded[2])
        """Bytes of key and value as it was sent first: what replaces it may be smaller."""

    @property
    def records(self) -> Sequence[Record[Any]]:
        """What led to it."""
        return ()

    def answered(self, error: Exception | None) -> None:
        """The sender's answer. It is acted upon at the next poll of the outbox, not inside of the sender."""
        self.answers.append((self, error))


class Reply:
    """Records and the messages that they led to: finished with the last of these."""

    __slots__ = ("_superseded", "is_parked", "left", "records")

    def __init__(
        self, records: Sequence[Record[Any]], superseded: Mapping[int, Sequence[Record[Any]]], left: int
    ) -> None:
        self.records = records
        self._superseded = superseded
        self.left = left
        """Messages that have not arrived."""
        self.is_parked = False
        """One of them can never be delivered, so its records go to the error topic instead."""

    def older_than(self, record: Record[Any]) -> Sequence[Record[Any]]:
        """The records of its key that a record supersedes."""
        return self._superseded.get(id(record), ())


class ReplyMessage(PendingMessage):
    """One message of a reply."""

    __slots__ = ("reply",)

    def __init__(self, encoded: EncodedMessage, reply: Reply) -> None:
        super().__init__(encoded)
        self.reply = reply

    @property
    def records(self) -> Sequence[Record[Any]]:
        return self.reply.records


class CopyMessage(PendingMessage):
    """A copy of a record.

    Args:
        encoded: what is sent.
        record: what it is a copy of.
        failure: why the record failed; None when it only waits behind its key.
        cause: the error itself, kept only for error interceptors.
        superseded: older records of the key, finished with it.
    """

    __slots__ = ("cause", "failure", "is_late", "is_over", "key", "late_at", "record", "superseded")

    def __init__(
        self,
        encoded: EncodedMessage,
        record: Record[Any],
        failure: Failure | None,
        cause: Exception | None,
        superseded: Sequence[Record[Any]] = (),
    ) -> None:
        super().__init__(encoded)
        self.record = record
        self.failure = failure
        self.cause = cause
        self.superseded = superseded
        self.key: Hashable = None
        """What orders a record whose key did not wait for the copy."""
        self.late_at = 0.0
        """When its key waits after all."""
        self.is_late = self.is_over = False

    @property
    def records(self) -> Sequence[Record[Any]]:
        return (self.record,)

    def take_over(self, other: CopyMessage) -> None:
        """It goes out in place of another one: what waits for that one waits for it."""
        self.queue, other.queue = other.queue, None
        self.next, other.next = other.next, None
        self.key, self.late_at = other.key, other.late_at


class RetryCopy(CopyMessage):
    """A copy for a retry topic."""

    __slots__ = ("step",)

    def __init__(self, step: int, *rest: Any) -> None:
        super().__init__(*rest)
        self.step = step


class ErrorCopy(CopyMessage):
    """A copy for the error topic."""

    __slots__ = ("reduced",)

    failure: Failure

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self.reduced: Reduction = ""


def _length(part: Any) -> int:
    return len(part) if isinstance(part, (bytes, str)) else 0


def decoder_of(codec: Codec[Any]) -> Callable[[Record[Any]], Any] | None:
    """What gives the value of a record; None where the value is the bytes."""
    if type(codec) is Raw:
        return None
    if isinstance(codec, Framed) and codec.reads_headers:
        return lambda record: codec.decode_with(record.raw, record.headers)  # type: ignore[arg-type]  # no tombstones
    return lambda record: codec.decode(record.raw)  # type: ignore[arg-type]  # as above


def codec_of(topic: Topic[Any], address: str) -> Codec[Any]:
    """The codec of a topic whose real name is in its address; schemas are registered under that name."""
    codec = topic.value
    return codec.for_topic(address.partition("@")[0]) if address != topic.name and isinstance(codec, Framed) else codec
