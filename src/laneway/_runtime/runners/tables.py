"""TableRunner: a handler that takes Arrow tables, one after the other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from laneway._declare.breaker import is_failure
from laneway._declare.record import Record
from laneway._declare.retry import TryAgain, judge
from laneway.errors import Skip
from laneway.observe import Histogram, RecordEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from laneway._clock import Clock
    from laneway._core.desk import Desk
    from laneway._declare.retry import Defer, Park

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
        desk: counts and parks.
        clock: the time.
        sleep: waits so many seconds.
        may_begin: whether a call may begin, or what became of one be acted upon; asked until it is so.
    """

    def __init__(
        self,
        desk: Desk,
        clock: Clock,
        sleep: Callable[[float], None] = time.sleep,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        self._desk = desk
        self._clock = clock
        self._sleep = sleep
        self._may_begin = may_begin
        self._latency = Histogram(desk.tally.latency)

    def run(self, source: TableSource) -> None:
        """Work until the source is exhausted and every record has reached its end."""
        desk = self._desk
        while not source.is_exhausted:
            self._wait_for_breaker()
            self._wait_until_allowed()
            table = source.fetch_table(desk.route.size, 0.1)
            if table is not None and table.num_rows:
                self._handle(table)
            desk.tick()
            # The next table waits until the copies of this one are safe, so order holds and memory is bounded.
            while not desk.is_done:
                self._sleep(0.002)
                desk.tick()

    def _handle(self, table: pa.Table) -> None:
        tally, route, telling = self._desk.tally, self._desk.route, self._desk.telling
        tally.first = tally.first or self._clock.wall()
        tally.read += table.num_rows
        tally.size += _payload_size(table)
        attempt = 1
        while True:
            self._begin(table)
            tally.calls += 1
            began = self._clock.monotonic()
            try:
                route.function(table)
                tally.handled += table.num_rows
                if telling.tells_ends:
                    telling.handled(_first_records(table, attempt))
                return self._finish(table, began)
            except Skip as skip:
                tally.skipped += table.num_rows
                if telling.tells_ends:
                    records = _first_records(table, attempt)
                    telling.skipped(records, dict.fromkeys(map(id, records), skip))
                return self._finish(table, began)
            except Exception as error:  # noqa: BLE001 - the lane boundary
                tally.seconds += self._clock.monotonic() - began
                if self._is_kept(table, error):
                    tally.retried += 1
                    continue
                verdict = judge(error, attempt, route.retry, route.step)
                if not isinstance(verdict, TryAgain):
                    return self._copy(table, error, attempt, verdict)
                telling.retried(_first_records(table, attempt)[0], error, verdict.pause)
                tally.retried += 1
                attempt += 1
                self._sleep(verdict.pause.total_seconds())

    def _wait_until_allowed(self) -> None:
        while not self._may_begin():
            self._sleep(_PAUSE)

    def _wait_for_breaker(self) -> None:
        """While the handler's breaker is open nothing is read or called before a probe is due."""
        gate = self._desk.gate
        if gate is not None and gate.wait:
            self._sleep(gate.wait)

    def _begin(self, table: pa.Table) -> None:
        self._wait_for_breaker()
        self._wait_until_allowed()
        if self._desk.gate is not None:
            self._desk.gate.began(table)

    def _is_kept(self, table: pa.Table, error: Exception) -> bool:
        """Whether the breaker keeps a table that failed, to be called again as if it had not been."""
        gate = self._desk.gate
        return gate is not None and gate.saw(
            table, error if is_failure(error, self._desk.route.retry) else None, is_good=False
        )

    def _finish(self, table: pa.Table, began: float) -> None:
        tally, wall = self._desk.tally, self._clock.wall()
        if self._desk.gate is not None:
            self._desk.gate.saw(table, None, is_good=True)
        tally.seconds += self._clock.monotonic() - began
        tally.last = wall
        # One value per table, not per row: the newest row's latency, counted once for each row would cost a loop.
        newest = table.column("timestamp")[-1].as_py()
        self._latency.add_all([int(wall * 1000) - newest])

    def _copy(self, table: pa.Table, error: Exception, attempt: int, verdict: Defer | Park) -> None:
        self._wait_until_allowed()
        records = [_as_record(row, attempt) for row in table.to_pylist()]
        for record in records:
            self._desk.ledger.see(record.partition, [record.offset])
        self._desk.copy_all(records, error, verdict)


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
