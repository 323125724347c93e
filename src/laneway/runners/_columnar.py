"""ColumnarRunner: a handler that takes Arrow tables, one after the other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from laneway._record import Record
from laneway.errors import Skip
from laneway.instrumentation import Histogram
from laneway.retry import TryAgain, judge, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from laneway._clock import Clock
    from laneway.pipeline import Desk

__all__ = ["ColumnarRunner", "TableSource"]


class TableSource(Protocol):
    """Where a columnar runner reads from."""

    is_exhausted: bool

    def fetch_table(self, most: int, timeout: float) -> pa.Table | None:
        """Up to *most* records as a table, or None."""
        ...


class ColumnarRunner:
    """Calls a columnar handler with one table at a time, so order holds. Everything is on the caller's thread.

    A table that fails is tried again as a whole, then parked record by record.
    """

    def __init__(self, desk: Desk, clock: Clock, sleep: Callable[[float], None] = time.sleep) -> None:
        self._desk = desk
        self._clock = clock
        self._sleep = sleep
        self._latency = Histogram(desk.tally.latency)

    def run(self, source: TableSource) -> None:
        """Work until the source is exhausted and every record has reached its end."""
        desk = self._desk
        while not source.is_exhausted:
            table = source.fetch_table(desk.route.size, 0.1)
            if table is not None and table.num_rows:
                self._handle(table)
            desk.tick()
            # The next table waits until the copies of this one are safe, so order holds and memory is bounded.
            while not desk.is_done:
                self._sleep(0.002)
                desk.tick()

    def _handle(self, table: pa.Table) -> None:
        tally, route = self._desk.tally, self._desk.route
        tally.first = tally.first or self._clock.wall()
        tally.read += table.num_rows
        tally.size += _payload_size(table)
        attempt = 1
        while True:
            tally.calls += 1
            began = self._clock.monotonic()
            try:
                route.function(table)
                tally.handled += table.num_rows
                return self._finish(table, began)
            except Skip:
                tally.skipped += table.num_rows
                return self._finish(table, began)
            except Exception as error:  # noqa: BLE001 - the lane boundary
                tally.seconds += self._clock.monotonic() - began
                verdict = judge(error, attempt, route.retry)
                self._note(table, error, "retried" if isinstance(verdict, TryAgain) else "parked")
                if not isinstance(verdict, TryAgain):
                    return self._park(table, error, attempt)
                tally.retried += 1
                attempt += 1
                self._sleep(verdict.pause.total_seconds())

    def _finish(self, table: pa.Table, began: float) -> None:
        tally, wall = self._desk.tally, self._clock.wall()
        tally.seconds += self._clock.monotonic() - began
        tally.last = wall
        # One value per table, not per row: the newest row's latency, counted once for each row would cost a loop.
        newest = table.column("timestamp")[-1].as_py()
        self._latency.add_all([int(wall * 1000) - newest])

    def _park(self, table: pa.Table, error: Exception, attempt: int) -> None:
        records = [_as_record(row, attempt) for row in table.to_pylist()]
        for record in records:
            self._desk.ledger.see(record.partition, [record.offset])
        self._desk.park_all(records, error)

    def _note(self, table: pa.Table, error: Exception, fate: str) -> None:
        row = table.slice(0, 1).to_pylist()[0]
        place = (row["topic"], row["partition"], row["offset"])
        self._desk.tally.note(self._desk.route.name, place, f"{type(error).__name__}: {text_of(error)}", fate)


def _payload_size(table: pa.Table) -> int:
    return int(table.column("key").nbytes + table.column("value").nbytes)


def _as_record(row: dict[str, Any], attempt: int) -> Record[Any]:
    key, value = row["key"], row["value"]
    headers = [(header["name"], header["value"]) for header in row["headers"] or ()]
    size = len(key or b"") + len(value or b"")
    return Record(
        row["topic"], row["partition"], row["offset"], row["timestamp"], key, value, headers, size, value, attempt
    )
