"""Call: runs a turn through the user's function. Lanes call it, outside any lock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from laneway._record import Batch, Record, as_messages
from laneway.codecs import Raw
from laneway.errors import DeclarationError, HandlerTimeoutError, LanewayError, Skip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._app import Route
    from laneway._clock import Clock
    from laneway.lanes import KeyQueue

__all__ = ["Call", "Posted", "Result"]

Posted = tuple[str, bytes | None, bytes | None, Any, int | None, int | None]
"""An encoded message: topic, key, value, headers, partition, timestamp."""


class Result:
    """What became of a turn.

    `done` counts, queue by queue, the records that need no further call; queues past its end were not begun.
    """

    __slots__ = ("calls", "done", "failures", "finished", "members", "older", "outputs", "seconds", "skipped")

    def __init__(self) -> None:
        self.done: list[int] = []
        self.finished: list[Record[Any]] = []
        self.skipped: list[Record[Any]] = []
        self.outputs: list[tuple[Sequence[Record[Any]], list[Posted]]] = []
        """Records with the messages they led to: finished when all of these are acknowledged."""
        self.failures: dict[int, tuple[Record[Any], Exception]] = {}
        """Index of a queue to the record that stopped it."""
        self.members: list[tuple[int, Record[Any], Exception]] = []
        """Members of a batch that failed, with the index of their queue."""
        self.older: dict[int, list[Record[Any]]] = {}
        """Id of a record to those of its key that it supersedes, oldest first."""
        self.calls = 0
        self.seconds = 0.0


class Call:
    """Runs turns of one route.

    Args:
        route: whose function to call.
        clock: times the calls.
        slice_: a lane gives back what it has not begun after this many seconds, so that a handler which turned slow
            does not keep records waiting behind it while other lanes are free.
    """

    def __init__(self, route: Route, clock: Clock, slice_: float = 0.002) -> None:
        self._function = route.function
        self._name = route.name
        self._is_unique = route.kind == "unique"
        self._codec = None if type(route.topic.value) is Raw else route.topic.value
        self._timeout = route.timeout.total_seconds() if route.timeout else None
        self._clock = clock
        self._slice = slice_

    def single(self, turn: list[KeyQueue[Record[Any]]]) -> Result:
        """Call a sync function for each record of a turn."""
        result, function, codec = Result(), self._function, self._codec
        finished, done, limit = result.finished, result.done, self._timeout
        began = self._clock.monotonic()
        end = began + self._slice
        for index, queue in enumerate(turn):
            count = 0
            for record in queue.items[queue.start : queue.start + queue.taken]:
                try:
                    if codec is not None and record.raw is not None:
                        record.value = codec.decode(record.raw)
                    if limit is None:
                        answer = function(record)
                    else:
                        start = self._clock.monotonic()
                        answer = function(record)
                        self._check_limit(start, limit)
                    if answer is None:
                        finished.append(record)
                    else:
                        result.outputs.append(((record,), self._posted(answer)))
                except Skip:
                    result.skipped.append(record)
                except Exception as error:  # noqa: BLE001 - the lane boundary: any failure of user code climbs the ladder
                    result.failures[index] = (record, error)
                    break
                count += 1
            result.calls += count
            done.append(count)
            # Reading the clock at each record would cost more than a fast handler.
            if (index & 3 == 3 or count > 3) and self._clock.monotonic() > end:
                break
        result.calls += len(result.failures)
        result.seconds = self._clock.monotonic() - began
        return result

    async def single_async(self, turn: list[KeyQueue[Record[Any]]]) -> Result:
        """Await an async function for each record of a turn."""
        result, function, codec = Result(), self._function, self._codec
        finished, done, limit = result.finished, result.done, self._timeout
        began = self._clock.monotonic()
        end = began + self._slice
        for index, queue in enumerate(turn):
            count = 0
            for record in queue.items[queue.start : queue.start + queue.taken]:
                try:
                    if codec is not None and record.raw is not None:
                        record.value = codec.decode(record.raw)
                    answer = await (function(record) if limit is None else self._limited(function(record), limit))
                    if answer is None:
                        finished.append(record)
                    else:
                        result.outputs.append(((record,), self._posted(answer)))
                except Skip:
                    result.skipped.append(record)
                except asyncio.CancelledError as error:
                    result.failures[index] = (record, self._cancelled(error))
                    break
                except Exception as error:  # noqa: BLE001 - the lane boundary
                    result.failures[index] = (record, error)
                    break
                count += 1
            result.calls += count
            done.append(count)
            if (index & 3 == 3 or count > 3) and self._clock.monotonic() > end:
                break
        result.calls += len(result.failures)
        result.seconds = self._clock.monotonic() - began
        return result

    def batch(self, turn: list[KeyQueue[Record[Any]]]) -> Result:
        """Call a sync function with the records of a turn together."""
        result, records = self._gather(turn)
        began = self._clock.monotonic()
        try:
            batch = Batch(records)
            answer = self._function(batch) if records else None
            if self._timeout is not None:
                self._check_limit(began, self._timeout)
            self._accept(result, turn, batch, answer)
        except Skip:
            result.skipped = records
        except Exception as error:  # noqa: BLE001 - the lane boundary
            self._fail_all(result, turn, records, error)
        return self._closed(result, turn, began)

    async def batch_async(self, turn: list[KeyQueue[Record[Any]]]) -> Result:
        """Await an async function with the records of a turn together."""
        result, records = self._gather(turn)
        began = self._clock.monotonic()
        try:
            batch, answer = Batch(records), None
            if records:
                call = self._function(batch)
                answer = await (call if self._timeout is None else self._limited(call, self._timeout))
            self._accept(result, turn, batch, answer)
        except Skip:
            result.skipped = records
        except asyncio.CancelledError as error:
            self._fail_all(result, turn, records, self._cancelled(error))
        except Exception as error:  # noqa: BLE001 - the lane boundary
            self._fail_all(result, turn, records, error)
        return self._closed(result, turn, began)

    def _gather(self, turn: list[KeyQueue[Record[Any]]]) -> tuple[Result, list[Record[Any]]]:
        """Decode the members; what cannot be decoded is parked alone and does not fail the others."""
        result, codec = Result(), self._codec
        if codec is None and not self._is_unique:
            return result, [record for queue in turn for record in queue.work()]
        records = []
        for index, queue in enumerate(turn):
            work = queue.work()
            if self._is_unique and len(work) > 1:
                result.older[id(work[-1])] = work[:-1]
                work = work[-1:]
            for record in work:
                try:
                    if codec is not None and record.raw is not None:
                        record.value = codec.decode(record.raw)
                    records.append(record)
                except Exception as error:  # noqa: BLE001 - a codec is user code too
                    result.members.append((index, record, error))
        return result, records

    def _accept(self, result: Result, turn: list[KeyQueue[Record[Any]]], batch: Batch[Any], answer: object) -> None:
        """Take over what the handler returned. All that can fail comes first, so that a failed call leaves no trace."""
        posted = None if answer is None else self._posted(answer)
        records = list(batch.records)
        if batch.fates:
            places, fates = _places(turn), self._fates(batch)
            records = [record for record in batch.records if id(record) not in fates]
            for record in batch.records:
                error = fates.get(id(record))
                if isinstance(error, Skip):
                    result.skipped.append(record)
                elif error is not None:
                    result.members.append((places[id(record)], record, error))
        if posted is None:
            result.finished = records
        else:
            # Also when every record was marked: what the handler wants to say must not depend on who else is there.
            result.outputs.append((records, posted))

    def _fates(self, batch: Batch[Any]) -> dict[int, Exception]:
        """Id of a marked record to what was said of it last.

        Raises:
            DeclarationError: when a record was marked that is not in the batch: the one that was meant, of which it is
                perhaps a copy, would count as handled.
        """
        ours = {id(record) for record in batch.records}
        for record, _ in batch.fates:
            if id(record) not in ours:
                what = type(record).__name__
                if isinstance(record, Record):
                    what = f"{record.topic}, partition {record.partition}, offset {record.offset}"
                raise DeclarationError(
                    f"handler {self._name!r} marked something that is not in its batch ({what}); mark the very records "
                    "that the batch holds, not copies of them or their values"
                )
        return {id(record): error for record, error in batch.fates}

    @staticmethod
    def _fail_all(
        result: Result, turn: list[KeyQueue[Record[Any]]], records: list[Record[Any]], error: Exception
    ) -> None:
        """The call failed, whatever was marked before: so did every record, beside those that cannot be decoded."""
        places = _places(turn)
        result.members += [(places[id(record)], record, error) for record in records]

    def _closed(self, result: Result, turn: list[KeyQueue[Record[Any]]], began: float) -> Result:
        result.done = [queue.taken for queue in turn]
        result.calls = 1
        result.seconds = self._clock.monotonic() - began
        return result

    def _posted(self, answer: object) -> list[Posted]:
        """Encode here, in the lane, so that a value which cannot be encoded fails its record."""
        return [
            (
                message.topic.name,
                message.key,
                None if message.value is None else message.topic.value.encode(message.value),
                message.headers,
                message.partition,
                message.timestamp,
            )
            for message in as_messages(answer, self._name)
        ]

    def _check_limit(self, began: float, limit: float) -> None:
        now = self._clock.monotonic()
        if now - began > limit:
            raise HandlerTimeoutError(f"handler {self._name!r} took {now - began:.3f} s; its time limit is {limit:g} s")

    def _cancelled(self, error: asyncio.CancelledError) -> Exception:
        """The failure of a handler that awaited something cancelled; when the lane itself is cancelled, go on raising.

        Let through, it would end the lane in silence and leave its records unfinished for ever.
        """
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise error
        return LanewayError(f"handler {self._name!r} awaited something that was cancelled")

    async def _limited(self, call: Any, limit: float) -> Any:
        try:
            # timeout() cancels the call and leaves only when it has really ended, which is what keeps the key waiting.
            async with asyncio.timeout(limit):
                return await call
        except TimeoutError as error:
            raise HandlerTimeoutError(
                f"handler {self._name!r} was cancelled at its time limit of {limit:g} s"
            ) from error


def _places(turn: list[KeyQueue[Record[Any]]]) -> dict[int, int]:
    """Which queue of a turn each of its records is in."""
    return {id(record): index for index, queue in enumerate(turn) for record in queue.work()}
