"""Lanes on threads."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from laneway import Breaker, Buffer, Message, Reject, Retry, Topic
from laneway._clock import SystemClock
from laneway._core.call import Call
from laneway._core.processor import Processor
from laneway._runtime.runners import ThreadRunner
from laneway.errors import ProduceError
from support.core import FakeSender, LateSender, ListSource, lane_threads, make_record, make_records, make_route
from support.waiting import eventually

MILLISECOND = 0.001


def make(function, *, lanes, sender=None, clock=None, **fields):
    route, clock = make_route(function, lanes=lanes, **fields), clock or SystemClock()
    processor = Processor([route], "billing", lanes=lanes, sender=sender or FakeSender(), clock=clock)
    return processor, ThreadRunner(processor, Call(route, clock), clock)


def run(function, records, *, lanes, sender=None, **fields):
    processor, runner = make(function, lanes=lanes, sender=sender, **fields)
    runner.run(ListSource(records))
    return processor.close()


class TickingClock:
    """Moves a microsecond with every look, so that calls are fast however busy the machine is."""

    def __init__(self):
        self._ticks = itertools.count()

    def monotonic(self):
        return 1000 + next(self._ticks) * 1e-6

    wall = monotonic


class Watch:
    """A handler that notes the order of calls, overlaps of a key, and how many run at once."""

    def __init__(self, seconds=MILLISECOND):
        self._seconds = seconds
        self._lock = threading.Lock()
        self._running = []
        self.most = 0
        self.overlaps = 0
        self.calls = {}
        self.threads = set()

    def __call__(self, record):
        with self._lock:
            self.overlaps += record.key in self._running
            self._running.append(record.key)
            self.most = max(self.most, len(self._running))
            self.calls.setdefault(record.key, []).append(record.offset)
            self.threads.add(threading.get_ident())
        time.sleep(self._seconds)
        with self._lock:
            self._running.remove(record.key)


def test_keys_keep_their_order_and_never_overlap():
    """Whatever the lanes do, a key's records are called one after the other."""
    watch = Watch()
    tally = run(watch, make_records(400, keys=13), lanes=8)

    assert tally.handled == 400
    assert watch.overlaps == 0
    assert all(sorted(offsets) == offsets for offsets in watch.calls.values())
    assert watch.most > 1


def test_as_many_keys_run_at_once_as_there_are_lanes():
    """Fifty slow keys on fifty lanes are in work together."""
    watch = Watch(20 * MILLISECOND)
    tally = run(watch, make_records(200, keys=50), lanes=50)

    assert tally.handled == 200
    assert watch.most == 50
    assert len(watch.threads - {threading.get_ident()}) == 50  # the first calls are tried on the reader's own


def test_lanes_are_never_exceeded():
    """More keys than lanes wait."""
    watch = Watch()
    run(watch, make_records(60, keys=60), lanes=3)

    assert watch.most == 3


def test_a_handler_that_turns_slow_is_spread_over_lanes():
    """What a lane had taken while calls were fast is given back to the others."""
    fast = Watch(0)
    slow = Watch(2 * MILLISECOND)
    run(lambda record: (fast if record.offset < 3000 else slow)(record), make_records(3400, keys=100), lanes=20)

    assert slow.most >= 10
    assert slow.overlaps == 0


def test_a_fast_handler_gets_no_more_threads_than_help():
    """Python runs one thread at a time, so two hundred lanes do not lead to two hundred threads."""
    processor, runner = make(lambda record: None, lanes=200, clock=TickingClock())
    runner.run(ListSource(make_records(20_000, keys=500)))

    assert processor.close().handled == 20_000
    assert len(runner._threads) <= 2


def test_failures_are_tried_again_and_then_parked():
    """Each key waits for its own record; the copies tell the attempts."""
    calls, sender = [], FakeSender()

    def handle(record):
        calls.append((record.key, record.offset))
        if record.offset == 0:
            raise ValueError("planted")
        if record.offset == 1:
            raise Reject

    tally = run(handle, make_records(6, keys=3), lanes=4, sender=sender, retry=Retry(3, "2ms"))

    assert (tally.handled, tally.parked, tally.retried) == (4, 2, 2)
    assert [offset for key, offset in calls if key == b"key-0"] == [0, 0, 0, 3]
    attempts = {
        dict(copy["headers"])["laneway-origin-offset"]: dict(copy["headers"])["laneway-attempts"]
        for copy in sender.acked
    }
    assert attempts == {b"0": b"3", b"1": b"1"}


def test_a_retry_does_not_wait_for_a_busy_lane():
    """It runs as soon as its pause is over, while slow calls of other keys go on."""
    began, again = [], []

    def handle(record):
        if record.offset == 0:
            (again if record.attempt == 2 else began).append(time.monotonic())
            if record.attempt == 1:
                raise ValueError("planted")
        else:
            time.sleep(0.3)

    run(handle, make_records(4, keys=4), lanes=4, retry=Retry(2, "5ms"))

    assert again[0] - began[0] < 0.25


def test_messages_are_acknowledged_before_the_end():
    """A run is over when nothing is on its way, also after failed tries."""
    sender = FakeSender([ProduceError("down")])
    tally = run(lambda record: Message(Topic("out"), record.raw), make_records(20, keys=20), lanes=4, sender=sender)

    assert (tally.handled, tally.produced, tally.undelivered) == (20, 20, 1)


@pytest.mark.parametrize("count", [50, 5_000])
def test_nothing_spins_while_a_copy_waits(count):
    """A broker that is away for a second is not asked a thousand times whether the copy has landed."""
    sender = LateSender(1.0)
    tally = run(lambda record: Message(Topic("out"), record.raw), make_records(count, keys=7), lanes=4, sender=sender)
    assert tally.produced == count
    assert 10 < sender.polls < 150 + count / 10


def test_batches_are_called_with_several_records():
    """No batch is above its size, a key is in one at a time, and the rest is not waited for at the end."""
    sizes = []
    tally = run(lambda batch: sizes.append(len(batch)), make_records(25, keys=5), lanes=2, kind="batch", size=10)

    assert tally.handled == 25
    assert max(sizes) <= 10
    assert sum(sizes) == 25


def test_a_blocked_handler_bounds_what_is_read():
    """The source is not read beyond the buffer while nothing is finished."""
    gate, reached = threading.Event(), threading.Semaphore(0)

    def handle(record):
        reached.release()
        assert gate.wait(10)

    processor, runner = make(handle, lanes=4, buffer=Buffer(10))
    source = ListSource(make_records(100, keys=100))
    thread = threading.Thread(target=runner.run, args=(source,))
    thread.start()
    for _ in range(4):
        assert reached.acquire(timeout=5)
    time.sleep(0.02)

    assert source.given == 10
    assert processor.steps[0].ledger.committable(0) == 0
    gate.set()
    thread.join(10)
    assert processor.close().handled == 100


class _Waiting:
    """A source that gives a few records and then nothing for a while."""

    def __init__(self, records, seconds):
        self._records, self._end = records, time.monotonic() + seconds
        self.looks = 0

    @property
    def is_exhausted(self):
        return time.monotonic() > self._end

    def fetch(self, most, timeout):
        self.looks += 1
        given, self._records = self._records, []
        return given


def test_waiting_for_a_batch_to_fill_does_not_spin():
    """Once, reader and lanes woke each other without end while a batch was not full."""
    processor, runner = make(lambda batch: None, lanes=4, kind="batch", size=100)
    source = _Waiting(make_records(5), 0.1)
    runner.run(source)

    assert processor.close().handled == 5
    assert source.looks < 300


def test_an_exit_in_a_handler_ends_the_run():
    """SystemExit is not a failure of a record."""

    def handle(record):
        raise SystemExit(3)

    _, runner = make(handle, lanes=2)
    with pytest.raises(SystemExit):
        runner.run(ListSource(make_records(1)))


def test_a_bug_in_our_own_code_ends_the_run():
    """What the processor raises in a lane comes out of run."""
    processor, runner = make(lambda record: None, lanes=2)

    def broken(turn, result):
        raise RuntimeError("a bug")

    processor.settle = broken
    with pytest.raises(RuntimeError, match="a bug"):
        runner.run(ListSource(make_records(1)))


def test_a_source_that_fails_ends_the_run_soon():
    """Once, everything in memory was worked through first, to be repeated after the restart."""
    calls, others = [], lane_threads()

    def handle(record):
        calls.append(record.offset)
        time.sleep(2 * MILLISECOND)

    _, runner = make(handle, lanes=2)
    with pytest.raises(OSError, match="gone"):
        runner.run(ListSource(make_records(1000, keys=1000), error=OSError("gone")))

    assert len(calls) < 500
    assert lane_threads() <= others


def test_an_empty_source_is_no_work():
    """A run over nothing ends at once."""
    assert run(pytest.fail, [], lanes=4).read == 0


def test_strict_lanes_hold_a_busy_partition_back():
    """A partition never uses the lanes of another one."""
    watch = Watch(2 * MILLISECOND)
    route = make_route(watch, lanes=2, strict=True)
    processor = Processor([route], "billing", lanes=6, sender=FakeSender(), clock=SystemClock(), per_partition=2)
    ThreadRunner(processor, Call(route, SystemClock()), SystemClock()).run(
        ListSource([make_record(offset, b"%d" % offset) for offset in range(40)])
    )

    assert processor.close().handled == 40
    assert watch.most == 2


class CountingClock(SystemClock):
    """Tells how often it was looked at, which is how often a runner that spins goes round."""

    looks = 0

    def monotonic(self):
        self.looks += 1
        return super().monotonic()


@pytest.mark.parametrize("seconds", [0.0, 0.002], ids=["fast", "slow"])
def test_nothing_spins_while_a_breaker_is_open(seconds):
    """The source has more, but reader and lanes sleep until the probe is due, however fast the handler is."""
    clock, calls, source = CountingClock(), [], ListSource(make_records(3000, keys=3000), chunk=50)
    began, lanes, lock = time.monotonic(), 4, threading.Lock()

    def handle(record):
        if seconds:
            time.sleep(seconds)
        if record.offset >= 200:
            with lock:
                calls.append((time.monotonic(), clock.looks, source.given, time.process_time()))
                is_vain = len(calls) <= lanes + 2
            if is_vain:
                raise ConnectionError

    # A small buffer: what there is room for is read also while the breaker is open, and each such look counts.
    breaker, buffer = Breaker(1, "200ms", "200ms"), Buffer(500)
    processor, runner = make(handle, lanes=lanes, clock=clock, breaker=breaker, buffer=buffer, order="none")
    runner.run(source)
    tally = processor.close()

    last, *probes = calls[lanes - 1 : lanes + 2]  # of the calls before, each may have been out when it opened
    assert probes[1][0] - probes[0][0] > 0.199
    assert probes[-1][1] - last[1] < 40 * len(probes)
    assert probes[-1][3] - last[3] < 0.1
    assert len({given for _, _, given, _ in probes}) == 1
    assert (tally.handled, tally.parked, tally.breaker_opened) == (3000, 0, 1)
    assert time.monotonic() - began < 30


def test_one_probe_at_a_time_however_many_lanes_are_free():
    """Each takes a while, and no other call begins meanwhile."""
    running, beside, lanes, failing, lock = set(), [], 4, 10, threading.Lock()

    def handle(record):
        with lock:
            number = len(beside)
            beside.append(len(running))
            if number >= lanes:  # earlier ones may have begun before the breaker was open
                running.add(record.offset)
        time.sleep(0.03)
        with lock:
            running.discard(record.offset)
        if number < failing:
            raise ConnectionError

    processor, runner = make(handle, lanes=lanes, breaker=Breaker(1, "20ms", "20ms"), order="none")
    runner.run(ListSource(make_records(8, keys=8)))

    assert beside[lanes : failing + 1] == [0] * (failing + 1 - lanes)
    assert (processor.close().handled, processor.tally.parked) == (8, 0)


def test_a_full_desk_does_not_spin_before_a_source_that_announces():
    """Records wait in the source, there is no room for them, and nothing happens: the reader sleeps."""

    class Announcing(ListSource):
        announces = True
        has_news = True

    goes = threading.Event()

    def handle(record):
        goes.wait(20)

    route, clock = make_route(handle, lanes=2, buffer=Buffer(records=2)), SystemClock()
    processor = Processor([route], "billing", lanes=2, sender=FakeSender(), clock=clock)
    runner = ThreadRunner(processor, Call(route, clock), clock)
    thread = threading.Thread(target=runner.run, args=(Announcing(make_records(10)),))
    thread.start()
    eventually(lambda: processor.lanes.busy, timeout=20)
    looks = itertools.count()
    tick = processor.tick
    processor.tick = lambda: (next(looks), tick())
    time.sleep(0.5)
    seen = next(looks)
    goes.set()
    thread.join(20)
    assert processor.tally.handled == 10
    assert seen < 100


# Calls that hang


class Hanging:
    """A fast handler, of which calls of some offsets hang until the test lets them go."""

    def __init__(self, *offsets):
        self.goes = {offset: threading.Event() for offset in offsets}
        self.begun, self.ended = [], []

    def __call__(self, record):
        self.begun.append(record.offset)
        if record.offset in self.goes:
            assert self.goes[record.offset].wait(60)
        self.ended.append(record.offset)


def start(runner, source):
    errors = []

    def go():
        try:
            runner.run(source)
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=go)
    thread.start()
    return thread, errors


@pytest.mark.parametrize("lanes", [1, 2, 40])
def test_a_call_that_hangs_blocks_only_its_key(lanes):
    """Fast calls run many in a turn: once, all of them waited for the one that hung."""
    handle, count, keys = Hanging(5_000), 20_000, 1_000
    processor, runner = make(handle, lanes=lanes)
    thread, _ = start(runner, ListSource(make_records(count, keys=keys)))
    behind = (count - 5_000) // keys  # the record and those of its key
    others = count - behind if lanes > 1 else 5_000
    eventually(lambda: len(handle.ended) >= others, timeout=60)
    assert len(handle.begun) == len(handle.ended) + 1
    handle.goes[5_000].set()
    thread.join(60)

    assert sorted(handle.begun) == list(range(count))
    for key in range(keys):
        calls = [offset for offset in handle.ended if offset % keys == key]
        assert calls == sorted(calls)
    assert processor.close().handled == count


def test_calls_that_hang_one_after_the_other():
    """Each leaves the lanes to the others, and all records are handled once."""
    hung = (3_000, 9_000, 15_000)
    handle, count = Hanging(*hung), 20_000
    processor, runner = make(handle, lanes=8)
    thread, _ = start(runner, ListSource(make_records(count, keys=count)))
    for number, offset in enumerate(hung):
        eventually(lambda offset=offset: offset in handle.begun, timeout=60)
        if number:
            handle.goes[hung[number - 1]].set()
    eventually(lambda: len(handle.ended) == count - 1, timeout=60)
    handle.goes[hung[-1]].set()
    thread.join(60)

    assert sorted(handle.begun) == list(range(count))
    assert processor.close().handled == count


def test_a_source_that_fails_while_a_call_hangs_ends_the_run():
    """It comes out of `run`."""
    failed = threading.Event()

    class Failing(ListSource):
        def fetch(self, most, timeout):
            if not self._records:
                failed.set()
            return super().fetch(most, timeout)

    handle = Hanging(4_000)
    _, runner = make(handle, lanes=2)
    thread, errors = start(runner, Failing(make_records(20_000, keys=20_000), error=OSError("gone")))
    assert failed.wait(60)
    assert thread.is_alive()
    handle.goes[4_000].set()
    thread.join(60)

    assert [str(error) for error in errors] == ["gone"]
    assert sorted(handle.begun) == sorted(handle.ended)
