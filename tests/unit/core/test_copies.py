"""Copies of failed records: where they go, in which order, and when their records are finished."""

from __future__ import annotations

import pytest

from laneway import Retry
from laneway._core.call import Call
from laneway._core.deferred_keys import DeferredKeys
from laneway._core.ledger import Ledger
from laneway._core.processor import Processor
from laneway.errors import MessageTooLargeError, ProduceError
from support.core import FakeClock, FakeSender, make_record, make_route

ERROR, FIRST, SECOND = "orders.billing.error", "orders.billing.retry.1", "orders.billing.retry.2"
TOO_LARGE, DOWN = MessageTooLargeError("too large"), ProduceError("down")


class Room:
    """A processor whose handler fails every record, with a sender that answers as told, and a list of what happens.

    Records are handled in one batch: those in *parked* go to the error topic, the others to the next retry topic.
    """

    def __init__(self, *answers, mode="unordered", step=0, parked=(), **fields):
        self.clock, self.sender, self.seen = FakeClock(), FakeSender(answers), []
        self.parked = parked
        self.route = make_route(
            self.handle, retry=Retry.steps("5s", "1m", mode=mode), kind="batch", size=9, lanes=4, **fields
        ).at_step("billing", step)
        self.deferred = DeferredKeys()
        self.processor = Processor(
            [self.route], "billing", lanes=4, sender=self.sender, clock=self.clock, deferred=self.deferred
        )
        self.processor.steps[0].ledger = Watched(self.seen)
        self.processor.is_closing = True
        self.tally, self.outbox = self.processor.tally, self.processor.outbox
        self.call = Call(self.route, self.clock)

    def handle(self, batch):
        for record in batch:
            if record.offset in self.parked:
                batch.reject(record, "bad")
            else:
                batch.retry(record, "bad")

    def fail(self, *records):
        """Let the handler fail these."""
        self.processor.admit(records)
        self.work()

    def work(self):
        while (turn := self.processor.take()) is not None:
            self.processor.settle(turn, self.call.batch(turn))

    def tick(self, times=1):
        for _ in range(times):
            self.processor.tick()

    def waits(self, key=b"k"):
        """Whether a key is held until its copies have arrived."""
        return self.processor.steps[0].scheduler.queue_of(key) is not None

    @property
    def sent(self):
        """Topic and origin of all that was sent, repeats included."""
        return [(copy["topic"], int(dict(copy["headers"])["laneway-origin-offset"])) for copy in self.sender.sent]


class Watched(Ledger):
    """Notes what is finished."""

    __slots__ = ("_seen",)

    def __init__(self, seen):
        super().__init__()
        self._seen = seen

    def finish(self, partition, offset):
        self._seen.append(offset)
        super().finish(partition, offset)

    def finish_all(self, places):
        for place in places:
            self.finish(*place)


def test_a_deferred_copy_is_the_record_at_another_place():
    """Key, value and headers are its own; the partition is the same, the time is now, and the rest is in headers."""
    room = Room()
    room.fail(make_record(42, b"", None, 7, headers=[("h", None), ("h", b"1")], timestamp=5))
    (copy,) = room.sender.sent
    headers = dict(copy["headers"])
    now = int(room.clock.wall() * 1000)

    assert (copy["topic"], copy["key"], copy["value"], copy["partition"]) == (FIRST, b"", None, 7)
    assert copy["timestamp"] == now
    assert copy["headers"][:2] == [("h", None), ("h", b"1")]
    assert (headers["laneway-due"], headers["laneway-step"]) == (b"%d" % (now + 5_000), b"1")
    assert (headers["laneway-origin-timestamp"], headers["laneway-error-message"]) == (b"5", b"bad")


def test_a_copy_of_a_copy_knows_where_the_record_began():
    """From step to step the origin stays, and so do the names of the topics."""
    room = Room(step=1, parked=[1001])
    headers = [
        ("laneway-origin-topic", b"orders"),
        ("laneway-origin-partition", b"7"),
        ("laneway-origin-offset", b"42"),
        ("laneway-origin-timestamp", b"5"),
        ("laneway-attempts", b"1"),
    ]
    room.fail(*(make_record(offset, topic=FIRST, partition=7, headers=headers) for offset in (1000, 1001)))
    said = [dict(copy["headers"]) for copy in room.sender.sent]

    assert [copy["topic"] for copy in room.sender.sent] == [SECOND, ERROR]
    assert {each["laneway-origin-offset"] for each in said} == {b"42"}
    assert [each["laneway-attempts"] for each in said] == [b"2", b"2"]
    assert said[1]["laneway-read-from"] == b"orders.billing.retry.1:7:1001"


def test_a_record_is_finished_when_its_copy_is_safe():
    """Not when it is sent; that its key waits on the step is known before anybody can read the copy."""
    room = Room(mode="ordered")
    room.sender.is_silent = True
    room.fail(make_record(1))
    room.tick(5)
    assert (room.seen, room.waits(), room.deferred.behind(0, b"k", 0)) == ([], True, 1)

    room.sender.is_silent = False
    room.tick()
    assert (room.seen, room.waits(), room.deferred.behind(0, b"k", 0)) == ([1], False, 1)
    assert (room.tally.deferred, room.tally.parked, room.outbox.pending) == (1, 0, 0)


def test_a_key_waits_for_the_last_copy():
    """Each record is finished with its own."""
    room = Room(None, DOWN, None, parked=[2])
    room.fail(make_record(1), make_record(2), make_record(3))
    room.tick()
    assert (room.seen, room.waits()) == ([1, 3], True)

    room.clock.advance(1)
    room.tick(2)
    assert (room.seen, room.waits()) == ([1, 3, 2], False)
    assert (room.tally.deferred, room.tally.parked) == (2, 1)


def test_a_retry_topic_that_is_down_finishes_nothing():
    """The same copy is sent again and again, with the time of its first try, until the topic is back."""
    room = Room(*[DOWN] * 5)
    room.fail(make_record(1))
    for _ in range(60):
        room.tick()
        room.clock.advance(0.25)
        if len(room.sender.acked) == 0:
            assert (room.seen, room.waits()) == ([], True)

    assert room.sent == [(FIRST, 1)] * 6
    assert len({copy["timestamp"] for copy in room.sender.sent}) == 1
    assert (room.seen, room.waits()) == ([1], False)
    assert (room.tally.deferred, room.tally.undelivered) == (1, 5)


def test_what_is_too_large_for_a_retry_topic_is_parked():
    """A copy without its value could not be handled later. The key does not wait on the retry topic any more."""
    room = Room(TOO_LARGE, mode="ordered")
    room.fail(make_record(1))
    room.tick()
    assert (room.seen, room.deferred.behind(0, b"k", 0)) == ([], None)

    room.tick()
    assert room.sent == [(FIRST, 1), (ERROR, 1)]
    assert (room.seen, room.waits()) == ([1], False)
    assert dict(room.sender.acked[0]["headers"])["laneway-error-message"] == b"bad"
    assert (room.tally.deferred, room.tally.parked, room.outbox.pending) == (0, 1, 0)


def test_a_follower_that_is_too_large_is_parked_with_that_reason():
    """It has failed nothing itself."""
    room = Room(TOO_LARGE, mode="ordered")
    room.deferred.joined(0, b"k", 1)
    room.fail(make_record(1))
    room.tick(2)

    assert room.sent == [(FIRST, 1), (ERROR, 1)]
    assert dict(room.sender.acked[0]["headers"])["laneway-error-type"] == b"laneway.errors.MessageTooLargeError"
    assert (room.seen, room.waits()) == ([1], False)


def test_a_copy_too_large_for_both_topics_is_reduced():
    """On the error topic the usual way goes on: without the trace, then as a reference."""
    room = Room(TOO_LARGE, TOO_LARGE, TOO_LARGE, oversize="reference")
    room.fail(make_record(1, raw=b"all of it"))
    for _ in range(8):
        room.tick()
        room.clock.advance(1)

    assert [copy["value"] for copy in room.sender.sent] == [b"all of it"] * 3 + [None]
    assert (room.tally.parked, room.tally.reduced, room.seen) == (1, 1, [1])


def reduced(copy):
    """What a copy says that it leaves out."""
    return dict(copy["headers"]).get("laneway-reduced")


def test_a_copy_that_does_not_fit_waits_for_the_limit_to_be_raised():
    """At each try the whole one goes first, and right behind it the one without the trace."""
    room = Room(*[TOO_LARGE] * 6, parked=[1])
    room.fail(make_record(1, raw=b"all of it"))
    for _ in range(20):
        room.tick()
        if not room.sender.acked:
            assert room.seen == []
        room.clock.advance(1)

    assert [reduced(copy) for copy in room.sender.sent] == [None, b"trace"] * 3 + [None]
    assert {copy["value"] for copy in room.sender.sent} == {b"all of it"}
    assert room.seen == [1]
    assert (room.tally.parked, room.tally.reduced) == (1, 0)


def test_the_smaller_copy_is_tried_without_a_pause():
    """Only what cannot be made smaller waits."""
    room = Room(TOO_LARGE, TOO_LARGE, parked=[1])
    room.fail(make_record(1))
    room.tick(3)
    assert [reduced(copy) for copy in room.sender.sent] == [None, b"trace"]
    assert room.outbox.trouble == f"cannot write to {ERROR}: too large"
    room.clock.advance(1)
    room.tick(2)
    assert room.seen == [1]


@pytest.mark.parametrize(
    ("refusals", "kept", "told"),
    [
        (2, ["a", "large", "b", "a"], b"the value of 9 bytes"),
        (3, ["a", "b", "a"], b"the value of 9 bytes, 1 of 4 headers"),
        (12, [], b"the value of 9 bytes, 4 of 4 headers"),
    ],
)
def test_a_reference_keeps_of_the_headers_what_fits(refusals, kept, told):
    """The largest go first, the others keep their order; it says what it leaves out."""
    room = Room(*[TOO_LARGE] * refusals, oversize="reference", parked=[1])
    own = [("a", b"1"), ("large", b"x" * 100), ("b", None), ("a", b"2")]
    room.fail(make_record(1, raw=b"all of it", headers=own))
    for _ in range(60):
        room.tick()
        room.clock.advance(5)
    (copy,) = room.sender.acked
    assert (copy["key"], copy["value"], reduced(copy)) == (b"k", None, b"value")
    assert [name for name, _ in copy["headers"] if not name.startswith("laneway-")] == kept
    assert dict(copy["headers"])["laneway-left-out"] == told
    assert (room.tally.parked, room.tally.reduced) == (1, 1)


def test_what_no_client_takes_is_a_reference_in_any_case():
    """To wait would not help: an interceptor has made a header of the wrong type."""
    room = Room(*[TypeError("no bytes")] * 2, parked=[1])
    room.fail(make_record(1, raw=b"all of it", headers=[("own", b"1")]))
    room.tick(4)
    (copy,) = room.sender.acked
    assert (copy["value"], reduced(copy)) == (None, b"value")
    assert "own" not in dict(copy["headers"])


def test_followers_have_no_error_and_keep_their_calls():
    """They were not called here."""
    room = Room(mode="ordered", step=1)
    room.deferred.joined(0, b"k", 2)
    room.fail(make_record(1, topic=FIRST, headers=[("laneway-attempts", b"1")]))
    headers = dict(room.sender.sent[0]["headers"])

    assert headers["laneway-attempts"] == b"1"
    assert "laneway-error-type" not in headers


@pytest.mark.parametrize(("mode", "expected"), [("ordered", [1]), ("unordered", [1, 2, 3])])
def test_copies_of_a_key_go_one_after_the_other_where_their_order_counts(mode, expected):
    """In ordered mode the next one is sent when the one before is safe."""
    room = Room(mode=mode)
    room.sender.is_silent = True
    room.fail(*map(make_record, (1, 2, 3)))

    assert expected == [offset for _, offset in room.sent]


def test_a_copy_that_is_repeated_is_not_overtaken():
    """The first one fails three times; the second waits all the while."""
    room = Room(DOWN, DOWN, DOWN, mode="ordered")
    room.deferred.joined(0, b"k", 1)
    room.fail(make_record(1), make_record(2))
    for _ in range(20):
        room.tick()
        room.clock.advance(0.25)

    assert [offset for _, offset in room.sent] == [1, 1, 1, 1, 2]
    assert (room.seen, room.waits()) == ([1, 2], False)


def test_other_keys_go_side_by_side():
    """The copies of one key wait for each other, never for those of another."""
    room = Room(DOWN, None, None, None, None, mode="ordered", parked=[2, 4])
    room.fail(make_record(1, b"a"), make_record(2, b"a"), make_record(3, b"b"), make_record(4, b"b"))
    room.tick(3)
    assert room.sent == [(FIRST, 1), (FIRST, 3), (ERROR, 4)]
    assert (room.waits(b"a"), room.waits(b"b")) == (True, False)

    room.clock.advance(1)
    room.tick(3)
    assert room.sent[3:] == [(FIRST, 1), (ERROR, 2)]
    assert not room.waits(b"a")


def test_a_parked_copy_in_between_keeps_the_order_too():
    """What is too large for the retry topic holds up those behind it until it is on the error topic."""
    room = Room(TOO_LARGE, DOWN, mode="ordered")
    room.deferred.joined(0, b"k", 1)
    room.fail(make_record(1), make_record(2))
    for _ in range(20):
        room.tick()
        room.clock.advance(0.25)

    assert room.sent == [(FIRST, 1), (ERROR, 1), (ERROR, 1), (FIRST, 2)]
    assert (room.seen, room.waits()) == ([1, 2], False)


def test_events_say_what_was_deferred_and_parked():
    """Each with its record."""
    room = Room(parked=[2])
    room.fail(make_record(1), make_record(2))
    room.tick()

    assert [(type(event).__name__, event.offset) for event in room.tally.events] == [
        ("RecordDeferred", 1),
        ("RecordParked", 2),
    ]
