"""How runs on threads end, and what they do while they wait: acknowledgements by hand, exits, a drain."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from laneway import Buffer
from laneway._clock import SystemClock
from laneway._core.acks import acknowledging
from laneway._core.call import Call
from laneway._core.processor import Processor
from laneway._runtime.runners import ThreadRunner
from support.core import FakeSender, ListSource, make_record, make_records, make_route
from support.waiting import eventually


class CountingDesk(Processor):
    """Tells how often the runner has looked."""

    looks = 0

    def tick(self):
        self.looks += 1
        super().tick()


def make(function, *, lanes=4, **fields):
    route, clock = make_route(function, lanes=lanes, **fields), SystemClock()
    processor = CountingDesk([route], "billing", lanes=lanes, sender=FakeSender(), clock=clock)
    return processor, ThreadRunner(processor, Call(route, clock), clock)


def start(runner, source):
    """Run on a thread; what comes out of it is put into the list."""
    ends = []

    def go():
        try:
            runner.run(source)
            ends.append(None)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            ends.append(error)

    thread = threading.Thread(target=go, name="runs", daemon=True)
    thread.start()
    return thread, ends


@pytest.mark.parametrize("lasts", [0.0, 0.001], ids=["fast", "slow"])
def test_acknowledgements_that_come_before_the_call_is_settled(lasts):
    """By another thread, or by the function itself: once, settling them took the runner's lock a second time."""
    given, acks = queue.SimpleQueue(), []

    def handle(record, ack):
        time.sleep(lasts)
        if record.offset % 2:
            given.put(ack)
            time.sleep(0)
        else:
            ack.release()
            acks.append(ack)

    def acknowledge():
        while (ack := given.get()) is not None:
            ack.done()

    acknowledger = threading.Thread(target=acknowledge)
    acknowledger.start()
    processor, runner = make(acknowledging(handle, "handle", is_async=False))
    thread, ends = start(runner, ListSource(make_records(2_000, keys=50)))
    eventually(lambda: len(acks) == 1_000, timeout=60)
    for ack in acks:
        ack.done()
    thread.join(60)
    given.put(None)
    acknowledger.join()
    assert ends == [None]
    assert processor.close().handled == 2_000


def test_nothing_spins_until_what_was_released_is_acknowledged():
    """No key waits, nothing is on its way, and yet the run is not over."""
    acks = []

    def handle(record, ack):
        ack.release()
        acks.append(ack)

    processor, runner = make(acknowledging(handle, "handle", is_async=False))
    thread, ends = start(runner, ListSource(make_records(2_000, keys=2_000)))
    eventually(lambda: len(acks) == 2_000 and not processor.steps[0].scheduler.records, timeout=60)
    before = processor.looks
    time.sleep(0.5)
    assert processor.looks - before < 100
    for ack in acks:
        ack.done()
    thread.join(60)
    assert ends == [None]


class Endless:
    """Gives records for as long as it is asked."""

    is_exhausted = False
    given = 0

    def fetch(self, most, timeout):
        time.sleep(0.0005)
        first, self.given = self.given, self.given + min(most, 500)
        return [make_record(offset, b"k%d" % (offset % 300)) for offset in range(first, self.given)]


def test_an_exit_in_a_call_that_hung_ends_the_run():
    """The other lanes have gone on meanwhile; it comes out of `run`."""
    hung = threading.Event()

    def handle(record):
        if record.offset == 3_000:
            hung.wait(60)
            raise SystemExit(7)
        if record.offset > 20_000:
            hung.set()

    _, runner = make(handle, lanes=8)
    thread, ends = start(runner, Endless())
    thread.join(60)
    assert [type(end) for end in ends] == [SystemExit]


def test_the_size_of_other_stacks_is_left_alone():
    """It is set for a moment for each lane, and belongs to the process: once, two handlers put it back wrongly."""
    before = threading.stack_size()
    for _ in range(5):
        runs = []
        for _ in range(2):
            _, runner = make(lambda _: time.sleep(0.01), lanes=16)
            runs.append(start(runner, ListSource(make_records(64, keys=64)))[0])
        for run in runs:
            run.join(60)
        assert threading.stack_size() == before


class Ending(ListSource):
    """Announces records, and is ended while some are left."""

    announces = True
    is_over = False

    @property
    def has_news(self):
        return bool(self._records)

    @property
    def is_exhausted(self):
        return self.is_over


def test_nothing_spins_while_what_was_begun_is_finished():
    """What is left in a source that was ended is no news."""
    gate, first = threading.Event(), threading.Event()

    def handle(record):
        if record.offset:
            assert (first if record.offset == 1 else gate).wait(60)

    source = Ending(make_records(100, keys=100), chunk=10)
    processor, runner = make(handle, buffer=Buffer(5))
    thread, ends = start(runner, source)
    eventually(lambda: processor.lanes.busy == 4, timeout=60)
    source.is_over = True
    first.set()
    time.sleep(0.2)
    assert processor.room
    before = processor.looks
    time.sleep(0.5)
    assert processor.looks - before < 100
    gate.set()
    thread.join(60)
    assert ends == [None]
