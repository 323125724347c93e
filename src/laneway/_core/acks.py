"""Manual acknowledgement: a record that is not finished when its function returns, but when its `Ack` says so."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from laneway.errors import DeclarationError, Unacknowledged

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway._core.scheduler import KeyQueue
    from laneway._declare.record import Record

__all__ = ["Ack", "Acks", "acknowledging"]


class Ack:
    """What a handler with ``acknowledge="manual"`` is given beside its record: the record is finished by `done`.

    Any thread may call its methods, now or later; what comes after the first `done` or `failed` changes nothing. A
    record that is never acknowledged is never finished: its offset is not committed, and its key waits.

    Example::

        @app.handler(orders, lanes=20, acknowledge="manual")
        async def ship(record: Record[Order], ack: Ack) -> None:
            courier.hand_over(record.value, when_safe=ack.done)
    """

    __slots__ = ("_board", "_said", "is_released")

    def __init__(self) -> None:
        # Without a lock: what is said is written before the board is looked for, and the board before it looks at what
        # was said, so one of the two sees the other. To note it twice does no harm.
        self._board: Acks | None = None
        self._said: dict[str, Exception | None] = {}
        self.is_released = False

    def done(self) -> None:
        """The record's outcome is durable: it is finished."""
        self._end(None)

    def failed(self, error: Exception) -> None:
        """The record failed, as if the function had raised *error*: it is tried again or parked."""
        self._end(error)

    def release(self) -> None:
        """Let the next record of the key begin, though this one is not finished. It keeps its offset from moving on.

        From then on a failure is not tried again in place, since others have overtaken it.
        """
        self.is_released = True
        if self._board is not None:
            self._board.tell(self)

    @property
    def is_over(self) -> bool:
        """Whether `done` or `failed` was called."""
        return bool(self._said)

    @property
    def error(self) -> Exception | None:
        """What `failed` was called with."""
        return self._said.get("end")

    def watch(self, board: Acks) -> None:
        """Notify a board from now on, and at once about what was said before."""
        self._board = board
        if self.is_over or self.is_released:
            board.note(self)

    def _end(self, error: Exception | None) -> None:
        self._said.setdefault("end", error)  # atomic: the first call counts
        if self._board is not None:
            self._board.tell(self)


class Waiting(NamedTuple):
    """A record that its handler has left to an `Ack`."""

    record: Record[Any]
    queue: KeyQueue[Record[Any]] | None
    """Held; None once its key has continued."""


class Acks:
    """The records that wait to be acknowledged. The processor owns it; only `tell` may be called by others."""

    def __init__(self) -> None:
        self._news: deque[Ack] = deque()
        self._waiting: dict[Ack, Waiting] = {}
        self.wake: Callable[[], None] = lambda: None
        """Called when something was acknowledged, so that the owner looks."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def wait(self, ack: Ack, record: Record[Any], queue: KeyQueue[Record[Any]]) -> None:
        """Wait for an `Ack`; the key waits too."""
        self._waiting[ack] = Waiting(record, queue)
        ack.watch(self)

    @property
    def has_news(self) -> bool:
        """Whether `poll` has something to return."""
        return bool(self._news)

    def note(self, ack: Ack) -> None:
        """Note an acknowledgement, without `wake`: the caller holds the lock that it would take, and looks again."""
        self._news.append(ack)

    def tell(self, ack: Ack) -> None:
        """Note an acknowledgement and wake the owner. Any thread may call it."""
        self._news.append(ack)
        self.wake()

    def poll(self) -> list[tuple[Ack, Waiting]]:
        """The acknowledged records, each with what waits; one that is over waits no longer."""
        found: list[tuple[Ack, Waiting]] = []
        for _ in range(len(self._news)):
            ack = self._news.popleft()
            waiting = self._waiting.get(ack)
            if waiting is None:
                continue
            if ack.is_over:
                del self._waiting[ack]
            elif not ack.is_released or waiting.queue is None:
                continue
            else:
                self._waiting[ack] = Waiting(waiting.record, None)
            found.append((ack, waiting))
        return found

    def waiting(self) -> list[Record[Any]]:
        """The records that wait, those whose key has continued too."""
        return [waiting.record for waiting in self._waiting.values()]


def acknowledging(function: Callable[..., Any], name: str, *, is_async: bool) -> Callable[[Record[Any]], Any]:
    """A function of a record that calls one of a record and its `Ack`, and leaves the record when it is not over."""

    def checked(answer: object, ack: Ack) -> None:
        if answer is not None:
            raise DeclarationError(
                f"handler {name!r} acknowledges manually and returned {type(answer).__name__}; it must return None, "
                "for a message that is sent after the acknowledgement could be lost"
            )
        if not ack.is_over:
            raise Unacknowledged(ack)
        if ack.error is not None:
            raise ack.error

    async def call_async(record: Record[Any]) -> None:
        ack = Ack()
        checked(await function(record, ack), ack)

    def call(record: Record[Any]) -> None:
        ack = Ack()
        checked(function(record, ack), ack)

    return call_async if is_async else call
