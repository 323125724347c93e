"""Whether calls of a handler may begin."""

from __future__ import annotations

from copy import copy
from datetime import timedelta
from random import Random

import pytest

from laneway import Breaker, GroupedBy, Json, Message, Reject, Retry, Skip, Topic
from laneway._core.breaker import BreakerState
from laneway._core.call import Call
from laneway._core.processor import Processor
from laneway.errors import HandlerTimeoutError
from laneway.observe import BreakerClosed, BreakerOpened
from support.core import FakeClock, FakeSender, Noted, make_record, make_records, make_route

DOWN = ConnectionError("refused")


class Bench:
    """A processor with a handler whose dependency is up or down."""

    def __init__(self, breaker=None, *, handler=None, lanes=1, per_partition=None, state=None, clock=None, **fields):
        self.clock, self.sender, self.notices = clock or FakeClock(), FakeSender(), Noted()
        self.error, self.calls = None, []
        breaker = breaker or Breaker(failures=3, pause="5s", pause_max="15s")
        fields = {"order": "none", "breaker": breaker, **fields}
        self.route = make_route(handler or self._handle, lanes=max(2, lanes), **fields)
        self.processor = Processor(
            [self.route],
            "billing",
            lanes=lanes,
            sender=self.sender,
            clock=self.clock,
            per_partition=per_partition,
            listener=self.notices,
            breaker=state,
        )
        self.processor.is_closing = True
        call = Call(self.route, self.clock)
        self.work = call.batch if self.route.is_batch else call.single

    def _handle(self, what):
        records = what.records if self.route.is_batch else [what]
        self.calls.append([record.offset for record in records])
        if self.error is not None:
            raise copy(self.error)  # one that is raised again and again has a trace that grows

    def turn(self):
        """One turn to its end; False when none may begin."""
        self.processor.tick()
        turn = self.processor.take()
        if turn is None:
            return False
        self.processor.settle(turn, self.work(turn))
        self.processor.tick()
        return True

    def turns(self):
        """As many turns as may be now."""
        while self.turn():
            pass

    def run(self, seconds=1000):
        """All turns, letting time pass as a runner does."""
        end = self.clock.now + seconds
        while not self.processor.is_done:
            self.turns()
            wake = self.processor.next_wake
            if self.processor.is_done or wake is None or wake > end:
                break
            self.clock.now = max(self.clock.now, wake)
        return self.processor.tally


def opened(bench, records=10):
    """A bench whose breaker is open: three of its records failed, two were parked."""
    bench.processor.admit(make_records(records, keys=records))
    bench.error = DOWN
    bench.turns()
    assert bench.processor.breaker.is_open
    return bench


def test_it_opens_after_so_many_failures_in_a_row():
    """No call begins then, nothing is read, and only time can change that."""
    bench = opened(Bench())

    assert bench.calls == [[0], [1], [2]]
    assert (bench.processor.take(), bench.processor.room, bench.processor.can_start) == (None, 0, False)
    assert bench.processor.next_wake == bench.clock.now + 5
    assert bench.processor.tally.breaker_opened == 1


def test_the_failure_that_opens_it_is_not_judged():
    """So an outage parks no more than one record less than the breaker stands."""
    bench = opened(Bench())

    assert bench.processor.tally.parked == 2
    assert [dict(copy["headers"])["laneway-origin-offset"] for copy in bench.sender.acked] == [b"0", b"1"]
    assert bench.processor.steps[0].ledger.unfinished(0)[0] == 2


def test_a_success_begins_the_count_anew():
    """Two failures, a success and two more are not three in a row; nor are they with a skip between."""
    for signal in (None, Skip()):
        bench = Bench()
        bench.processor.admit(make_records(5, keys=5))
        for error in (DOWN, DOWN, signal, DOWN, DOWN):
            bench.error = error
            assert bench.turn()

        assert not bench.processor.breaker.is_open
        assert bench.processor.close().parked == 4


@pytest.mark.parametrize("error", [Reject(), HandlerTimeoutError("slow"), ValueError()])
def test_what_is_the_records_own_fault_counts_neither_way(error):
    """A reject between two failures neither ends the row nor lengthens it; everything else lengthens it."""
    bench = Bench()
    bench.processor.admit(make_records(5, keys=5))
    for raised in (DOWN, error, DOWN):
        bench.error = raised
        bench.turn()
    assert bench.processor.breaker.is_open is not isinstance(error, Reject)
    bench.error = DOWN
    bench.turn()

    assert bench.processor.breaker.is_open
    assert bench.processor.tally.parked == 2 + isinstance(error, Reject)


def test_a_record_that_cannot_be_decoded_counts_neither_way():
    """It never came as far as the handler."""
    bench = Bench(topic=Topic("orders", Json(dict)))
    bench.processor.admit([make_record(n, b"%d" % n, b"{}" if n in (0, 2, 5) else b"{") for n in range(6)])
    bench.error = DOWN
    bench.turns()

    assert bench.calls == [[0], [2], [5]]
    assert (bench.processor.breaker.is_open, bench.processor.tally.parked) == (True, 5)


def test_one_probe_that_succeeds_closes_it():
    """One record is called when the pause is over, and only when it has succeeded the next one is."""
    bench = Bench(lanes=4)
    bench.processor.pace = 1e-6
    opened(bench)
    bench.error = None
    bench.clock.advance(4.9)
    assert bench.processor.take() is None
    bench.clock.advance(0.1)
    probe = bench.processor.take()

    assert [len(queue.work()) for queue in probe] == [1]
    assert (bench.processor.take(), bench.processor.next_wake, bench.processor.can_start) == (None, None, False)
    bench.processor.settle(probe, bench.work(probe))
    assert bench.processor.room > 0
    tally = bench.run()
    assert (tally.handled, tally.parked, tally.breaker_opened, tally.breaker_seconds) == (8, 2, 1, 5.0)


def test_a_probe_that_fails_costs_its_record_nothing():
    """The pause doubles up to its limit; no attempt is used up, and nothing is parked, however long it takes."""
    seen = []

    def handle(record):
        seen.append((bench.clock.now, record.attempt))
        if bench.error is not None:
            raise copy(bench.error)

    bench = Bench(handler=handle, retry=Retry(2, "1ms", jitter=0))
    opened(bench)
    began = seen[-1][0]
    tally = bench.run(seconds=100)

    assert [now - began for now, _ in seen[3:]] == [5, 15, 30, 45, 60, 75, 90]
    assert max(attempt for _, attempt in seen) == 2  # of the two that were judged before it opened
    assert (tally.parked, tally.handled, tally.breaker_opened, tally.breaker_seconds) == (0, 0, 1, 90.0)
    bench.error = None
    tally = bench.run()
    assert (tally.handled, tally.parked, tally.breaker_seconds) == (10, 0, 105.0)


def test_a_pause_begins_anew_when_it_opens_again():
    """How long an earlier outage took says nothing of the next one."""
    bench = opened(Bench(), 12)
    bench.run(seconds=40)
    bench.error = None
    bench.clock.now = bench.processor.next_wake
    assert bench.turn()
    bench.error = DOWN
    bench.turns()

    assert bench.processor.tally.breaker_opened == 2
    assert bench.processor.next_wake == bench.clock.now + 5
    bench.clock.advance(5)
    bench.turns()
    assert bench.processor.next_wake == bench.clock.now + 10


def test_a_rejected_probe_is_parked_and_the_next_one_is_made_at_once():
    """It says nothing of the handler; and it must not hold up the one that would."""
    bench = opened(Bench())
    bench.clock.advance(5)
    bench.error = Reject()
    assert bench.turn()
    assert (bench.processor.tally.parked, bench.processor.breaker.is_open) == (3, True)
    bench.error = None
    bench.turns()

    assert bench.processor.close().handled == 7


def test_calls_under_way_when_it_opened_are_not_judged_when_they_fail():
    """Whenever they end, before it closes or after; those that succeed are finished, and open or close nothing."""
    bench = Bench(lanes=6)
    bench.processor.admit(make_records(9, keys=9))
    turns = [bench.processor.take() for _ in range(6)]
    bench.error = DOWN
    results = [bench.work(turn) for turn in turns[:5]]
    bench.error = None
    results.append(bench.work(turns[5]))
    for number in (0, 1, 2, 3, 5):
        bench.processor.settle(turns[number], results[number])
    bench.processor.tick()
    assert (bench.processor.breaker.is_open, bench.processor.tally.parked, bench.processor.tally.handled) == (
        True,
        2,
        1,
    )
    bench.clock.advance(5)
    assert bench.turn()
    assert not bench.processor.breaker.is_open
    bench.processor.settle(turns[4], results[4])
    tally = bench.run()

    assert (tally.parked, tally.handled, tally.breaker_opened) == (2, 7, 1)


def test_a_turn_of_many_keys_ends_with_the_first_failure():
    """A fast handler takes hundreds of records at once; those behind the failure are not called."""
    bench = Bench(lanes=1)
    bench.processor.pace = 1e-6
    bench.processor.admit(make_records(500, keys=500))
    bench.error = DOWN
    bench.turns()

    assert bench.calls == [[0], [1], [2]]
    assert bench.processor.tally.calls == 3


def test_a_turn_goes_on_after_what_is_the_records_own_fault():
    """A topic with many bad records is as fast as without a breaker."""
    bench = Bench(lanes=1)
    bench.processor.pace = 1e-6
    bench.processor.admit(make_records(500, keys=500))
    bench.error = Reject()
    assert bench.turn()

    assert len(bench.calls) == 500


def test_a_bad_record_alone_does_not_keep_it_open():
    """The next probe is another key's; once that has succeeded, the bad record is judged as ever."""
    seen = []

    def handle(record):
        seen.append(record.offset)
        if record.offset == 0:
            raise ValueError("poison")

    bench = Bench(Breaker(2, "5s"), handler=handle, retry=Retry(2, "1ms", jitter=0))
    bench.processor.admit(make_records(1, keys=1))
    bench.processor.tick()
    bench.turn()
    bench.clock.advance(0.01)
    bench.turn()
    assert bench.processor.breaker.is_open
    bench.clock.advance(5)
    bench.turn()
    bench.processor.admit([make_record(1, b"other")])
    bench.run()

    assert seen == [0, 0, 0, 0, 1, 0]
    assert (bench.processor.tally.parked, bench.processor.tally.handled) == (1, 1)


def test_a_batch_that_is_kept_comes_back_whole():
    """All of its members wait; what cannot be decoded is parked meanwhile, since no call is to tell."""
    bench = Bench(Breaker(2, "5s"), kind="batch", size=4, order="key", topic=Topic("orders", Json(dict)))
    bench.processor.admit([make_record(n, b"%d" % (n % 3), b"{" if n == 5 else b"{}") for n in range(8)])
    bench.error = DOWN
    bench.turns()
    assert [sorted(call) for call in bench.calls] == [[0, 1, 3, 6], [2, 4, 7]]
    assert (bench.processor.breaker.is_open, bench.processor.tally.parked) == (True, 5)
    bench.error = None
    tally = bench.run()

    assert sorted(bench.calls[-1]) == [2, 4, 7]
    assert (tally.handled, tally.parked, tally.retried, tally.breaker_opened) == (3, 5, 3, 1)


def test_a_batch_that_returns_has_succeeded_whatever_it_marked():
    """Unless nothing of it was handled: then it is as if it had raised."""

    def handle(batch):
        bench.calls.append([record.offset for record in batch])
        for record in batch.records[handled:]:
            batch.retry(record)

    for handled, is_open in ((1, False), (0, True)):
        bench = Bench(Breaker(1), handler=handle, kind="batch", size=4, retry=Retry(5, "1m"))
        bench.processor.admit(make_records(4, keys=4))
        bench.turn()

        assert bench.processor.breaker.is_open is is_open
        assert bench.processor.tally.handled == handled


def test_a_unique_handler_keeps_what_the_newest_record_supersedes():
    """A newer one may still take the place of the one that was kept, and all end with it."""
    bench = Bench(Breaker(1, "5s"), kind="unique", size=10, order="key")
    bench.processor.admit([make_record(n, b"k") for n in range(3)])
    bench.error = DOWN
    bench.turns()
    assert (bench.calls, bench.processor.tally.superseded, bench.processor.steps[0].scheduler.records) == ([[2]], 0, 3)
    bench.processor.admit([make_record(3, b"k")])
    bench.error = None
    tally = bench.run()

    assert bench.calls == [[2], [3]]
    assert (tally.handled, tally.superseded, tally.parked) == (1, 3, 0)


def test_groups_behind_one_that_failed_are_not_called():
    """They were gathered together, but no call may begin before the breaker has had its say."""
    bench = Bench(Breaker(1, "5s"), kind="custom", size=10, order="key", grouping=GroupedBy("n"))
    bench.processor.admit([make_record(n, b"%d" % n, b'{"n": %d}' % (n // 2)) for n in range(8)])
    failing = {"group": [2, 3]}

    def handle(batch):
        bench.calls.append([record.offset for record in batch])
        if bench.calls[-1] == failing["group"]:
            raise DOWN

    bench.work = Call(make_route(handle, **_fields(bench.route)), bench.clock).batch
    bench.turns()
    assert bench.calls == [[0, 1], [2, 3]]
    assert (bench.processor.breaker.is_open, bench.processor.tally.handled) == (True, 2)
    failing["group"] = None
    tally = bench.run()

    assert sorted(bench.calls[2:]) == [[2, 3], [4, 5], [6, 7]]
    assert (tally.handled, tally.parked) == (8, 0)


def _fields(route):
    return {name: getattr(route, name) for name in ("kind", "size", "order", "grouping", "breaker", "lanes")}


def test_halves_are_not_looked_at_without_end_while_a_dependency_is_down():
    """Two records that fail and none that succeeds are enough: the breaker counts one failure for all of it."""
    bench = Bench(Breaker(2, "5s"), kind="batch", size=512, bisect=True)
    bench.processor.admit(make_records(512, keys=512))
    bench.error = DOWN
    bench.turn()
    assert len(bench.calls) == 11
    assert not bench.processor.breaker.is_open
    bench.turns()
    assert (bench.processor.breaker.is_open, len(bench.calls)) == (True, 22)
    bench.error = None
    tally = bench.run()

    assert (tally.handled, tally.parked) == (510, 2)


def test_halves_still_find_the_one_bad_record():
    """A batch of which something was handled is no failure of the handler."""

    def handle(batch):
        bench.calls.append(len(batch))
        if any(record.offset == 0 for record in batch):
            raise ValueError("poison")

    bench = Bench(Breaker(1), handler=handle, kind="batch", size=64, bisect=True)
    bench.processor.admit(make_records(64, keys=64))
    tally = bench.run()

    assert (tally.handled, tally.parked, tally.breaker_opened) == (63, 1, 0)


def test_a_batch_that_waits_to_be_full_does_not_wake_anybody_while_it_is_open():
    """Once, a time that had passed made the runner spin."""
    bench = Bench(Breaker(1, "5s"), kind="batch", size=2, within=timedelta(seconds=1))
    bench.processor.is_closing = False
    bench.processor.admit(make_records(3, keys=3))
    bench.error = DOWN
    turn = bench.processor.take()
    result = bench.work(turn)
    assert bench.processor.take() is None
    bench.clock.advance(2)
    bench.processor.settle(turn, result)

    assert bench.processor.next_wake == bench.clock.now + 5


def test_a_probe_that_finds_no_lane_is_not_waited_for():
    """A time that has passed would make the runner spin; whatever frees a lane wakes it."""
    bench = Bench(lanes=2, strict=True, per_partition=1)
    bench.processor.admit([make_record(0, b"a", partition=0), make_record(1, b"b", partition=0)])
    bench.processor.admit([make_record(n, b"%d" % n, partition=1) for n in range(3)])
    slow = bench.processor.take()
    bench.error = DOWN
    bench.turns()
    assert bench.processor.breaker.is_open
    bench.clock.advance(5)
    bench.error = Reject()
    bench.turns()
    assert (bench.processor.take(), bench.processor.next_wake) == (None, None)
    bench.error = None
    bench.processor.settle(slow, bench.work(slow))

    assert bench.run().handled == 2


def test_the_state_outlives_the_desk():
    """The count goes on with the next task, and one that finds it open waits for the probe, then reads for it."""
    state, clock = BreakerState(), FakeClock()
    first = Bench(state=state, clock=clock)
    first.processor.admit(make_records(2, keys=2))
    first.error = DOWN
    first.turns()
    first.processor.close()
    second = Bench(state=state, clock=clock)
    second.error = DOWN
    second.processor.admit(make_records(4, keys=4))
    second.turns()
    assert second.calls == [[0]]
    third = Bench(state=state, clock=clock)
    third.processor.is_closing = False
    assert (third.processor.room, third.processor.next_wake) == (0, clock.now + 5)
    clock.advance(5)
    assert third.processor.take() is None
    assert third.processor.room > 0
    assert third.processor.next_wake == clock.now
    third.processor.admit(make_records(4, keys=4))
    assert third.processor.room == 0

    assert third.run().handled == 4
    assert third.processor.close().breaker_seconds == 5.0


def test_it_is_told_when_it_opens_and_closes():
    """Which handler, which error, when the next probe is; a probe that fails only now and then."""
    bench = opened(Bench(Breaker(3, "4s", "8s")))
    bench.run(seconds=30)
    bench.error = None
    bench.run()

    rest = "failed with ConnectionError: refused; its records wait, nothing more is read, and the next probe is in 8s"
    assert [notice.removeprefix("the breaker of handler 'handle' ") for notice in bench.notices.notes] == [
        f"opened after 3 failures in a row, the last one {rest[12:-2]}4s",
        f"is still open, since probe 2 {rest}",
        f"is still open, since probe 4 {rest}",
        "closed after 36s; calls begin again",
    ]
    events = [event for event in bench.processor.tally.events if isinstance(event, (BreakerOpened, BreakerClosed))]
    assert events == [
        BreakerOpened("handle", 3, "ConnectionError: refused", timedelta(seconds=4)),
        BreakerClosed("handle", timedelta(seconds=36)),
    ]


@pytest.mark.parametrize("seed", range(60))
def test_outages_at_random(seed):
    """Whatever is down when: each key keeps its order, nothing is lost, and little is parked or called in vain."""
    rng = Random(seed)
    kind = rng.choice(("single", "single", "batch", "unique"))
    lanes, failures = rng.randint(1, 5), rng.randint(1, 4)
    world = _World(rng)
    bench = Bench(
        Breaker(failures, "5s", "20s"),
        handler=world.handle_batch if kind != "single" else world.handle,
        lanes=lanes,
        kind=kind,
        size=rng.randint(1, 6) if kind != "single" else 1,
        order="key",
        retry=Retry(rng.randint(1, 3), "100ms"),
    )
    world.clock = bench.clock
    keys = rng.randint(1, 12)
    records = [make_record(n, b"%d" % rng.randrange(keys)) for n in range(60)]
    _play(bench, world, rng, records)

    tally = bench.processor.close()
    assert tally.finished == 60
    for key in {record.key for record in records}:
        offsets = [offset for offset, record in enumerate(records) if record.key == key]
        seen = [offset for offset in world.handled if records[offset].key == key]
        assert seen == sorted(set(seen))
        assert set(seen) <= set(offsets)
    # A success that was under way when an outage began may end behind its first failures, and begins the count anew.
    assert tally.parked <= (failures - 1) * lanes * bench.route.size * world.outages
    assert world.vain <= world.outages * (failures * lanes + lanes + 20)


class _World:
    """A dependency that is down now and then."""

    def __init__(self, rng):
        self._rng = rng
        self.clock, self.down_until, self.outages, self.vain, self.handled = None, 0.0, 0, 0, []

    def handle(self, record):
        if self._is_down():
            raise copy(DOWN)
        self.handled.append(record.offset)
        return Message(Topic("out"), b"") if record.offset % 5 == 0 else None

    def handle_batch(self, batch):
        if self._is_down():
            raise copy(DOWN)
        self.handled += [record.offset for record in batch]

    def _is_down(self):
        if self._rng.random() < 0.05 and self.clock.now >= self.down_until:
            self.down_until = self.clock.now + self._rng.choice((1, 30, 300))
            self.outages += 1
        is_down = self.clock.now < self.down_until
        self.vain += is_down
        return is_down


def _play(bench, world, rng, records):
    processor, waiting, turns = bench.processor, list(records), []
    for _ in range(20_000):
        processor.is_closing = not waiting
        processor.tick()
        if waiting and processor.room:
            count = rng.randint(1, 10)
            processor.admit(waiting[:count])
            del waiting[:count]
        while len(turns) < bench.processor.lanes.total and (turn := processor.take()) is not None:
            # What was called before the others are settled is under way at the same time as they are.
            turns.append((turn, bench.work(turn)))
        if turns:
            turn, result = turns.pop(rng.randrange(len(turns)))
            processor.settle(turn, result)
        elif not waiting and processor.is_done:
            return
        else:
            wake = processor.next_wake
            if wake is not None:
                bench.clock.now = max(bench.clock.now, wake)
            elif not processor.outbox.pending:
                assert waiting
                assert processor.room, "nothing will ever happen"
    raise AssertionError("it does not end")
