"""A handler of tables."""

from __future__ import annotations

import pyarrow as pa
import pytest

from laneway import Breaker, Reject, Retry, Skip
from laneway._core.breaker import BreakerState
from laneway._core.processor import Processor
from laneway._runtime.runners import TableRunner
from support.core import FakeClock, FakeSender, make_route

HEADER = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADER),
    ]
)


def table(*offsets, key=b"k", value=b"v", headers=None):
    rows = [
        {
            "topic": "orders",
            "partition": 0,
            "offset": offset,
            "timestamp": 5,
            "key": key,
            "value": value,
            "headers": headers,
        }
        for offset in offsets
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


class Tables:
    """Gives tables from memory."""

    def __init__(self, *tables):
        self._tables = list(tables)
        self.asked = []

    @property
    def is_exhausted(self):
        return not self._tables

    def fetch_table(self, most, timeout):
        self.asked.append(most)
        return self._tables.pop(0)


def run(function, *tables, sender=None, source=None, **fields):
    clock, slept = FakeClock(), []

    def sleep(seconds):
        slept.append(seconds)
        clock.advance(max(seconds, 0.05))

    route = make_route(function, kind="columnar", size=10, **fields)
    processor = Processor([route], "billing", lanes=1, sender=sender or FakeSender(), clock=clock)
    clock.sleep = sleep
    TableRunner(processor, clock).run(source or Tables(*tables))
    return processor.close(), slept


def test_tables_come_one_after_the_other():
    """Each is one call, and empty fetches are none."""
    seen, source = [], Tables(table(0, 1), None, table(), table(2))
    tally, _ = run(lambda rows: seen.append(rows.column("offset").to_pylist()), source=source)

    assert seen == [[0, 1], [2]]
    assert (tally.read, tally.handled, tally.calls) == (3, 3, 2)
    assert set(source.asked) == {10}


def test_a_table_that_fails_is_tried_again_as_a_whole():
    """With a pause in between, and then counted as handled."""
    calls = []

    def handle(rows):
        calls.append(rows.num_rows)
        if len(calls) < 3:
            raise ValueError("planted")

    tally, slept = run(handle, table(0, 1), retry=Retry(3, "1s", jitter=0))

    assert calls == [2, 2, 2]
    assert slept == [1.0, 2.0]
    assert (tally.handled, tally.retried, tally.parked) == (2, 2, 0)


def test_a_table_that_keeps_failing_is_parked_row_by_row():
    """Each copy has its own key, value, headers and attempts; null and empty stay apart."""
    sender = FakeSender()

    def handle(rows):
        raise ValueError("planted")

    headers = [{"name": "h", "value": None}, {"name": "h", "value": b"1"}]
    tally, _ = run(
        handle,
        table(0, key=None, value=b"", headers=headers),
        table(1, value=None, key=b""),
        sender=sender,
        retry=Retry(2),
    )

    assert (tally.handled, tally.parked, tally.retried) == (0, 2, 2)
    first, second = sender.acked
    assert (first["key"], first["value"], second["key"], second["value"]) == (None, b"", b"", None)
    assert first["headers"][:2] == [("h", None), ("h", b"1")]
    assert ("laneway-attempts", b"2") in first["headers"]


def test_a_rejected_table_is_parked_at_once():
    """Trying again cannot help."""

    def handle(rows):
        raise Reject

    tally, _ = run(handle, table(0), retry=Retry(5))

    assert (tally.parked, tally.retried, tally.calls) == (1, 0, 1)


def test_a_skipped_table_is_finished():
    """All of its rows are counted as skipped."""

    def handle(rows):
        raise Skip

    assert run(handle, table(0, 1))[0].skipped == 2


def test_the_next_table_waits_until_the_copies_are_safe():
    """Once, tables were read on while the error topic was down, and the copies filled the memory."""
    sender, calls = FakeSender(), []

    def handle(rows):
        calls.append(len(sender.sent) - len(sender.acked))
        raise ValueError("planted")

    run(handle, table(0, 1), table(2, 3), sender=sender)

    assert calls == [0, 0]


def test_an_exit_ends_the_run():
    """SystemExit is not a failure of a table."""

    def handle(rows):
        raise SystemExit

    with pytest.raises(SystemExit):
        run(handle, table(0))


def test_nothing_is_read_or_called_while_a_breaker_is_open():
    """It sleeps until the probe is due, without a look in between; the table that failed is the probe."""
    calls, source = [], Tables(table(0), table(1, 2), table(3))

    def handle(rows):
        calls.append((rows.column("offset").to_pylist(), len(source.asked)))
        if 2 <= len(calls) <= 5:
            raise ConnectionError

    tally, slept = run(handle, source=source, breaker=Breaker(1, "5s", "15s"))

    assert calls == [([0], 1), *[([1, 2], 2)] * 5, ([3], 3)]
    assert slept == [5.0, 10.0, 15.0, 15.0]
    assert (tally.handled, tally.parked, tally.retried) == (4, 0, 4)
    assert (tally.breaker_opened, tally.breaker_seconds) == (1, 45.0)


def test_a_table_that_is_kept_uses_up_no_attempt():
    """Failures below the breaker's count are judged as ever; the one that opens it and probes are not."""
    calls = []

    def handle(rows):
        calls.append(rows.num_rows)
        if len(calls) < 6:
            raise ConnectionError

    tally, slept = run(handle, table(0, 1), retry=Retry(3, "1s", jitter=0), breaker=Breaker(2, "5s", "5s"))

    assert slept == [1.0, 5.0, 5.0, 5.0, 5.0]
    assert (tally.handled, tally.parked) == (2, 0)


def test_a_rejected_table_leaves_the_breaker_open_and_the_next_one_probes():
    """It is parked, and says nothing of the handler."""
    errors = [ConnectionError(), Reject(), None]

    def handle(rows):
        if (error := errors.pop(0)) is not None:
            raise error

    tally, slept = run(handle, table(0), table(1), breaker=Breaker(1, "5s"))

    assert (tally.handled, tally.parked, tally.breaker_seconds >= 5) == (1, 1, True)
    assert slept[0] == 5.0
    assert max(slept[1:], default=0) < 1


def test_a_breaker_that_an_earlier_task_left_open_is_waited_for_before_anything_is_read():
    """A task knows what the one before it has found out."""
    clock, state, breaker, source = FakeClock(), BreakerState(), Breaker(1, "5s"), Tables(table(0))
    state.failed(breaker, clock.monotonic())
    asked = []

    def sleep(seconds):
        asked.append(list(source.asked))
        clock.advance(seconds)

    processor = Processor(
        [make_route(lambda rows: None, kind="columnar", size=10, breaker=breaker)],
        "billing",
        lanes=1,
        sender=FakeSender(),
        clock=clock,
        breaker=state,
    )
    clock.sleep = sleep
    TableRunner(processor, clock).run(source)

    assert asked == [[]]
    assert (processor.close().handled, state.is_open) == (1, False)


def test_nothing_is_read_or_called_before_it_may_begin():
    """A process that was stopped waits until it knows what is still its own; then each table is called once."""
    source, seen, clock = Tables(table(0), table(1)), [], FakeClock()
    fetch, asked_at = source.fetch_table, []

    class Lease:
        until = clock.now + 5

        @property
        def is_valid(self):
            return clock.now >= self.until

    def fetch_table(most, timeout):
        asked_at.append(clock.now)
        lease.until = clock.now + 5  # it runs out while the table is read
        return fetch(most, timeout)

    def handle(rows):
        seen.append(clock.now)

    lease, source.fetch_table = Lease(), fetch_table
    began, route = clock.now, make_route(handle, kind="columnar")
    processor = Processor([route], "billing", lanes=1, sender=FakeSender(), clock=clock, lease=lease)
    clock.sleep = clock.advance
    TableRunner(processor, clock).run(source)

    assert [round(at - began) for at in asked_at] == [5, 10]
    assert [round(at - began) for at in seen] == [10, 15]
