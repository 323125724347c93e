"""One processor for a handler with all of its retry steps: what the steps share, and what each has for itself."""

from __future__ import annotations

from datetime import timedelta

import pytest

from laneway import Buffer, Retry
from laneway._core.call import Call
from laneway._core.processor import Processor
from laneway._core.retry_functions import on_all_steps
from support.core import FakeClock, FakeSender, make_record, make_route

FIRST, SECOND = "orders.billing.retry.1", "orders.billing.retry.2"


class Bench:
    """A processor of three steps with its clock and sender; a test takes and settles turns."""

    def __init__(self, function=None, *, lanes=4, per_partition=None, **fields):
        self.clock, self.sender = FakeClock(), FakeSender()
        fields.setdefault("retry", Retry.steps("5s", "1m", mode="unordered"))
        self.route = make_route(function, lanes=lanes, **fields)
        self.processor = Processor(
            [self.route.at_step("billing", step) for step in range(3)],
            "billing",
            lanes=lanes,
            sender=self.sender,
            clock=self.clock,
            per_partition=per_partition,
        )
        call = Call(on_all_steps(self.route, "billing"), self.clock)
        self.work = call.batch if self.route.is_batch else call.single

    def admit(self, count, topic="orders", *, partition=0, first=0):
        self.processor.admit(
            [
                make_record(offset, b"%d-%d" % (partition, offset), partition=partition, topic=topic)
                for offset in range(first, first + count)
            ]
        )

    def take_all(self):
        turns = []
        while (turn := self.processor.take()) is not None:
            turns.append(turn)
        return turns

    def settle(self, turn):
        self.processor.settle(turn, self.work(turn))


def topics_of(turns):
    return [record.topic for turn in turns for queue in turn for record in queue.work()]


def test_lanes_are_shared_and_each_step_has_its_go():
    """No more turns than lanes; records that come back do not wait until the source is worked off."""
    bench = Bench(lanes=4)
    for topic in ("orders", FIRST, SECOND):
        bench.admit(10, topic)
    turns = bench.take_all()

    assert bench.processor.lanes.busy == 4
    assert set(topics_of(turns)) == {"orders", FIRST, SECOND}
    bench.settle(turns[0])
    assert len(bench.take_all()) == 1


def test_strict_lanes_of_a_partition_are_shared():
    """A lane that one step gives back may be taken by another."""
    bench = Bench(lanes=6, per_partition=2, strict=True)
    for topic in ("orders", FIRST):
        for partition in (0, 1):
            bench.admit(5, topic, partition=partition)
    turns = bench.take_all()
    assert bench.processor.lanes.busy_by_partition == {0: 2, 1: 2}
    for _ in range(8):
        bench.settle(turns.pop(0))
        turns += bench.take_all()
        assert bench.processor.lanes.busy_by_partition == {0: 2, 1: 2}


@pytest.mark.parametrize("limit", [Buffer(records=10), Buffer(size=10 * len(b"0-0v"))])
def test_the_buffer_is_shared(limit):
    """What waits on one step leaves less room for the others."""
    bench = Bench(buffer=limit)
    bench.admit(4)
    bench.admit(4, FIRST)
    assert bench.processor.room > 0
    bench.admit(2, SECOND)

    assert bench.processor.room == 0


def test_a_batch_is_of_one_step():
    """A record that failed does not drag those along that have not been tried."""
    seen = []
    bench = Bench(lambda batch: seen.append({record.topic for record in batch}), kind="batch", size=10)
    bench.admit(3)
    bench.admit(3, FIRST)
    bench.processor.is_closing = True
    for turn in bench.take_all():
        bench.settle(turn)

    assert sorted(seen, key=str) == sorted([{"orders"}, {FIRST}], key=str)


def test_a_batch_of_each_step_waits_for_itself():
    """One that came later is due later."""
    bench = Bench(lambda batch: None, kind="batch", size=10, within=timedelta(seconds=1))
    bench.admit(3)
    assert bench.take_all() == []
    bench.clock.advance(0.5)
    bench.admit(3, FIRST)
    assert bench.take_all() == []
    assert bench.processor.next_wake == bench.clock.now + 0.5
    bench.clock.advance(0.5)
    assert topics_of(bench.take_all()) == ["orders"] * 3
    bench.clock.advance(0.5)
    assert topics_of(bench.take_all()) == [FIRST] * 3


def test_each_topic_has_a_ledger_of_its_own():
    """Offsets of a retry topic say nothing about those of the source."""
    bench = Bench()
    bench.admit(3, first=10)
    bench.admit(3, FIRST)
    for turn in bench.take_all():
        bench.settle(turn)
    for turn in bench.take_all():
        bench.settle(turn)

    assert bench.processor.step_of("orders").ledger.committable(0) == 13
    assert bench.processor.step_of(FIRST).ledger.committable(0) == 3
    assert bench.processor.close().handled == 6


def test_functions_stand_in_on_their_steps():
    """Each record goes to the function of the topic that it was read from."""
    seen = []
    bench = Bench(lambda record: seen.append(("handler", record.topic)))
    bench.route = make_route(
        bench.route.function,
        retry=bench.route.retry,
        step_functions={2: lambda record: seen.append(("stands in", record.topic))},
    )
    bench.work = Call(on_all_steps(bench.route, "billing"), bench.clock).single
    for topic in ("orders", FIRST, SECOND):
        bench.admit(1, topic)
    for turn in bench.take_all():
        bench.settle(turn)

    assert sorted(seen) == sorted([("handler", "orders"), ("handler", FIRST), ("stands in", SECOND)])
