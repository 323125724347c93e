"""Topic, Record, Message and Batch: the values that handlers take and return. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import msgspec
from typing_extensions import TypeVar

from laneway.codecs import Codec, Framed, Raw
from laneway.errors import DeclarationError, Reject, RetryAfter, Skip

if TYPE_CHECKING:
    from laneway._declare.units import Duration

__all__ = ["Batch", "Headers", "Message", "Origin", "Record", "Topic", "as_key", "declared_topics"]

V = TypeVar("V", default=bytes)
_RAW = Raw()
_declared: set[str] = set()
"""Names of the topics created in this process."""

Headers = Sequence[tuple[str, bytes | None]]
"""Header names and values in order; a name may occur more than once, a value may be null."""


class Origin(NamedTuple):
    """The source position of a record that was copied to a retry or error topic."""

    topic: str
    partition: int
    offset: int


class Record(msgspec.Struct, Generic[V], eq=False):
    """One record of a topic.

    Treat it as read-only. Copies for error topics are made from `raw`, `key` and `headers`, so a handler that changes
    `value` does not change the copy. (It is a msgspec struct and not a frozen class because the hot path creates one
    per record.)

    Example:
        >>> orders = Topic("orders")
        >>> orders.record(b"{}", key="42").key
        b'42'
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch, as in Kafka; see `time`."""
    key: bytes | None
    """The raw key. None (no key) and b"" (an empty key) are different keys."""
    raw: bytes | None
    """The undecoded value; None is a tombstone."""
    headers: Headers
    size: int
    """Bytes of key and value, which count for the buffer's limit."""
    value: V
    """The decoded value; None for a tombstone."""
    attempt: int = 1
    """1 at the first call of the handler, 2 at the first retry."""
    before: int = 0
    """How many of these calls were on earlier steps."""
    origin: Origin | None = None
    """Where it came from, if it was read from a retry or error topic; its timestamp is then the original one."""
    epoch: int = 0
    """The assignment epoch in which it was read; a record of an earlier epoch of its partition is stale."""

    @property
    def time(self) -> datetime:
        """The record's timestamp as an aware datetime."""
        return datetime.fromtimestamp(self.timestamp / 1000, tz=UTC)

    @property
    def is_tombstone(self) -> bool:
        """Whether the record deletes its key: its value is null, which differs from empty."""
        return self.raw is None

    def header(self, name: str) -> bytes | None:
        """The last value of a header, or None."""
        for candidate, value in reversed(self.headers):
            if candidate == name:
                return value
        return None

    def replaced(self, **changes: Any) -> Record[Any]:
        """A copy with some fields replaced, for interceptors.

        Example:
            >>> Topic("orders").record(b"secret").replaced(value=b"***").value
            b'***'
        """
        return msgspec.structs.replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Message(Generic[V]):
    """One message for a topic; created by `Topic.message` and returned by a handler."""

    topic: Topic[V]
    value: V | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None

    def replaced(self, **changes: Any) -> Message[Any]:
        """A copy with some fields replaced, for interceptors.

        Example:
            >>> Topic("orders").message(b"{}").replaced(headers=[("source", b"web")]).headers
            [('source', b'web')]
        """
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Topic(Generic[V]):
    """A topic's name and the codec of its values.

    Args:
        name: the name used in code; a configuration may map it to another real name and cluster.
        value: the codec of the values; by default `Raw` (bytes), because it costs nothing.

    Example:
        >>> Topic("orders").message(b"{}", key="42").key
        b'42'
    """

    name: str
    value: Codec[V] = _RAW  # type: ignore[assignment]  # Topic("x") is a Topic[bytes]

    def __post_init__(self) -> None:
        """Refuse names that Kafka would refuse."""
        legal = self.name and len(self.name) <= 249 and self.name not in {".", ".."}
        if not legal or not all(c.isascii() and (c.isalnum() or c in "._-") for c in self.name):
            raise DeclarationError(
                f"{self.name!r} is not a topic name: use 1 to 249 ASCII letters, digits, '.', '_' or '-'"
            )
        if isinstance(self.value, Framed):
            object.__setattr__(self, "value", self.value.for_topic(self.name))
        _declared.add(self.name)

    def message(
        self, value: V | None, *, key: str | bytes | None = None, headers: Headers = (), partition: int | None = None
    ) -> Message[V]:
        """Create a message for this topic; a value of None is a tombstone, a text key is encoded as UTF-8."""
        return Message(self, value, as_key(key), headers, partition)

    def record(
        self,
        value: V | None,
        *,
        key: str | bytes | None = None,
        headers: Headers = (),
        partition: int = 0,
        offset: int = 0,
        timestamp: int = 0,
    ) -> Record[V]:
        """Create a record of this topic, to call a handler in a test."""
        raw = None if value is None else self.value.encode(value)
        name, place = as_key(key), (self.name, partition, offset, timestamp)
        return Record(*place, name, raw, headers, len(raw or b"") + len(name or b""), value)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Batch(Generic[V]):
    """Records passed to a batch handler together, those of one key in order.

    A handler that raises fails the whole batch. To fail single members, mark them and return: only those are retried or
    parked, all others are finished.

    Example::

        @app.batch_handler(orders, size=500)
        def store(batch: Batch[Order]) -> None:
            for record, error in warehouse.insert(batch.values):
                batch.reject(record, str(error))
    """

    records: Sequence[Record[V]]
    fates: list[tuple[Record[V], Exception]] = field(default_factory=list, repr=False, compare=False)
    """Marked members, with their marks."""

    def reject(self, record: Record[V], reason: str = "rejected by the handler") -> None:
        """Send this member to the error topic."""
        self.fates.append((record, Reject(reason)))

    def retry(self, record: Record[V], reason: str = "marked for a retry", *, after: Duration | None = None) -> None:
        """Retry this member, after *after* or the usual pause; it uses one attempt.

        Later records of its key in this batch count as handled before it.
        """
        self.fates.append((record, RetryAfter(after, reason)))

    def skip(self, record: Record[V], reason: str = "skipped by the handler") -> None:
        """Finish this member without handling it; it counts as skipped."""
        self.fates.append((record, Skip(reason)))

    @property
    def values(self) -> list[V]:
        """The decoded values, in the order of `records`."""
        return [record.value for record in self.records]

    @property
    def keys(self) -> list[bytes | None]:
        """The raw keys, in the order of `records`."""
        return [record.key for record in self.records]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record[V]]:
        return iter(self.records)


def declared_topics() -> frozenset[str]:
    """Names of all topics created in this process so far."""
    return frozenset(_declared)


def as_key(key: str | bytes | None) -> bytes | None:
    """Encode a key; no key and an empty key stay different."""
    return key.encode() if isinstance(key, str) else key


def as_messages(result: Any, handler: str) -> Iterable[Message[Any]]:
    """The messages that a handler returned.

    Raises:
        DeclarationError: the handler returned something else.
    """
    if isinstance(result, Message):
        return (result,)
    if isinstance(result, (list, tuple)) and all(isinstance(item, Message) for item in result):
        return result
    raise DeclarationError(
        f"handler {handler!r} returned {type(result).__name__}; return None, a Message or a list of Messages"
    )
