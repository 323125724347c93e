"""Interceptors at work. What a route has none of costs nothing: it is decided once, when a `Call` is made."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from laneway._core.acks import acknowledging
from laneway._declare.interceptors import name_of
from laneway._declare.record import Batch, Message, Record, Topic, as_key, as_messages
from laneway.errors import DeclarationError, Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from laneway._core.events import EventEmitter
    from laneway._core.scheduler import KeyQueue
    from laneway._core.turn import EncodedMessage
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.interceptors import Interceptor

__all__ = ["StandIns", "intercepted", "intercepted_copy", "produced", "producing"]


class StandIns:
    """What a batch handler is shown in place of its members; what it says of them is said of the members.

    Lanes share it: a record is in one turn at a time, so no two touch the same entry.
    """

    def __init__(self, route: HandlerSpec) -> None:
        self._consume = partial(_consumed, interceptors=route.interceptors.consume)
        self._shown: dict[int, Record[Any]] = {}

    def add(self, record: Record[Any]) -> None:
        """Let a record of a turn pass the interceptors.

        Raises:
            Skip: it is dropped.
        """
        self._shown[id(record)] = self._consume(record)

    def forget(self, turn: list[KeyQueue[Record[Any]]]) -> None:
        """The turn is over."""
        for queue in turn:
            for record in queue.work():
                self._shown.pop(id(record), None)

    def call(self, function: Callable[..., Any]) -> Callable[[Batch[Any]], Any]:
        """A sync function that shows *function* the stand-ins of a batch."""

        def call(batch: Batch[Any]) -> Any:
            shown, members = self._batch(batch)
            answer = function(shown)
            _take_over(batch, shown, members)
            return answer

        return call

    def call_async(self, function: Callable[..., Any]) -> Callable[[Batch[Any]], Any]:
        """As `call`, for an async function."""

        async def call(batch: Batch[Any]) -> Any:
            shown, members = self._batch(batch)
            answer = await function(shown)
            _take_over(batch, shown, members)
            return answer

        return call

    def _batch(self, batch: Batch[Any]) -> tuple[Batch[Any], dict[int, Record[Any]]]:
        members: dict[int, Record[Any]] = {}
        shown = []
        for record in batch.records:
            found = self._shown[id(record)]
            if id(found) in members:
                found = found.replaced()  # an interceptor gave the same one twice; a mark must tell them apart
            members[id(found)] = record
            shown.append(found)
        return Batch(shown), members


def _take_over(batch: Batch[Any], shown: Batch[Any], members: dict[int, Record[Any]]) -> None:
    # What is none of the batch stays as it is: it is refused where all marks are checked.
    batch.fates.extend((members.get(id(record), record), error) for record, error in shown.fates)


def intercepted_copy(
    encoded: EncodedMessage,
    record: Record[Any],
    error: Exception,
    interceptors: Sequence[Interceptor],
    events: EventEmitter,
) -> EncodedMessage | None:
    """Let a copy for the error topic pass the error interceptors; None when it is not to be sent.

    One that fails is passed over and an event says so: no copy is lost.
    """
    topic, key, value, headers, partition, timestamp = encoded
    message: Message[Any] = Message(Topic(topic), value, key, headers, partition, timestamp)
    shown = _copied(record)
    for interceptor in interceptors:
        try:
            # Its own list of headers: what it appended before it failed must not go out.
            found = interceptor(message.replaced(headers=list(message.headers)), shown, error)
            if found is None:
                return None
            if not isinstance(found, Message):
                raise _wrong("error", interceptor, found, "a Message")  # noqa: TRY301 - a failure of it like others
            encoded, message = _encoded(found), found
        except Exception as failed:  # noqa: BLE001 - user code
            events.interceptor_failed(name_of(interceptor), record, failed)
    return encoded


def _encoded(message: Message[Any]) -> EncodedMessage:
    """A copy as it is sent; what no client takes is refused here, since it would be tried forever."""
    value = None if message.value is None else message.topic.value.encode(message.value)
    headers = [(name, as_key(text)) for name, text in message.headers]
    names: list[object] = [name for name, _ in headers]
    texts: list[object] = [message.key, *(text for _, text in headers)]
    numbers: list[object] = [message.partition, message.timestamp]
    kinds = ((names, str), (texts, bytes | None), (numbers, int | None))
    if not all(isinstance(found, kind) for values, kind in kinds for found in values):
        raise DeclarationError(
            "no client can send it: a key and the values of headers are bytes or None, the names of headers are text, "
            "partition and timestamp are whole numbers or None"
        )
    return (message.topic.name, message.key, value, headers, message.partition, message.timestamp)


def intercepted(route: HandlerSpec, stand_ins: StandIns | None = None) -> Callable[..., Any]:
    """The function to call: the handler itself, or one that lets its records pass the interceptors first."""
    function, interceptors = route.function, route.interceptors.consume
    if route.is_manual:
        function = acknowledging(function, route.name, is_async=route.is_async)
    if stand_ins is not None:
        return stand_ins.call_async(function) if route.is_async else stand_ins.call(function)
    if not interceptors:
        return function

    def call(record: Record[Any]) -> Any:
        return function(_consumed(record, interceptors))

    return call


def producing(route: HandlerSpec) -> Callable[[Any], Iterable[Message[Any]]]:
    """Turns what the handler returned into the messages that are sent."""
    interceptors = route.interceptors.produce
    if not interceptors:
        return partial(as_messages, handler=route.name)

    def produce(answer: Any) -> list[Message[Any]]:
        passed = (produced(message, interceptors) for message in as_messages(answer, route.name))
        return [message for message in passed if message is not None]

    return produce


def _consumed(record: Record[Any], interceptors: Iterable[Interceptor]) -> Record[Any]:
    """What the handler sees of a record.

    Interceptors work on a copy: whatever they do to it, the ledger, retries and copies have the record as it came.

    Raises:
        Skip: the record is dropped.
    """
    seen = _copied(record)
    for interceptor in interceptors:
        found = interceptor(seen)
        if found is None:
            raise Skip(f"dropped by consume interceptor {name_of(interceptor)!r}")
        if not isinstance(found, Record):
            raise _wrong("consume", interceptor, found, "a Record")
        seen = found
    return seen


def _copied(record: Record[Any]) -> Record[Any]:
    """A copy that shares nothing that can be changed, except the value."""
    return record.replaced(headers=list(record.headers))


def produced(message: Message[Any], interceptors: Iterable[Interceptor]) -> Message[Any] | None:
    """What the produce interceptors make of a message; None when one drops it."""
    for interceptor in interceptors:
        found = interceptor(message)
        if found is None:
            return None
        if not isinstance(found, Message):
            raise _wrong("produce", interceptor, found, "a Message")
        message = found
    return message


def _wrong(side: str, interceptor: Interceptor, found: object, wanted: str) -> DeclarationError:
    return DeclarationError(
        f"{side} interceptor {name_of(interceptor)!r} returned {type(found).__name__}; return {wanted} or None"
    )
