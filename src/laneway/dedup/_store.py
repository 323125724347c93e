"""Store: what all stores of handled records have in common, and what a session with one can do."""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from laneway._declare.units import as_duration
from laneway.errors import DeclarationError, DedupError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from laneway._declare.record import Record
    from laneway._declare.units import Duration

__all__ = ["Entry", "OnOutage", "Refusal", "Reply", "Session", "Store", "as_time", "id_text", "masked", "origin"]

OnOutage = Literal["wait", "continue"]
_MOST_ID = 255  # characters; a longer id is replaced by its hash
_SHORTEST_LEASE = timedelta(seconds=1)


class Refusal(NamedTuple):
    """Why an id was not claimed."""

    state: Literal["done", "claimed", "other payload"]
    seconds: float = 0.0
    """How long the claim of the other owner still lasts."""


class Reply(NamedTuple):
    """The answer to a claim of several ids."""

    token: int
    """Of the ids that are ours now. A later claim of an id has a higher token."""
    refused: Mapping[int, Refusal]
    """By place in the request."""


class Entry(NamedTuple):
    """What a store knows of an id."""

    state: Literal["done", "claimed"]
    until: datetime
    """When the claim ends, or when the id is forgotten."""
    token: int
    """Of the last claim; 0 where the store does not keep it."""
    payload: bytes
    """Hash of key and value of the record."""
    owner: str = ""
    """Host, process and a random part; empty for an id that is done."""


class Session(Protocol):
    """A connection to a store, for the ids of one handler. One thread at a time uses it.

    Ids of one call are distinct and sorted, their payloads have one length. Each method is one step of the store: it
    happens for all ids or for none. Anything that a store raises while it is away is a `DedupStoreError`.
    """

    def claim(self, ids: Sequence[str], payloads: Sequence[bytes]) -> Reply:
        """Take the ids that are absent, expired, or claimed by this session already."""
        ...

    def finish(self, ids: Sequence[str], payloads: Sequence[bytes], tokens: Sequence[int]) -> list[str]:
        """Mark ids as done; returns those that another owner has claimed meanwhile, which stay as they are."""
        ...

    def release(self, ids: Sequence[str], tokens: Sequence[int]) -> None:
        """Forget ids that are claimed with these tokens."""
        ...

    def renew(self, ids: Sequence[str], tokens: Sequence[int]) -> None:
        """Let the leases begin again; those that another owner has are left alone."""
        ...

    def get(self, id_: str) -> Entry | None:
        """What is known of an id."""
        ...

    def put(self, id_: str, payload: bytes) -> None:
        """Mark an id as done, also one that is claimed."""
        ...

    def delete(self, id_: str) -> bool:
        """Forget an id; whether it was known."""
        ...

    def purge(self) -> int:
        """Delete what has expired, where the store does not do so itself; returns how many."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class Store(ABC):
    """Where the ids of handled records are kept.

    A store is a description, and pickled as such: each worker process makes its own connection.

    Args:
        id: gives the id of a record: `by_header`, `by_field` or a function; by default where it was first read.
        ttl: how long an id is remembered after its record was handled.
        lease: after this time the claim of a process that died ends. A process that lives renews it.
        on_outage: what happens while the store does not answer: ``wait`` keeps records until it does, ``continue``
            handles them as with ``at_least_once``.
    """

    is_shared = True
    """Whether several processes see the same ids."""
    in_order = False
    """Whether it needs the records of a partition in order."""

    def __init__(
        self,
        *,
        id: Callable[[Record[Any]], Any] | None = None,  # noqa: A002 - the word that users know
        ttl: Duration = "7d",
        lease: Duration = "30s",
        on_outage: OnOutage = "wait",
    ) -> None:
        name = type(self).__name__
        if id is not None and not callable(id):
            raise DeclarationError(f'{name}(id={id!r}): give by_header("event-id"), by_field("order.id") or a function')
        if on_outage not in ("wait", "continue"):
            raise DeclarationError(f"{name}(on_outage={on_outage!r}): use 'wait' or 'continue'")
        try:
            self.ttl, self.lease = as_duration(ttl), as_duration(lease)
        except ValueError as error:
            raise DeclarationError(f"{name}: {error}") from error
        if self.lease < _SHORTEST_LEASE:
            raise DeclarationError(f"{name}(lease={lease!r}): a lease is at least 1s, or it ends while it is renewed")
        if self.ttl < self.lease:
            raise DeclarationError(f"{name}(ttl={ttl!r}): ids must be remembered for longer than a lease ({lease})")
        self.id = id or origin
        self.on_outage: OnOutage = on_outage

    options = ("id", "ttl", "lease", "on_outage")
    """Names of the options of every store."""

    def changed(self, **options: Any) -> Store:
        """A copy with other options."""
        clone = copy.copy(self)
        Store.__init__(clone, **{**{name: getattr(self, name) for name in self.options}, **options})
        return clone

    @abstractmethod
    def session(self, scope: str, owner: str) -> Session:
        """Connect.

        Args:
            scope: ids of different scopes have nothing to do with each other; app and handler.
            owner: who claims.

        Raises:
            DedupStoreError: the store does not answer.
        """

    def check(self) -> None:
        """Refuse a store that cannot keep its promise.

        Raises:
            DeclarationError: what is wrong with it.
            DedupStoreError: it does not answer.
        """
        self.session("check", "check").close()

    def get(self, id_: str, *, scope: str) -> Entry | None:
        """What is known of an id.

        Args:
            id_: the id.
            scope: app and handler, as ``"billing.charge"``.
        """
        with closing(self.session(scope, "get")) as session:
            return session.get(id_text(id_))

    def put(self, id_: str, *, scope: str, payload: bytes = b"") -> None:
        """Mark an id as done, so that a record with it is not handled.

        Args:
            id_: the id.
            scope: app and handler, as ``"billing.charge"``.
            payload: hash of the record's key and value; empty stands for any.
        """
        with closing(self.session(scope, "put")) as session:
            session.put(id_text(id_), payload)

    def delete(self, id_: str, *, scope: str) -> bool:
        """Forget an id, so that its record is handled again when it comes again; whether it was known.

        Args:
            id_: the id.
            scope: app and handler, as ``"billing.charge"``.
        """
        with closing(self.session(scope, "delete")) as session:
            return session.delete(id_text(id_))


def origin(record: Record[Any]) -> str:
    """Where a record was first read. The timestamp differs when a topic is recreated under its name."""
    topic, partition, offset = record.origin or (record.topic, record.partition, record.offset)
    return f"{topic}/{partition}/{offset}@{record.timestamp}"


def id_text(value: Any) -> str:
    """An id as stores keep it.

    Raises:
        DedupError: there is no id.
    """
    if isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
        if text[:1] == '"' and text[-1:] == '"' and "\\" not in text:
            text = text[1:-1]  # a field of a JSON value that is a string
    else:
        text = "" if value is None else str(value)
    if not text:
        raise DedupError("the record has no id")
    if len(text) > _MOST_ID or "\0" in text:
        text = "sha256:" + hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
    return text


def as_time(seconds: float) -> datetime:
    """A moment, from seconds since the epoch."""
    return datetime.fromtimestamp(seconds, tz=UTC)


def masked(url: str) -> str:
    """An address without its password."""
    scheme, found, rest = url.partition("://")
    if not found:
        return " ".join("password=***" if word.startswith("password=") else word for word in url.split(" "))
    login, at, place = rest.rpartition("@")
    return f"{scheme}://{login.partition(':')[0]}:***@{place}" if at and ":" in login else url
