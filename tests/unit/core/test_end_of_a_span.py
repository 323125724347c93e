"""What a processor does when nothing more is to be begun, and another one goes on soon."""

from __future__ import annotations

import pytest

from laneway import Retry
from laneway._core.call import Call
from laneway._core.finished_map import FinishedMap
from laneway._core.processor import Processor
from laneway._core.state import Drain, Inherit
from laneway.errors import UnreachableStateError
from support.core import FakeClock, FakeSender, make_record, make_route


class Bench:
    """A handler, step by step, with ten records of one partition; their keys take turns."""

    def __init__(self, function=None, *, keys=2, **fields):
        self.clock = FakeClock()
        self.route = make_route(function, lanes=1, **fields)
        self.processor = Processor([self.route], "billing", lanes=1, sender=FakeSender(), clock=self.clock)
        self.call = Call(self.route, self.clock)
        self._keys = keys

    def read(self, *offsets):
        self.processor.admit([make_record(offset, b"k%d" % (offset % self._keys)) for offset in offsets])
        self.processor.tick()

    def turn(self):
        turn = self.processor.take()
        if turn is not None:
            work = self.call.batch if self.route.is_batch else self.call.single
            self.processor.settle(turn, work(turn))
        return turn is not None

    def drain(self, *, is_last=False):
        self.processor.post(Drain(is_last))
        self.processor.is_closing = True
        self.processor.tick()

    def pass_time(self, times=10):
        for _ in range(times):
            self.clock.advance(10)
            self.processor.tick()
            self.turn()
            self.processor.tick()

    @property
    def unfinished(self):
        return self.processor.steps[0].ledger.unfinished(0)


def test_what_no_lane_has_begun_is_left_to_the_next_one():
    """Whatever was read; the counts say what was worked on."""
    bench = Bench()
    bench.read(*range(8))
    bench.turn()
    bench.drain()
    assert not bench.turn()
    assert bench.processor.is_done
    assert bench.unfinished == tuple(range(1, 8))
    tally = bench.processor.close()
    assert (tally.read, tally.size, tally.handled) == (1, 3, 1)


@pytest.mark.parametrize("is_last", [False, True])
def test_what_comes_after_the_end_is_dropped(is_last):
    """Records that were on their way when the order came are not begun."""
    bench = Bench()
    bench.drain(is_last=is_last)
    bench.read(*range(4))
    assert not bench.turn()
    assert bench.unfinished == (0, 1, 2, 3)
    assert bench.processor.close().read == 0


@pytest.mark.parametrize("is_last", [False, True])
def test_a_record_that_is_tried_again_is_kept_if_another_one_goes_on_soon(is_last):
    """Only this processor knows how often it was tried; what waits behind it is dropped."""
    calls = []

    def fail(record):
        calls.append((record.offset, record.attempt))
        raise RuntimeError("planted")

    bench = Bench(fail, keys=1, retry=Retry(3, "10s", jitter=0))
    bench.read(*range(10))
    bench.turn()
    bench.drain(is_last=is_last)
    bench.pass_time()
    assert bench.processor.is_done
    assert calls == [(0, attempt) for attempt in range(1, 2 if is_last else 4)]
    assert bench.unfinished == tuple(range(0 if is_last else 1, 10))
    assert bench.processor.close().parked == (not is_last)


def test_a_stop_at_the_end_of_a_span_does_not_wait_for_the_next_try():
    """What was kept at first is dropped when it turns out that nobody goes on soon."""

    def fail(record):
        raise RuntimeError("planted")

    bench = Bench(fail, keys=1, retry=Retry(3, "10s", jitter=0))
    bench.read(*range(3))
    bench.turn()
    bench.drain()
    assert not bench.processor.is_done
    bench.drain(is_last=True)
    assert bench.processor.is_done
    assert bench.unfinished == (0, 1, 2)
    bench.processor.close()


@pytest.mark.parametrize("size", [3, 100])
def test_of_a_unique_handler_no_older_record_of_a_key_is_left(size):
    """Read again, it would have the last word over the newer one that was tried again meanwhile."""

    def fail(batch):
        for record in batch:
            if record.attempt < 2:
                batch.retry(record)

    bench = Bench(fail, keys=2, kind="unique", size=size, retry=Retry(3, "10s", jitter=0))
    bench.processor.is_closing = True  # a batch need not be full
    bench.read(*range(10))
    bench.turn()
    bench.drain()
    bench.pass_time(3)
    assert bench.processor.is_done
    left = bench.unfinished
    assert bench.processor.close().handled
    for key in (0, 1):
        open_ = [offset for offset in left if offset % 2 == key]
        done = [offset for offset in range(10) if offset % 2 == key and offset not in open_]
        assert not open_ or not done or max(done) < min(open_)


def test_a_record_that_is_lost_in_between_is_a_bug_that_shows():
    """Only what was dropped may be unfinished at the end."""
    bench = Bench()
    bench.read(*range(4))
    bench.drain()
    bench.processor.steps[0].ledger.see(0, [4])
    with pytest.raises(UnreachableStateError):
        bench.processor.close()


def test_what_was_finished_before_is_not_run_again():
    """Others may need it to be read; in the ledger it is as if it had been handled here."""
    bench = Bench()
    bench.processor.post(Inherit("orders", 0, FinishedMap([(1, 3), (4, 6)])))
    bench.read(*range(6))
    while bench.turn():
        pass
    assert bench.processor.steps[0].ledger.snapshot(0) == (6, [])
    assert bench.processor.close().handled == 2
    assert [record.offset for record in bench.processor.ours([make_record(offset) for offset in range(8)])] == [
        0, 3, 6, 7,
    ]  # fmt: skip
