"""Manual acknowledgement: a record that is not finished when its function returns, but when somebody says so."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

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

    __slots__ = ("_board", "_said", "is_released", "place")

    def __init__(self) -> None:
        # Without a lock: what is said is written before the board is looked for, and the board before it looks at what
        # was said, so one of the two sees the other. A board that is told twice does not mind.
        self._board: Acks | None = None
        self._said: dict[str, Exception | None] = {}
        self.is_released = False
        """Whether `release` was called."""
        self.place: tuple[KeyQueue[Record[Any]], int, Record[Any]] | None = None
        """The record, and where it stands in its key's queue; None once its key has gone on."""

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
        """Tell a board from now on, and at once what was said before."""
        self._board = board
        if self.is_over or self.is_released:
            board.note(self)

    def _end(self, error: Exception | None) -> None:
        self._said.setdefault("end", error)  # one step of the interpreter: the first word counts
        if self._board is not None:
            self._board.tell(self)


class Acks:
    """The records of a desk that wait to be acknowledged. The desk owns it; only `tell` may be called by others.

    Args:
        settle: lets a key go on.
        finish: told of a record whose outcome is durable.
        fail: told of a record that failed while its key waits.
        copy: told of a record that failed when its key had gone on.
    """

    def __init__(
        self,
        *,
        settle: Callable[[KeyQueue[Record[Any]], int], None],
        finish: Callable[[Record[Any]], None],
        fail: Callable[[KeyQueue[Record[Any]], int, Record[Any], Exception], None],
        copy: Callable[[Record[Any], Exception], None],
    ) -> None:
        self._settle = settle
        self._finish = finish
        self._fail = fail
        self._copy = copy
        self._news: deque[Ack] = deque()
        self._records: dict[Ack, Record[Any]] = {}
        self.wake: Callable[[], None] = lambda: None
        """Called when something was acknowledged, so that the desk's owner looks."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._records)

    def keep(self, queue: KeyQueue[Record[Any]], done: int, record: Record[Any], ack: Ack) -> None:
        """A function has returned and left its record; the key waits."""
        self._records[ack] = record
        ack.place = (queue, done, record)
        ack.watch(self)

    @property
    def has_news(self) -> bool:
        """Whether something was said that has not been acted on."""
        return bool(self._news)

    def note(self, ack: Ack) -> None:
        """Something was said of a record. Who settles it looks again; to wake him would take a lock that he holds."""
        self._news.append(ack)

    def tell(self, ack: Ack) -> None:
        """Something was said of a record. Any thread may call it."""
        self._news.append(ack)
        self.wake()

    def tick(self) -> None:
        """Act on what was said."""
        while self._news:
            ack = self._news.popleft()
            if ack not in self._records:
                continue
            place, record = ack.place, self._records[ack]
            if ack.is_over:
                del self._records[ack]
                ack.place = None
                if ack.error is None:
                    if place is not None:
                        self._settle(place[0], place[1] + 1)
                    self._finish(record)
                elif place is None:
                    self._copy(record, ack.error)
                else:
                    self._fail(*place, ack.error)
            elif ack.is_released and place is not None:
                ack.place = None
                self._settle(place[0], place[1] + 1)

    def waiting(self) -> list[Record[Any]]:
        """The records that wait, those whose key has gone on too."""
        return list(self._records.values())


def acknowledging(function: Callable[..., Any], name: str, *, is_async: bool) -> Callable[[Record[Any]], Any]:
    """A function of a record that calls one of a record and its `Ack`, and leaves the record when it is not over."""

    def checked(answer: object, ack: Ack) -> None:
        if answer is not None:
            raise DeclarationError(
                f"handler {name!r} acknowledges by hand and returned {type(answer).__name__}; it must return None, for "
                "a message that is sent after the acknowledgement could be lost"
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
