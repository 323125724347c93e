"""Where later records overtake a failed one, its key goes on while the copy is written, but not when it cannot be."""

from __future__ import annotations

import gc

import pytest

from laneway import Retry
from laneway._core.call import Call
from laneway._core.processor import Processor
from laneway.errors import MessageTooLargeError, ProduceError
from support.core import FakeClock, FakeSender, make_record, make_route

FIRST = "orders.billing.retry.1"


class Room:
    """A processor whose handler fails at the offsets given, and notes all its calls."""

    def __init__(self, *failing, mode="unordered", answers=()):
        self.calls = []
        self.clock, self.sender = FakeClock(), FakeSender(answers)
        route = make_route(self._handle, retry=Retry.steps("5s", "1m", mode=mode), lanes=4)
        self._failing = failing
        self.processor = Processor([route], "billing", lanes=4, sender=self.sender, clock=self.clock)
        self._call = Call(route, self.clock)

    def _handle(self, record):
        self.calls.append(record.offset)
        if record.offset in self._failing:
            raise ValueError("planted")

    def admit(self, *records):
        self.processor.admit([make_record(offset, key) for offset, key in records])

    def work(self):
        """Run what is ready; the offsets that were called."""
        before = len(self.calls)
        while (turn := self.processor.take()) is not None:
            self.processor.settle(turn, self._call.single(turn))
        return self.calls[before:]

    def begin_late(self):
        """Let the first record fail, and its copy be late."""
        self.sender.is_silent = True
        self.admit((0, b"a"))
        self.work()
        self.wait(0.6)

    def wait(self, seconds):
        self.clock.advance(seconds)
        self.processor.tick()


@pytest.mark.parametrize(("mode", "expected", "ends"), [("unordered", [0, 1], (1, 1)), ("ordered", [0], (2, 0))])
def test_a_key_goes_on_while_its_copy_is_on_its_way(mode, expected, ends):
    """Where order does not hold anyway; the record is finished with its copy, and not before."""
    room = Room(0, mode=mode)
    room.sender.is_silent = True
    room.admit((0, b"a"), (1, b"a"))

    assert room.work() == expected
    assert room.processor.steps[0].ledger.committable(0) == 0
    room.wait(0.01)
    assert [message["topic"] for message in room.sender.sent] == [FIRST]
    assert not room.processor.is_done
    room.sender.is_silent = False
    room.wait(0.01)
    room.work()
    room.wait(0.01)
    assert room.processor.steps[0].ledger.committable(0) == 2
    assert (room.processor.close().deferred, room.processor.tally.handled) == ends


def test_a_late_copy_holds_its_key_and_no_other():
    """What comes meanwhile waits in its order, and goes on when the copy is safe."""
    room = Room(0)
    room.sender.is_silent = True
    room.admit((0, b"a"))
    room.work()
    room.wait(0.49)
    room.admit((1, b"a"))
    assert room.work() == [1]

    room.wait(0.02)
    room.admit((2, b"a"), (3, b"b"), (4, b"a"))
    assert room.work() == [3]
    assert room.processor.lanes.busy == 0
    room.admit((5, b"a"), (6, None))
    assert room.work() == [6]

    room.sender.is_silent = False
    room.wait(0.01)
    assert room.work() == [2, 4, 5]
    room.wait(0.01)
    assert room.processor.close().handled == 6


def test_a_key_waits_for_the_last_of_its_late_copies():
    """One that is safe is not enough; each failed try is repeated."""
    room = Room(0, 1, answers=[None, ProduceError("down"), ProduceError("down")])
    room.sender.is_silent = True
    room.admit((0, b"a"), (1, b"a"))
    assert room.work() == [0, 1]
    room.wait(0.6)
    room.sender.is_silent = False
    room.wait(0.01)
    room.admit((2, b"a"))

    assert room.work() == []
    for pause in (0.3, 0.01, 0.6):
        room.wait(pause)
        assert room.work() == []
    room.wait(0.01)
    assert room.work() == [2]
    assert (room.processor.close().deferred, room.processor.tally.undelivered) == (2, 2)


def test_a_record_without_a_key_waits_for_nobody():
    """It has no order, however late a copy is."""
    room = Room(0)
    room.sender.is_silent = True
    room.admit((0, None))
    room.work()
    room.wait(9)
    room.admit((1, None))

    assert room.work() == [1]


def test_what_is_dropped_while_its_key_waits_is_gone():
    """A partition that is given away takes its records with it; the key then has nothing to go on with."""
    room = Room(0)
    room.begin_late()
    room.admit((1, b"a"), (2, b"a"))
    assert room.work() == []

    assert [record.offset for record in room.processor.steps[0].scheduler.waiting()] == [1, 2]
    assert room.processor.steps[0].scheduler.drop(lambda record: True) == 2
    room.sender.is_silent = False
    room.wait(0.01)
    assert room.work() == []
    assert room.processor.is_done
    room.admit((3, b"a"))
    assert room.work() == [3]


def test_a_copy_that_is_too_large_is_parked_and_its_key_goes_on():
    """Late or not: the error topic is where it is safe."""
    room = Room(0, answers=[MessageTooLargeError("no")])
    room.begin_late()
    room.admit((1, b"a"))
    assert room.work() == []

    room.sender.is_silent = False
    room.wait(0.01)
    room.wait(0.01)
    assert [message["topic"] for message in room.sender.acked] == ["orders.billing.error"]
    assert room.work() == [1]


def test_a_copy_that_is_repeated_is_the_same():
    """Also the time when it is due."""
    room = Room(0, answers=[ProduceError("down")])
    room.admit((0, b"a"))
    room.work()
    room.wait(0.01)
    room.wait(0.3)
    room.wait(0.01)

    first, second = room.sender.sent
    assert first == second
    assert dict(first["headers"])["laneway-attempts"] == b"1"
    assert room.processor.close().deferred == 1


def test_copies_that_are_safe_leave_nothing_behind():
    """No cycle keeps them and their records until somebody looks for garbage."""
    room = Room(*range(50))
    gc.collect()
    before = sum(type(found).__name__ == "RetryCopy" for found in gc.get_objects())
    gc.disable()
    try:
        room.admit(*((offset, b"%d" % offset) for offset in range(50)))
        room.work()
        room.wait(0.01)
        room.wait(0.01)
        room.processor.close()
        kept = [found for found in gc.get_objects() if type(found).__name__ == "RetryCopy"]
        assert len(kept) - before <= 1  # the outbox remembers the one that set out alone
    finally:
        gc.enable()
