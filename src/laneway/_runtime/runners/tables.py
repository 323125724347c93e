"""TableRunner: a handler that takes Arrow tables, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from laneway._core.decide import Copy, follow
from laneway._declare.breaker import is_failure
from laneway._declare.record import Record
from laneway.errors import Skip
from laneway.observe import Histogram, RecordEvent

if TYPE_CHECKING:
    import pyarrow as pa

    from laneway._clock import WaitingClock
    from laneway._core.processor import Processor

__all__ = ["TableRunner", "TableSource"]


_PAUSE = 0.01  # seconds between questions whether a call may begin


class TableSource(Protocol):
    """Where a columnar runner reads from."""

    is_exhausted: bool

    def fetch_table(self, most: int, timeout: float) -> pa.Table | None:
        """Up to *most* records as a table, or None."""
        ...


class TableRunner:
    """Calls a columnar handler with one table at a time, so order holds. Everything is on the caller's thread.

    A table that fails is tried again as a whole, then parked record by record.

    Args:
        processor: counts and parks.
        clock: the time, also to wait with.
    """

    def __init__(self, processor: Processor, clock: WaitingClock) -> None:
        self._processor = processor
        self._clock = clock
        self._latency = Histogram(processor.tally.latency)

    def run(self, source: TableSource) -> None:
        """Work until the source is exhausted and every record has reached its end."""
        processor = self._processor
        while not source.is_exhausted:
            self._wait_for_breaker()
            self._wait_until_allowed()
            table = source.fetch_table(processor.spec.size, 0.1)
            if table is not None and table.num_rows:
                self._handle(table)
            processor.tick()
            # The next table waits until the copies of this one are safe, so order holds and memory is bounded.
            while not processor.is_done:
                self._clock.sleep(0.002)
                processor.tick()

    def _handle(self, table: pa.Table) -> None:
        processor = self._processor
        tally, events, spec = processor.tally, processor.events, processor.spec
        if len(processor.steps) > 1:
            spec = processor.step_of(table.column("topic")[0].as_py()).spec
        tally.first = tally.first or self._clock.wall()
        tally.read += table.num_rows
        tally.size += _payload_size(table)
        attempt = 1
        while True:
            self._begin(table)
            tally.calls += 1
            began = self._clock.monotonic()
            try:
                spec.function(table)
                tally.handled += table.num_rows
                if events.wants_ends:
                    events.handled(_first_records(table, attempt))
                return self._finish(table, began)
            except Skip as skip:
                tally.skipped += table.num_rows
                if events.wants_ends:
                    records = _first_records(table, attempt)
                    events.skipped(records, dict.fromkeys(map(id, records), skip))
                return self._finish(table, began)
            except Exception as error:  # noqa: BLE001 - the lane boundary
                tally.seconds += self._clock.monotonic() - began
                if self._is_kept(table, error):
                    tally.retried += 1
                    continue
                first = _first_records(table, attempt)[0]
                outcome = follow(first, error, spec, now=began)
                if isinstance(outcome, Copy):
                    return self._copy(table, error, attempt, outcome.step)
                pause = outcome.pause  # type: ignore[union-attr]  # a table handler cannot acknowledge manually
                events.retried(first, error, pause)
                tally.retried += 1
                attempt += 1
                self._clock.sleep(pause)

    def _wait_until_allowed(self) -> None:
        while not self._processor.is_sure:
            self._clock.sleep(_PAUSE)

    def _wait_for_breaker(self) -> None:
        """While the handler's breaker is open nothing is read or called before a probe is due."""
        breaker = self._processor.breaker
        if breaker is not None and breaker.wait:
            self._clock.sleep(breaker.wait)

    def _begin(self, table: pa.Table) -> None:
        self._wait_for_breaker()
        self._wait_until_allowed()
        if self._processor.breaker is not None:
            self._processor.breaker.began(table)

    def _is_kept(self, table: pa.Table, error: Exception) -> bool:
        """Whether the breaker keeps a table that failed, to be called again as if it had not been."""
        breaker = self._processor.breaker
        return breaker is not None and breaker.saw(
            table, error if is_failure(error, self._processor.spec.retry) else None, is_good=False
        )

    def _finish(self, table: pa.Table, began: float) -> None:
        tally, wall = self._processor.tally, self._clock.wall()
        if self._processor.breaker is not None:
            self._processor.breaker.saw(table, None, is_good=True)
        tally.seconds += self._clock.monotonic() - began
        tally.last = wall
        # One value per table, not per row: the newest row's latency, counted once for each row would cost a loop.
        newest = table.column("timestamp")[-1].as_py()
        self._latency.add_all([int(wall * 1000) - newest])

    def _copy(self, table: pa.Table, error: Exception, attempt: int, step: int) -> None:
        self._wait_until_allowed()
        records = [_as_record(row, attempt) for row in table.to_pylist()]
        ledger = self._processor.step_of(records[0].topic).ledger
        for record in records:
            ledger.see(record.partition, [record.offset])
        self._processor.copy_rows(records, error, step)


def _payload_size(table: pa.Table) -> int:
    return int(table.column("key").nbytes + table.column("value").nbytes)


def _first_records(table: pa.Table, attempt: int) -> list[Record[Any]]:
    """As many rows as are worth an event each."""
    return [_as_record(row, attempt) for row in table.slice(0, RecordEvent.most).to_pylist()]


def _as_record(row: dict[str, Any], attempt: int) -> Record[Any]:
    key, value = row["key"], row["value"]
    headers = [(header["name"], header["value"]) for header in row["headers"] or ()]
    size = len(key or b"") + len(value or b"")
    return Record(
        row["topic"], row["partition"], row["offset"], row["timestamp"], key, value, headers, size, value, attempt
    )
