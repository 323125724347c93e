"""Delivery: what became of a message, to be awaited, waited for or ignored."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from laneway.errors import ProduceError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["Delivery", "Owner", "Pending", "RecordMetadata"]

T = TypeVar("T")


class RecordMetadata(NamedTuple):
    """Where a message was written."""

    topic: str
    """The name on the brokers."""
    partition: int
    offset: int
    """The offset; negative when the brokers do not say it, as with ``acks: none``."""


class Owner(Protocol):
    """Keeps the counts of a producer. Any thread may call it."""

    lock: threading.RLock

    def answered(self, acknowledged: int, failed: int) -> None:
        """Messages have their answers."""
        ...

    def unobserved(self, count: int, error: Exception) -> None:
        """Messages failed, and no code looked at their delivery."""
        ...


class Pending(Generic[T]):
    """A result that comes later. Any thread or event loop may wait for it."""

    __slots__ = ("__weakref__", "_error", "_is_done", "_is_observed", "_owner", "_value", "_waiters")

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._is_done = self._is_observed = False
        self._value: T | None = None
        self._error: ProduceError | None = None
        self._waiters: list[Callable[[], None]] | None = None

    @property
    def is_done(self) -> bool:
        """Whether the result is known."""
        return self._is_done

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result, at most *timeout* seconds.

        Raises:
            ProduceError: it failed.
            TimeoutError: it is not known yet; it may still succeed.
        """
        if not self._is_done:
            event = threading.Event()
            self._when_done(event.set)
            if not event.wait(timeout):
                raise TimeoutError(f"no answer from the brokers within {timeout:g} s; the message may still be written")
        return self._outcome()

    def exception(self, timeout: float | None = None) -> ProduceError | None:
        """Wait as `result`, and give the error or None instead of raising it."""
        try:
            self.result(timeout)
        except ProduceError as error:
            return error
        return None

    def __await__(self) -> Generator[Any, None, T]:
        """Wait on an event loop; a cancelled wait leaves the message on its way."""
        if not self._is_done:
            loop = asyncio.get_running_loop()
            future = loop.create_future()

            def wake() -> None:
                with suppress(RuntimeError):  # the loop was closed meanwhile, so no code waits
                    loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(None))

            self._when_done(wake)
            yield from future.__await__()
        return self._outcome()

    def _finish(self, value: T | None, error: ProduceError | None = None) -> None:
        with self._owner.lock:
            self._value, self._error, self._is_done = value, error, True
            waiters, self._waiters = self._waiters, None
        if waiters is not None:
            for wake in waiters:
                wake()

    def _when_done(self, wake: Callable[[], None]) -> None:
        with self._owner.lock:
            if not self._is_done:
                self._waiters = [*(self._waiters or ()), wake]
                return
        wake()

    def _outcome(self) -> T:
        self._is_observed = True
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set together with `_is_done`


class Delivery(Pending[RecordMetadata | None]):
    """What became of one message: ``await`` it, call `result`, or ignore it.

    The result is where the message was written; None when an interceptor dropped it. When a message fails and no
    code has waited for it, the error is logged and counted.
    """

    __slots__ = ("topic",)

    def __init__(self, owner: Owner, topic: str) -> None:
        super().__init__(owner)
        self.topic = topic
        """The name on the brokers."""

    def answered(self, error: ProduceError | None, partition: int, offset: int) -> None:
        """The brokers' answer."""
        if error is None:
            self._owner.answered(1, 0)
            self._finish(RecordMetadata(self.topic, partition, offset))
        else:
            self._owner.answered(0, 1)
            self._finish(None, error)

    def drop(self) -> None:
        """The message is not sent."""
        self._finish(None)

    def __del__(self) -> None:
        """Report an error that no code has seen."""
        if self._error is not None and not self._is_observed:
            self._owner.unobserved(1, self._error)

    def __repr__(self) -> str:
        """Topic and state."""
        state = "pending" if not self._is_done else "failed" if self._error else "done"
        return f"<Delivery to {self.topic}: {state}>"
