"""Call: runs a turn through the user's function. Lanes call it, outside any lock."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING, Any

from laneway._core.batch_pieces import BatchPieces, groups_of
from laneway._core.breaker import uncalled
from laneway._core.dedup import guarded
from laneway._core.interceptors import StandIns, intercepted, producing
from laneway._core.messages import codec_of, decoder_of
from laneway._core.turn import TurnReport, records_of
from laneway._declare.breaker import is_failure
from laneway._declare.context import set_current_record
from laneway._declare.record import Batch, Record
from laneway.errors import DeclarationError, Duplicate, HandlerTimeoutError, LanewayError, Skip, UnavailableError
from laneway.observe import RecordSkipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from laneway._clock import Clock
    from laneway._core.dedup import Dedup
    from laneway._core.scheduler import KeyQueue
    from laneway._core.turn import EncodedMessage
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.retry import Retry

__all__ = ["Call"]


class Call:
    """Runs turns of one route.

    Args:
        route: whose function to call.
        clock: times the calls.
        slice_: seconds after which a lane gives back what it has not begun, so that free lanes can take it.
        dedup: claims the records of a turn, and says which may be called.
    """

    def __init__(self, route: HandlerSpec, clock: Clock, slice_: float = 0.002, *, dedup: Dedup | None = None) -> None:
        self._stand_ins = StandIns(route) if route.is_batch and route.interceptors.consume else None
        self.function = intercepted(route, self._stand_ins)
        self._dedup = dedup
        if dedup is not None and not route.is_batch:
            self.function = guarded(self.function, dedup)
        self._messages = producing(route)
        self._addresses = route.addresses
        self._keeps_reasons = RecordSkipped in route.wanted
        self._name = route.name
        self._halts = route.breaker is not None  # no call may begin before the breaker has had its say
        self._retry = route.retry
        self._is_unique = route.kind == "unique"
        self._grouping = route.grouping
        self._bisect = route.bisect
        self._decode = decoder_of(route.topic.value)
        self._timeout = route.timeout.total_seconds() if route.timeout else None
        self._clock = clock
        self._slice = slice_
        self._open: dict[int, tuple[Iterator[KeyQueue[Record[Any]]], TurnReport]] = {}
        """Id of a turn under way to what is left of it, and its report. Each queue is given once."""

    def unbegun(self, turn: list[KeyQueue[Record[Any]]]) -> tuple[list[KeyQueue[Record[Any]]], TurnReport] | None:
        """The queues that the lane of a turn has not begun, and will not, and its report so far.

        None when the turn is not under way. Any thread may call it.
        """
        rest, report = self._open.get(id(turn), (None, None))
        return None if rest is None or report is None else (list(rest), report)

    def single(self, turn: list[KeyQueue[Record[Any]]]) -> TurnReport:
        """Call a sync function for each record of a turn."""
        if self._dedup is not None:
            self._dedup.begin(records_of(turn))
        report, function, decode = TurnReport(), self.function, self._decode
        handled, done, limit, halts = report.handled, report.done, self._timeout, self._halts
        began = self._clock.monotonic()
        end = began + self._slice
        for index, queue in enumerate(self._opened(turn, report)):
            count = 0
            for record in queue.items[queue.start : queue.start + queue.taken]:
                set_current_record(record)
                try:
                    if decode is not None and record.raw is not None:
                        record.value = decode(record)
                    if limit is None:
                        answer = function(record)
                    else:
                        start = self._clock.monotonic()
                        answer = function(record)
                        self.check_limit(start, limit)
                    if answer is None:
                        handled.append(record)
                    else:
                        report.outputs.append(((record,), self.encoded(answer)))
                except Exception as error:  # noqa: BLE001 - the lane boundary: any failure of user code climbs the ladder
                    if not self._is_skipped(report, index, record, error):
                        break
                count += 1
            report.calls += count
            done.append(count)
            # Reading the clock at each record would cost more than a fast handler.
            if (halts and _has_failed(report, index, self._retry)) or (
                (index & 3 == 3 or count > 3) and self._clock.monotonic() > end
            ):
                break
        return self._over(turn, report, began)

    async def single_async(self, turn: list[KeyQueue[Record[Any]]]) -> TurnReport:
        """Await an async function for each record of a turn."""
        if self._dedup is not None:
            await self._dedup.begin_async(records_of(turn))
        report, function, decode = TurnReport(), self.function, self._decode
        handled, done, limit, halts = report.handled, report.done, self._timeout, self._halts
        began = self._clock.monotonic()
        end = began + self._slice
        for index, queue in enumerate(self._opened(turn, report)):
            count = 0
            for record in queue.items[queue.start : queue.start + queue.taken]:
                set_current_record(record)
                try:
                    if decode is not None and record.raw is not None:
                        record.value = decode(record)
                    answer = await (function(record) if limit is None else self._limited(function(record), limit))
                    if answer is None:
                        handled.append(record)
                    else:
                        report.outputs.append(((record,), self.encoded(answer)))
                except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the lane boundary
                    if not self._is_skipped(report, index, record, error):
                        break
                count += 1
            report.calls += count
            done.append(count)
            if (halts and _has_failed(report, index, self._retry)) or (
                (index & 3 == 3 or count > 3) and self._clock.monotonic() > end
            ):
                break
        return self._over(turn, report, began)

    async def one_async(self, record: Record[Any]) -> TurnReport | None:
        """As `single_async` with a turn of one record; None when it was handled and there is nothing more to say.

        That is nearly every turn of a slow handler. Without this W6 has 67 % of the records a second. The caller
        takes the time.
        """
        report = None
        set_current_record(record)
        try:
            if self._decode is not None and record.raw is not None:
                record.value = self._decode(record)
            call = self.function(record)
            answer = await (call if self._timeout is None else self._limited(call, self._timeout))
            if answer is not None:
                encoded = self.encoded(answer)
                report = TurnReport()
                report.outputs.append(((record,), encoded))
                report.done.append(1)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the lane boundary
            report = TurnReport()
            report.done.append(int(self._is_skipped(report, 0, record, error)))
        if report is not None:
            report.calls = 1
        return report

    def batch(self, turn: list[KeyQueue[Record[Any]]]) -> TurnReport:
        """Call a sync function with the records of a turn together, or piece by piece."""
        if self._dedup is not None:
            self._dedup.begin(records_of(turn))
        report, pieces = self.gather(turn)
        began = self._clock.monotonic()
        for piece in pieces:
            start = self._clock.monotonic()
            batch = Batch(piece.copy())  # a handler may sort or empty its list
            try:
                answer = self.function(batch)
                if self._timeout is not None:
                    self.check_limit(start, self._timeout)
                self._accept(report, pieces, batch, answer)
            except Skip as skip:
                self._skip_all(report, piece, skip)
            except Exception as error:  # noqa: BLE001 - the lane boundary
                self._fail_all(report, pieces, piece, error)
                if self._halts and self._is_enough(report, error):
                    break
        return self._closed(report, turn, pieces, began)

    async def batch_async(self, turn: list[KeyQueue[Record[Any]]]) -> TurnReport:
        """Await an async function with the records of a turn together, or piece by piece."""
        if self._dedup is not None:
            await self._dedup.begin_async(records_of(turn))
        report, pieces = self.gather(turn)
        began = self._clock.monotonic()
        for piece in pieces:
            batch = Batch(piece.copy())
            try:
                call = self.function(batch)
                answer = await (call if self._timeout is None else self._limited(call, self._timeout))
                self._accept(report, pieces, batch, answer)
            except Skip as skip:
                self._skip_all(report, piece, skip)
            except asyncio.CancelledError as error:
                self._fail_all(report, pieces, piece, self._cancelled(error))
            except Exception as error:  # noqa: BLE001 - the lane boundary
                self._fail_all(report, pieces, piece, error)
                if self._halts and self._is_enough(report, error):
                    break
        return self._closed(report, turn, pieces, began)

    def _opened(self, turn: list[KeyQueue[Record[Any]]], report: TurnReport) -> Iterator[KeyQueue[Record[Any]]]:
        rest = iter(turn)
        if len(turn) == 1:
            return rest
        # The first one is the lane's whatever happens, or a lane that is slow to begin would be left with nothing.
        first = next(rest)
        self._open[id(turn)] = (rest, report)
        return chain((first,), rest)

    def _over(self, turn: list[KeyQueue[Record[Any]]], report: TurnReport, began: float) -> TurnReport:
        set_current_record(None)
        self._open.pop(id(turn), None)
        report.calls += len(report.failures)
        report.seconds = self._clock.monotonic() - began
        return report

    def _is_skipped(self, report: TurnReport, index: int, record: Record[Any], error: BaseException) -> bool:
        """Take down how a call ended that did not return; whether the next record of its queue may be called."""
        if isinstance(error, Skip):
            self._skip_all(report, (record,), error)
            return True
        if isinstance(error, asyncio.CancelledError):
            error = self._cancelled(error)
        report.failures[index] = (record, error)  # type: ignore[assignment]  # of the others only exceptions are caught
        return False

    def gather(self, turn: list[KeyQueue[Record[Any]]]) -> tuple[TurnReport, BatchPieces]:
        """What to call with; a kind that is wrong fails all of it before anything is called."""
        report = TurnReport()
        records = self._decoded(turn, report)
        if self._grouping is None:
            return report, BatchPieces(turn, [records], bisect=self._bisect)
        try:
            groups = groups_of(self._grouping, records, self._name) if records else []
        except DeclarationError as error:
            pieces = BatchPieces(turn, [])
            report.members += pieces.failed(records, error)
            return report, pieces
        return report, BatchPieces(turn, groups, bisect=self._bisect)

    def _decoded(  # noqa: C901 - what can become of a member
        self, turn: list[KeyQueue[Record[Any]]], report: TurnReport
    ) -> list[Record[Any]]:
        """Decode the members; what cannot be decoded is parked alone and does not fail the others."""
        decode, stand_ins, dedup = self._decode, self._stand_ins, self._dedup
        if decode is None and stand_ins is None and dedup is None and not self._is_unique:
            return [record for queue in turn for record in queue.work()]
        records = []
        for index, queue in enumerate(turn):
            work = queue.work()
            if self._is_unique and len(work) > 1:
                report.superseded[id(work[-1])] = work[:-1]
                work = work[-1:]
            for place, record in enumerate(work):
                try:
                    if dedup is not None:
                        dedup.check(record)
                    if decode is not None and record.raw is not None:
                        record.value = decode(record)
                    if stand_ins is not None:
                        stand_ins.add(record)
                    records.append(record)
                except Skip as skip:
                    self._skip_all(report, [record], skip)
                except UnavailableError as error:
                    # It waits, and so do later ones of its key.
                    report.members.append((index, record, error))
                    report.back.update(map(id, work[place + 1 :]))
                    break
                except Exception as error:  # noqa: BLE001 - a codec is user code too
                    report.members.append((index, record, error))
        return records

    def _accept(self, report: TurnReport, pieces: BatchPieces, batch: Batch[Any], answer: object) -> None:
        """Take over what the handler returned. All that can fail comes first, so that a failed call leaves no trace."""
        encoded = None if answer is None else self.encoded(answer)
        records = pieces.now
        if batch.fates:
            fates = self.fates(pieces.now, batch)
            records = [record for record in pieces.now if id(record) not in fates]
            for record in pieces.now:
                error = fates.get(id(record))
                if isinstance(error, Skip):
                    self._skip_all(report, [record], error)
                elif error is not None:
                    report.members += pieces.failed((record,), error)
        if encoded is None:
            report.handled += records
        else:
            # Also when every record was marked: what the handler wants to say must not depend on who else is there.
            report.outputs.append((records, encoded))

    def fates(self, piece: list[Record[Any]], batch: Batch[Any]) -> dict[int, Exception]:
        """Id of a marked record to what was said of it last.

        Raises:
            DeclarationError: a marked record is not in the batch; the one that was meant would count as handled.
        """
        ours = {id(record) for record in piece}
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
    def _fail_all(report: TurnReport, pieces: BatchPieces, records: list[Record[Any]], error: Exception) -> None:
        """The call failed, whatever was marked before: so did every record, unless the halves are to tell which."""
        if not pieces.halve(error):
            report.members += pieces.failed(records, error)

    def _is_enough(self, report: TurnReport, error: Exception) -> bool:
        """Whether the rest of a turn is left to the breaker to decide on.

        Halves are looked at until two records have failed and none was handled: then it is not a record's fault.
        """
        is_lost = not self._bisect or (len(report.members) > 1 and not report.handled and not report.outputs)
        report.is_halted = is_lost and is_failure(error, self._retry)
        return report.is_halted

    def _skip_all(self, report: TurnReport, records: Sequence[Record[Any]], skip: Skip) -> None:
        if isinstance(skip, Duplicate):
            report.duplicates += records
            return
        report.skipped += records
        if self._keeps_reasons:
            report.reasons |= dict.fromkeys(map(id, records), skip)

    def _closed(
        self, report: TurnReport, turn: list[KeyQueue[Record[Any]]], pieces: BatchPieces, began: float
    ) -> TurnReport:
        if self._stand_ins is not None:
            self._stand_ins.forget(turn)
        report.done = [queue.taken for queue in turn]
        report.calls = pieces.calls
        report.back |= pieces.back
        if report.is_halted:
            report.back |= uncalled(turn, report)
        report.seconds = self._clock.monotonic() - began
        return report

    def encoded(self, answer: object) -> list[EncodedMessage]:
        """Encode here, in the lane, so that a value which cannot be encoded fails its record."""
        return [
            (
                (address := self._addresses.get(message.topic.name, message.topic.name)),
                message.key,
                None if message.value is None else codec_of(message.topic, address).encode(message.value),
                message.headers,
                message.partition,
                message.timestamp,
            )
            for message in self._messages(answer)
        ]

    def check_limit(self, began: float, limit: float) -> None:
        """Raise `HandlerTimeoutError` when a call that began then took too long."""
        now = self._clock.monotonic()
        if now - began > limit:
            raise HandlerTimeoutError(f"handler {self._name!r} took {now - began:.3f} s; its time limit is {limit:g} s")

    def _cancelled(self, error: asyncio.CancelledError) -> Exception:
        """The failure of a handler that awaited something cancelled; raises when the lane itself is cancelled."""
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
            text = f"handler {self._name!r} was cancelled at its time limit of {limit:g} s"
            raise HandlerTimeoutError(text) from error


def _has_failed(report: TurnReport, index: int, retry: Retry) -> bool:
    """Whether the handler, and not the record, failed at a queue of a turn."""
    failure = report.failures.get(index)
    return failure is not None and is_failure(failure[1], retry)
