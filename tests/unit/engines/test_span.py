"""A span: what is read, when it ends, and what it leaves to the next one."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from laneway import Retry
from laneway._core.call import Call
from laneway._core.copy_index import CopyIndex
from laneway._engines.spark.control import Orders
from laneway._engines.spark.plan import Position
from laneway._engines.spark.span import Span, SpanProcessor
from laneway._kafka import OffsetRange
from support.core import FakeClock, FakeSender, make_record, make_route

RANGE = OffsetRange("orders", 0, 0, 10)


class Reader:
    """Ten records of one partition; their keys take turns."""

    def __init__(self, keys=2):
        self.offsets = list(range(10))
        self._keys = keys

    @property
    def is_exhausted(self):
        return not self.offsets

    def fetch(self, most, timeout):
        found, self.offsets = self.offsets[:most], self.offsets[most:]
        return [make_record(offset, b"k%d" % (offset % self._keys)) for offset in found]

    def fetch_table(self, most, timeout):
        found, self.offsets = self.offsets[:most], self.offsets[most:]
        return pa.table({"partition": [0] * len(found), "offset": found})

    def reached(self, part):
        return self.offsets[0] if self.offsets else part.end


class Bench:
    """A task, step by step."""

    def __init__(self, function=None, *, positions=None, keys=2, lanes=1, **fields):
        self.line = SimpleNamespace(orders=Orders())
        self.clock, self.reader = FakeClock(), Reader(keys)
        self.route = make_route(function, lanes=lanes, **fields)
        self.span = Span(self.reader, positions or {}, CopyIndex("orders"), line=self.line, seconds=3600)
        rest = {"lanes": lanes, "sender": FakeSender(), "clock": self.clock, "span": self.span}
        self.processor = SpanProcessor([self.route], "billing", **rest)
        self.call = Call(self.route, self.clock)

    def read(self, most=100):
        if not self.span.is_exhausted:
            self.processor.admit(self.span.fetch(most, 0.0))
        self.look()

    def look(self):
        self.processor.is_closing = self.span.is_exhausted
        self.processor.tick()

    def turn(self):
        turn = self.processor.take()
        if turn is not None:
            work = self.call.batch if self.route.is_batch else self.call.single
            self.processor.settle(turn, work(turn))
        return turn is not None

    def end(self):
        (position,) = self.span.reached([RANGE], self.processor).values()
        return position, self.processor.close()


def test_what_no_lane_has_begun_is_left_to_the_next_span():
    """Whatever was read; the counts say what was worked on."""
    bench = Bench()
    bench.read(8)
    bench.turn()
    bench.line.orders = Orders(pause=1)
    bench.look()
    assert not bench.turn()
    assert bench.processor.is_done
    position, tally = bench.end()
    assert position == Position(8, tuple(range(1, 8)))
    assert (tally.read, tally.handled) == (1, 1)


def test_a_span_that_is_over_stays_over():
    """After a resume it reads nothing: that could be younger than what it has dropped."""
    bench = Bench()
    bench.read(4)
    bench.line.orders = Orders(pause=1)
    bench.look()
    bench.line.orders = Orders()
    assert bench.span.is_exhausted
    bench.read()
    assert bench.processor.is_done
    assert bench.end()[0] == Position(4, (0, 1, 2, 3))


@pytest.mark.parametrize(("orders", "is_kept"), [(Orders(pause=1), True), (Orders(is_stopping=True), False)])
def test_a_record_that_is_tried_again_is_kept_but_for_a_stop(orders, is_kept):
    """Only its desk knows how often it was tried; what waits behind it is dropped."""
    calls = []

    def fail(record):
        calls.append((record.offset, record.attempt))
        raise RuntimeError("planted")

    bench = Bench(fail, keys=1, retry=Retry(3, "10s", jitter=0))
    bench.read()
    bench.turn()
    bench.line.orders = orders
    for _ in range(10):
        bench.clock.advance(10)
        bench.look()
        bench.turn()
        bench.look()
    assert bench.processor.is_done
    position, tally = bench.end()
    assert calls == [(0, attempt) for attempt in range(1, 4 if is_kept else 2)]
    assert position.unfinished == tuple(range(1 if is_kept else 0, 10))
    assert tally.parked == is_kept


@pytest.mark.parametrize("size", [3, 100])
def test_of_a_unique_handler_no_older_record_of_a_key_is_left(size):
    """Read again, it would have the last word over the newer one that was tried again meanwhile."""

    def fail(batch):
        for record in batch:
            if record.attempt < 2:
                batch.retry(record)

    bench = Bench(fail, keys=2, kind="unique", size=size, retry=Retry(3, "10s", jitter=0))
    bench.read()
    bench.turn()
    bench.line.orders = Orders(pause=1)
    for _ in range(3):
        bench.look()
        bench.clock.advance(10)
        bench.look()
        bench.turn()
    assert bench.processor.is_done
    position, tally = bench.end()
    assert tally.handled
    for key in (0, 1):
        left = [offset for offset in position.unfinished if offset % 2 == key]
        done = [offset for offset in range(10) if offset % 2 == key and offset not in left]
        assert not left or not done or max(done) < min(left)


def test_what_is_finished_already_is_left_out():
    """Records before the position's end are read again only if they are unfinished."""
    bench = Bench(positions={0: Position(6, (0, 3))})
    bench.read()
    while bench.turn():
        pass
    bench.look()
    position, tally = bench.end()
    assert position == Position(10)
    assert tally.handled == 6


def test_what_was_finished_past_the_end_of_a_span_stays_finished():
    """It was read no further than that."""
    bench = Bench(positions={0: Position(6, (0, 3))})
    bench.read(2)
    while bench.turn():
        pass
    bench.line.orders = Orders(pause=1)
    bench.look()
    assert bench.end()[0] == Position(6, (3,))


def test_rows_that_are_finished_are_left_out():
    """As records are."""
    span = Span(
        Reader(), {0: Position(6, (0, 3))}, CopyIndex("orders"), line=SimpleNamespace(orders=Orders()), seconds=9
    )
    assert span.fetch_table(100, 0.0).column("offset").to_pylist() == [0, 3, 6, 7, 8, 9]


def test_a_span_ends_by_time():
    """Whatever is left."""
    span = Span(Reader(), {}, CopyIndex("orders"), line=SimpleNamespace(orders=Orders()), seconds=0)
    assert span.is_exhausted


def test_a_record_that_is_lost_in_between_is_a_bug_that_shows():
    """Only what was dropped may be unfinished at the end."""
    from laneway.errors import UnreachableStateError

    bench = Bench()
    bench.read(4)
    bench.line.orders = Orders(pause=1)
    bench.look()
    bench.processor.steps[0].ledger.see(0, [4])
    with pytest.raises(UnreachableStateError):
        bench.processor.close()
