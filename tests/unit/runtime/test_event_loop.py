"""Lanes on an event loop."""

from __future__ import annotations

import asyncio
import time

import pytest

from laneway import Breaker, Buffer, Message, Reject, Retry, Topic
from laneway._clock import SystemClock
from laneway._core.breaker import BreakerState
from laneway._core.call import Call
from laneway._core.processor import Processor
from laneway._runtime.runners import EventLoopRunner
from laneway.errors import ProduceError
from support.core import FakeSender, LateSender, ListSource, make_records, make_route


def run(function, records, *, lanes, sender=None, source=None, **fields):
    route = make_route(function, lanes=lanes, **fields)
    processor = Processor([route], "billing", lanes=lanes, sender=sender or FakeSender(), clock=SystemClock())

    async def go():
        await EventLoopRunner(processor, Call(route, SystemClock()), SystemClock()).run(source or ListSource(records))

    asyncio.run(go())
    return processor.close()


class Watch:
    """A handler that notes the order of calls, overlaps of a key, and how many run at once."""

    def __init__(self, seconds=0.001):
        self._seconds = seconds
        self._running = []
        self.most = self.overlaps = 0
        self.calls = {}

    async def __call__(self, record):
        self.overlaps += record.key in self._running
        self._running.append(record.key)
        self.most = max(self.most, len(self._running))
        self.calls.setdefault(record.key, []).append(record.offset)
        await asyncio.sleep(self._seconds)
        self._running.remove(record.key)


def test_keys_keep_their_order_and_never_overlap():
    """Whatever the lanes do, a key's records are called one after the other."""
    watch = Watch()
    tally = run(watch, make_records(400, keys=13), lanes=8)

    assert tally.handled == 400
    assert watch.overlaps == 0
    assert all(sorted(offsets) == offsets for offsets in watch.calls.values())
    assert 1 < watch.most <= 8


def test_as_many_keys_run_at_once_as_there_are_lanes():
    """Two thousand slow keys on two thousand lanes are in work together."""
    watch = Watch(0.2)
    tally = run(watch, make_records(2000, keys=2000), lanes=2000)

    assert tally.handled == 2000
    assert watch.most == 2000


def test_failures_are_tried_again_and_then_parked():
    """A key waits for its own record only."""

    async def handle(record):
        if record.key == b"key-0":
            raise ValueError("planted")

    sender = FakeSender([ProduceError("down")])
    tally = run(handle, make_records(6, keys=3), lanes=4, sender=sender, retry=Retry(2, "2ms"))

    assert (tally.handled, tally.parked, tally.retried, tally.undelivered) == (4, 2, 2, 1)
    assert [dict(copy["headers"])["laneway-origin-offset"] for copy in sender.acked] == [b"0", b"3"]


def test_a_retry_does_not_wait_for_a_busy_lane():
    """It runs as soon as its pause is over, while slow calls of other keys go on."""
    began, again = [], []

    async def handle(record):
        if record.offset == 0:
            (again if record.attempt == 2 else began).append(time.monotonic())
            if record.attempt == 1:
                raise ValueError("planted")
        else:
            await asyncio.sleep(0.3)

    run(handle, make_records(4, keys=4), lanes=4, retry=Retry(2, "5ms"))

    assert again[0] - began[0] < 0.25


def test_a_handler_cancelled_from_within_fails_its_record():
    """Once, such a lane ended in silence and the run never did."""

    async def handle(record):
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    assert run(handle, make_records(3), lanes=2).parked == 3


def test_messages_are_acknowledged_before_the_end():
    """A run is over when nothing is on its way."""

    async def handle(record):
        return Message(Topic("out"), record.raw)

    tally = run(handle, make_records(50, keys=7), lanes=4)

    assert (tally.handled, tally.produced) == (50, 50)


def test_nothing_spins_while_a_copy_waits():
    """A broker that is away for a second is not asked five hundred times whether the copy has landed."""

    async def handle(record):
        return Message(Topic("out"), record.raw)

    sender = LateSender(1.0)
    assert run(handle, make_records(50, keys=7), lanes=4, sender=sender).produced == 50
    assert 10 < sender.polls < 150


def test_batches_are_awaited():
    """No batch is above its size, and the rest is not waited for at the end."""
    sizes = []

    async def handle(batch):
        sizes.append(len(batch))

    assert run(handle, make_records(25, keys=5), lanes=2, kind="batch", size=10).handled == 25
    assert max(sizes) <= 10


def test_a_blocked_handler_bounds_what_is_read():
    """The source is not read beyond the buffer while nothing is finished."""
    source = ListSource(make_records(40, keys=40))
    given = []

    async def handle(record):
        await asyncio.sleep(0.01)
        given.append(source.given - len(given))

    assert run(handle, [], lanes=4, source=source, buffer=Buffer(10)).handled == 40
    assert max(given) <= 10


def test_a_round_of_the_loop_reads_enough_for_every_lane():
    """Once, a round read one list, however many lanes were left without work: nearly each record began a lane."""
    lanes, asked = 3_000, []

    async def handle(record):
        await asyncio.sleep(0.01)

    class Announcing(ListSource):
        announces = True

        @property
        def has_news(self):
            return not self.is_exhausted

        def fetch(self, most, timeout):
            asked.append(most)
            return super().fetch(most, timeout)

    source = Announcing(make_records(20_000, keys=20_000), chunk=20_000)
    assert run(handle, [], lanes=lanes, source=source, buffer=Buffer(20_000)).handled == 20_000
    assert asked[:3] == [2 * lanes] * 3


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ValueError("another")])
def test_a_bug_in_our_own_code_ends_the_run(error, monkeypatch):
    """What the processor raises in a lane comes out of run, and lanes still at work are cancelled."""
    ended = []

    async def handle(record):
        if record.offset:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(record.offset)

    def broken(self, *turn):
        raise error

    monkeypatch.setattr(Processor, "settle_one", broken)
    with pytest.raises(type(error), match=str(error)):
        run(handle, make_records(3, keys=3), lanes=3)

    assert sorted(ended) == [1, 2]


def test_a_source_that_fails_ends_the_run():
    """Its error comes out of run."""

    async def handle(record):
        await asyncio.sleep(60)

    with pytest.raises(OSError, match="gone"):
        run(handle, [], lanes=2, source=ListSource(make_records(2, keys=2), error=OSError("gone")))


class CountingClock(SystemClock):
    """Tells how often it was looked at, which is how often a runner that spins goes round."""

    looks = 0

    def monotonic(self):
        self.looks += 1
        return super().monotonic()


@pytest.mark.parametrize("kind", ["single", "batch"])
def test_nothing_spins_while_a_breaker_is_open(kind):
    """The source has more, but the loop sleeps until the probe is due; then work goes on, and nothing is parked."""
    clock, calls, lanes = CountingClock(), [], 4
    source = ListSource(make_records(400, keys=400), chunk=50)

    async def handle(_):
        calls.append((time.monotonic(), clock.looks, source.given))
        if len(calls) <= lanes + 2:
            raise ConnectionError

    size = {"kind": "batch", "size": 5} if kind == "batch" else {}
    route = make_route(handle, lanes=lanes, breaker=Breaker(1, "200ms", "200ms"), **size)
    processor = Processor([route], "billing", lanes=lanes, sender=FakeSender(), clock=clock)
    asyncio.run(EventLoopRunner(processor, Call(route, clock), clock).run(source))
    tally = processor.close()

    vain = calls[: lanes + 2]  # of the first ones, each may have been out when it opened
    assert vain[-1][0] - vain[-2][0] > 0.199
    assert vain[-1][1] - vain[0][1] < 200
    assert {given for *_, given in vain} == {50}
    assert (tally.handled, tally.parked, tally.breaker_opened) == (400, 0, 1)
    assert tally.breaker_seconds >= 0.39


def test_more_is_read_when_there_is_nothing_left_to_probe_with():
    """A breaker that stayed open because every probe was rejected would never close."""
    calls = []

    async def handle(record):
        calls.append(record.offset)
        if len(calls) == 1:
            raise ConnectionError
        if len(calls) < 10:
            raise Reject

    tally = run(handle, [], lanes=1, source=ListSource(make_records(9), chunk=1), breaker=Breaker(1, "50ms"))

    assert calls == [0, *range(9)]
    assert (tally.handled, tally.parked, tally.breaker_opened) == (1, 8, 1)


class LateSource(ListSource):
    """Has nothing to give for a while."""

    def __init__(self, records, until):
        super().__init__(records)
        self._until = until

    def fetch(self, most, timeout):
        return super().fetch(most, timeout) if time.monotonic() > self._until else []


def test_a_source_that_is_slow_is_looked_at_now_and_then():
    """A task that finds the breaker open needs a record to probe with, and does not spin until there is one."""
    clock, state, breaker = CountingClock(), BreakerState(), Breaker(1, "10ms")
    state.failed(breaker, clock.monotonic())

    async def handle(_):
        pass

    route = make_route(handle, lanes=4, breaker=breaker)
    processor = Processor([route], "billing", lanes=4, sender=FakeSender(), clock=clock, breaker=state)
    source = LateSource(make_records(5), time.monotonic() + 0.3)
    asyncio.run(EventLoopRunner(processor, Call(route, clock), clock).run(source))

    assert processor.close().handled == 5
    assert clock.looks < 300 * 8


def test_a_call_that_hangs_blocks_only_its_key():
    """A fast handler has many keys in a turn: what its lane has not begun is taken back and given to others."""
    begun, ended, count, keys = [], [], 20_000, 1_000
    others = count - (count - 5_000) // keys  # but for the record and those of its key
    goes = asyncio.Event()

    async def handle(record):
        begun.append(record.offset)
        if record.offset == 5_000:
            await asyncio.wait_for(goes.wait(), 60)
            assert len(ended) == others
        ended.append(record.offset)
        if len(ended) == others:
            goes.set()

    async def go():
        await EventLoopRunner(processor, Call(route, SystemClock()), SystemClock()).run(source)

    source, route = ListSource(make_records(count, keys=keys)), make_route(handle, lanes=2)
    processor = Processor([route], "billing", lanes=2, sender=FakeSender(), clock=SystemClock())
    asyncio.run(go())
    assert sorted(begun) == list(range(count))
    for key in range(keys):
        calls = [offset for offset in ended if offset % keys == key]
        assert calls == sorted(calls)
    assert processor.close().handled == count


def test_nothing_spins_while_what_was_begun_is_finished():
    """What is left in a source that was ended is no news."""

    class Ending(ListSource):
        announces = has_news = True
        is_exhausted = False

    source, begun = Ending(make_records(100, keys=100), chunk=10), []
    first, gate = asyncio.Event(), asyncio.Event()

    async def handle(record):
        begun.append(record.offset)
        await (first if record.offset == 0 else gate).wait()

    route, clock = make_route(handle, lanes=4, buffer=Buffer(5)), CountingClock()
    processor = Processor([route], "billing", lanes=4, sender=FakeSender(), clock=clock)

    async def go():
        run = asyncio.create_task(EventLoopRunner(processor, Call(route, clock), clock).run(source))
        while len(begun) < 4:  # noqa: ASYNC110 - the runner itself says nothing
            await asyncio.sleep(0.01)
        Ending.is_exhausted = True
        first.set()
        await asyncio.sleep(0.1)
        assert processor.room
        looks = clock.looks
        await asyncio.sleep(0.3)
        assert clock.looks - looks < 100
        gate.set()
        await run

    asyncio.run(go())
    assert processor.close().handled == len(begun)
