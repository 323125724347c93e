"""What a lane gives back while one of its calls hangs."""

from __future__ import annotations

import pytest

from laneway import Breaker, Message, Reject, Retry, Skip, Topic
from laneway._core.call import Call
from laneway._core.processor import Processor
from support.core import FakeClock, FakeSender, make_records, make_route

OUT = Topic("out")


class Scene:
    """Two lanes, records of ten keys, and a handler that does in one call what a test puts into `hook`."""

    def __init__(self, hung, *, records=20, answer=None, **fields):
        self.clock, self.sender, self.calls = FakeClock(), FakeSender(), []
        self.hook, self.hung, self.answer = lambda: None, hung, answer or (lambda record: None)
        route = make_route(self.handle, lanes=2, **fields)
        self.processor = Processor(
            [route], "billing", lanes=2, sender=self.sender, clock=self.clock, per_partition=2 if route.strict else None
        )
        self.call = Call(route, self.clock)
        self.processor.call = self.call
        self.processor.pace = 1e-9  # as fast as handlers are, so that a turn holds everything
        self.processor.admit(make_records(records, keys=10))

    def handle(self, record):
        self.calls.append(record.offset)
        if record.offset == self.hung:
            hook, self.hook = self.hook, lambda: None
            hook()
        return self.answer(record)

    def turn(self):
        turn = self.processor.take()
        if turn is not None:
            self.processor.settle(turn, self.call.single(turn))
        return turn is not None

    def wait(self, seconds):
        self.clock.advance(seconds)
        self.processor.tick()

    def end(self):
        for _ in range(100):
            if not self.turn():
                if self.processor.is_done:
                    return self.processor.close()
                self.wait(0.1)
        raise AssertionError("it does not end")


def answers(record):
    """One of each: skipped, with a message, parked, handled."""
    kind = record.offset % 4
    if kind == 0:
        raise Skip("not now")
    if kind == 1:
        raise Reject("never")
    return Message(OUT, b"%d" % record.offset) if kind == 2 else None


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("hung", [0, 1, 2, 3, 5, 8, 9])
def test_everything_but_the_key_that_hangs_goes_on(hung, strict):
    """What came before it in the turn and what comes after; at the end each record has one outcome, whatever it is."""
    scene, seen = Scene(hung, answer=answers, strict=strict), []

    def meanwhile():
        scene.wait(0.2)
        for _ in range(5):  # a key goes on when the copy of its record is safe
            while scene.turn():
                pass
            scene.wait(0.01)
        seen.extend((sorted(scene.calls), scene.processor.steps[0].ledger.unfinished(0)))

    scene.hook = meanwhile
    tally = scene.end()
    assert seen == [[n for n in range(20) if n != hung + 10], (hung, hung + 10)]
    assert sorted(scene.calls) == list(range(20))
    assert scene.calls.index(hung) < scene.calls.index(hung + 10)
    assert (tally.skipped, tally.parked, tally.handled, tally.calls) == (5, 5, 10, 20)
    assert sorted(message["value"] for message in scene.sender.acked if message["topic"] == "out") == sorted(
        b"%d" % n for n in range(2, 20, 4)
    )


def test_a_turn_that_is_quick_is_left_alone():
    """It is not asked for anything before its time."""
    scene = Scene(3)
    scene.processor.call = None
    scene.hook = lambda: scene.wait(0.05)
    assert scene.end().handled == 20


def test_a_turn_that_no_lane_has_come_to_is_asked_again():
    """A lane's thread may be late; nothing spins meanwhile."""
    scene = Scene(3)
    turn = scene.processor.take()
    assert scene.processor.next_wake == pytest.approx(scene.clock.monotonic() + 0.1)
    scene.wait(0.1)
    assert (len(turn), scene.processor.steps[0].scheduler.ready) == (10, 0)
    assert scene.processor.next_wake == pytest.approx(scene.clock.monotonic() + 0.1)
    scene.hook = lambda: scene.wait(0.1)
    scene.processor.settle(turn, scene.call.single(turn))
    assert scene.end().handled == 20


def test_what_a_part_says_is_said_once():
    """A turn is relieved once: its last queue stays with it."""
    scene = Scene(4)

    def meanwhile():
        scene.wait(0.2)
        assert scene.processor.next_wake is None
        scene.wait(0.2)

    scene.hook = meanwhile
    assert scene.end().handled == 20


def test_a_lane_that_is_slow_to_begin_keeps_its_first_key():
    """Once, all of a turn was taken back from it, and its partition, which had lent it a lane, never got that back."""
    scene = Scene(None, strict=True)
    opened = scene.call._opened  # the moment at which the interpreter may switch to another thread

    def slow(turn, result):
        rest = opened(turn, result)
        scene.wait(0.2)
        return rest

    scene.call._opened = slow
    assert scene.end().handled == 20
    assert sorted(scene.calls) == list(range(20))


def test_what_was_settled_early_counts_for_the_breaker():
    """Failures are in a row only when nothing has succeeded between them."""
    failed = []

    def answer(record):
        if record.offset == 9:
            failed.append(record.offset)
            raise ConnectionError

    scene = Scene(9, records=10, answer=answer, breaker=Breaker(2, "1s", "1s"), retry=Retry(attempts=3, backoff="0s"))
    scene.hook = lambda: scene.wait(0.2)
    scene.processor.breaker._state.failures = 1
    assert scene.turn()
    assert failed == [9]
    assert not scene.processor.breaker.is_open
    assert scene.processor.tally.handled == 9
