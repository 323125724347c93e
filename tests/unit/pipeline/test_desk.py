"""Where turns begin and end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from laneway import Buffer, Json, Message, Reject, Retry, RetryAfter, Skip, Topic
from laneway.errors import MessageTooLargeError, ProduceError, UnreachableStateError
from laneway.instrumentation import Tally
from laneway.pipeline import Call, Desk
from support.core import FakeClock, FakeSender, make_record, make_records, make_route

OUT = Topic("out")


class Bench:
    """A desk with a clock, a sender and a handler."""

    def __init__(self, function=None, *, answers=(), lanes=4, **fields):
        self.clock, self.sender = FakeClock(), FakeSender(answers)
        fields.setdefault("lanes", lanes)
        self.route = make_route(function, **fields)
        self.desk = Desk(self.route, "billing", lanes=lanes, sender=self.sender, clock=self.clock)
        self.call = Call(self.route, self.clock)
        self.work = self.call.batch if self.route.kind == "batch" else self.call.single

    def turn(self):
        turn = self.desk.take()
        if turn is None:
            return False
        self.desk.settle(turn, self.work(turn))
        return True

    def run(self):
        for _ in range(1000):
            if not self.turn():
                if self.desk.is_done:
                    return self.desk.close()
                self.clock.advance(0.1)
                self.desk.tick()
        raise AssertionError("it does not end")


def raising(error):
    def handle(_):
        raise error

    return handle


class Unprintable(Exception):  # noqa: N818 - the name says what it is
    def __str__(self):
        raise RuntimeError("no text")


def test_a_record_from_start_to_end():
    """It is read, handled, finished, and its latency counted."""
    bench = Bench()
    bench.desk.admit([make_record(7, timestamp=int(bench.clock.wall() * 1000) - 50)])

    assert bench.desk.ledger.committable(0) == 7
    tally = bench.run()
    assert bench.desk.ledger.committable(0) == 8
    assert (tally.read, tally.handled, tally.finished, tally.calls, tally.size) == (1, 1, 1, 1, 2)
    assert tally.percentile(50) == 50


def test_skipped_records_are_finished():
    """A skip is an end, and is counted as one."""
    bench = Bench(raising(Skip()))
    bench.desk.admit(make_records(3, keys=3))

    assert bench.run().skipped == 3


def test_a_failed_record_is_finished_when_its_copy_is_safe():
    """The copy has the record's key, bytes, headers and time; until it is acknowledged the key waits."""
    bench = Bench(raising(ValueError("planted")))
    bench.sender.is_silent = True
    bench.desk.admit([make_record(0, b"", None, headers=[("h", None)], timestamp=5), make_record(1, b"")])
    bench.turn()

    assert bench.desk.take() is None
    assert bench.desk.ledger.committable(0) == 0
    assert bench.desk.scheduler.lanes_busy == 0
    bench.sender.is_silent = False
    tally = bench.run()
    assert (tally.parked, tally.handled) == (2, 0)
    first = bench.sender.acked[0]
    assert (first["topic"], first["key"], first["value"], first["timestamp"]) == ("orders.billing.error", b"", None, 5)
    assert first["headers"][0] == ("h", None)
    assert ("laneway-error-message", b"planted") in first["headers"]


def test_a_failed_record_is_tried_again_after_its_pause():
    """Its key waits, another key goes on."""
    calls = []

    def handle(record):
        calls.append((record.offset, record.attempt))
        if record.offset == 0 and record.attempt < 3:
            raise ValueError("planted")

    bench = Bench(handle, retry=Retry(3, "1s", jitter=0))
    bench.desk.admit([make_record(0, b"a"), make_record(1, b"a"), make_record(2, b"b")])
    while bench.turn():
        pass
    assert calls == [(0, 1), (2, 1)]
    assert bench.desk.next_wake == bench.clock.now + 1

    tally = bench.run()
    assert calls == [(0, 1), (2, 1), (0, 2), (0, 3), (1, 1)]
    assert (tally.handled, tally.retried, tally.parked) == (3, 2, 0)
    assert [sample.fate for sample in tally.samples] == ["retried", "retried"]


@pytest.mark.parametrize("error", [Unprintable(), ValueError("\ud800"), RetryAfter("soon"), RetryAfter(float("nan"))])
def test_a_strange_error_costs_its_record_only(error):
    """Once, an error without a text, or with one that is no Unicode, ended the run, again after each restart."""
    bench = Bench(raising(error), retry=Retry(2, "1ms"))
    bench.desk.admit([make_record()])
    tally = bench.run()

    assert tally.parked == 1
    assert Tally.decode(tally.encode()) == tally


def test_messages_are_safe_before_their_record_is_finished():
    """It is handled when the last of them is acknowledged; its key need not wait."""
    bench = Bench(lambda record: [Message(OUT, b"1"), Message(OUT, b"2")])
    bench.sender.is_silent = True
    bench.desk.admit(make_records(2))
    while bench.turn():
        pass

    assert bench.desk.ledger.outstanding == 2
    assert bench.desk.tally.handled == 0
    with pytest.raises(UnreachableStateError, match="2 records of handler 'handle' are unfinished"):
        bench.desk.close()
    bench.sender.is_silent = False
    tally = bench.run()
    assert (tally.handled, tally.produced) == (2, 4)


def test_an_empty_list_of_messages_is_success():
    """There is nothing to wait for."""
    bench = Bench(lambda record: [])
    bench.desk.admit([make_record()])

    assert bench.run().handled == 1


def test_a_message_that_is_too_large_parks_its_record():
    """It is parked once, however many of its messages are too large, and not counted as handled."""
    too_large = MessageTooLargeError("x")
    bench = Bench(
        lambda record: [Message(OUT, b"1"), Message(OUT, b"2"), Message(OUT, b"3")],
        answers=[too_large, None, too_large],
    )
    bench.desk.admit([make_record()])
    tally = bench.run()

    assert (tally.handled, tally.parked, tally.undelivered) == (0, 1, 2)
    assert [message["topic"] for message in bench.sender.acked] == ["out", "orders.billing.error"]


def test_a_copy_that_is_too_large_goes_without_its_trace():
    """Nothing of the record is given up."""
    bench = Bench(raising(ValueError("planted")), answers=[MessageTooLargeError("x")])
    bench.desk.admit([make_record(raw=b"all of it")])
    bench.run()
    (copy,) = bench.sender.acked

    assert copy["value"] == b"all of it"
    assert dict(copy["headers"])["laneway-error-trace"] == b""


def test_an_error_topic_that_is_down_loses_nothing():
    """The record stays unfinished, and the outbox says why, until the topic is back."""
    bench = Bench(raising(ValueError()), answers=[ProduceError("down")] * 5)
    bench.desk.admit([make_record()])
    bench.turn()
    bench.desk.tick()

    assert bench.desk.outbox.trouble == "cannot write to orders.billing.error: down"
    assert not bench.desk.is_done
    assert bench.run().parked == 1


def test_room_counts_records_and_bytes():
    """Either bound stops the reading."""
    bench = Bench(buffer=Buffer(10, 20))
    assert bench.desk.room == 10
    bench.desk.admit(make_records(2))

    assert bench.desk.room == 8
    bench.desk.admit([make_record(5, raw=b"x" * 30)])
    assert bench.desk.room == 0
    bench.run()
    assert bench.desk.room == 10


def test_what_waits_for_its_acknowledgement_takes_room():
    """Once, a slow target topic was read for ever, because only waiting records counted."""
    bench = Bench(lambda record: Message(OUT, b"x" * 5), buffer=Buffer(4, 18))
    bench.sender.is_silent = True
    bench.desk.admit(make_records(3, keys=3))
    while bench.turn():
        pass

    assert bench.desk.scheduler.records == 0
    assert bench.desk.room == 1
    bench.desk.admit([make_record(3)])
    bench.turn()
    assert bench.desk.room == 0


def test_records_of_a_batch_behind_one_message_take_room():
    """One message may stand for many records that are not finished."""
    bench = Bench(lambda batch: Message(OUT, b""), kind="batch", size=3, buffer=Buffer(4))
    bench.sender.is_silent = True
    bench.desk.admit(make_records(3))
    bench.turn()

    assert bench.desk.room == 1


def test_the_first_turns_are_of_one_record():
    """Once, the first lane took all records of an unknown handler and called it 16 times while other lanes idled."""
    bench = Bench()
    bench.desk.admit(make_records(100, keys=100))
    turns = [bench.desk.take() for _ in range(4)]

    assert [len(turn) for turn in turns] == [1, 1, 1, 1]


def test_turns_grow_for_a_fast_handler():
    """A handler of a microsecond is given hundreds of records at once."""
    bench = Bench(lambda record: bench.clock.advance(1e-6))
    bench.desk.admit(make_records(2000, keys=2000))
    bench.turn()

    assert len(bench.desk.take()) == 512


def test_turns_are_small_for_a_slow_handler():
    """A handler of a millisecond gets what it can do in its slice, and leaves work for the other lanes."""
    bench = Bench(lambda record: bench.clock.advance(0.001))
    bench.desk.admit(make_records(100, keys=100))
    bench.turn()

    assert len(bench.desk.take()) <= 2
    assert bench.desk.pace == pytest.approx(0.001)


def test_order_by_partition_takes_one_record_at_a_time():
    """With one lane, keys of a partition wait for each other."""
    bench = Bench(lanes=1)
    bench.desk.admit([*make_records(2, keys=2), *make_records(1, partition=1)])

    assert bench.desk.scheduler.take(1)[0].work()[0].partition == 0
    bench.desk.scheduler.lanes = 9
    assert bench.desk.scheduler.take(1)[0].work()[0].partition == 1
    assert bench.desk.take() is None


def test_without_order_nobody_waits():
    """Records of one key may run at once."""
    bench = Bench(order="none")
    bench.desk.admit(make_records(4))

    assert all(bench.desk.take() for _ in range(4))


def test_a_batch_waits_until_it_is_full():
    """Not longer than `within`, and not at all when nothing more will come."""
    bench = Bench(kind="batch", size=3, within=timedelta(seconds=2))
    bench.desk.admit(make_records(2))
    assert bench.desk.take() is None
    assert bench.desk.next_wake == bench.clock.now + 2
    bench.clock.advance(2)
    assert bench.turn()

    bench.desk.admit([make_record(5), make_record(6), make_record(7)])
    assert bench.turn()
    bench.desk.admit([make_record(8)])
    assert not bench.turn()
    bench.desk.is_closing = True
    assert bench.turn()


def test_a_batch_does_not_wait_again_for_a_lane():
    """Once, a due batch that found no lane free had to wait as long again; and it is no reason to wake up."""
    bench = Bench(kind="batch", size=2, within=timedelta(seconds=2), lanes=1)
    bench.desk.admit([make_record(0, b"a"), make_record(1, b"a"), make_record(2, b"b")])
    turn = bench.desk.take()
    bench.desk.take()
    bench.clock.advance(2)

    assert bench.desk.take() is None
    assert bench.desk.next_wake is None
    bench.desk.settle(turn, bench.work(turn))
    assert bench.turn()


def test_a_failed_batch_is_tried_again_as_a_whole():
    """Then each of its records is parked with its reason, the undecodable one with its own."""
    bench = Bench(
        raising(ValueError("planted")), topic=Topic("orders", Json()), kind="batch", size=3, retry=Retry(2, "1s")
    )
    bench.desk.admit([make_record(0, b"a", b"1"), make_record(1, b"a", b"{"), make_record(2, b"b", b"2")])
    tally = bench.run()

    assert (tally.retried, tally.parked, tally.calls) == (1, 3, 2)
    types = {
        dict(copy["headers"])["laneway-origin-offset"]: dict(copy["headers"])["laneway-error-type"]
        for copy in bench.sender.acked
    }
    assert types == {b"0": b"ValueError", b"1": b"laneway.errors.CodecError", b"2": b"ValueError"}


def test_an_undecodable_member_is_parked_alone():
    """The others of its batch are handled."""
    bench = Bench(topic=Topic("orders", Json()), kind="batch", size=2)
    bench.desk.admit([make_record(0, b"a", b"{"), make_record(1, b"a", b"1")])
    tally = bench.run()

    assert (tally.handled, tally.parked) == (1, 1)


def test_a_rejected_batch_is_parked_at_once():
    """Trying again cannot help."""
    bench = Bench(raising(Reject()), kind="batch", size=2, retry=Retry(5))
    bench.desk.admit(make_records(2))
    tally = bench.run()

    assert (tally.retried, tally.parked, tally.calls) == (0, 2, 1)


def test_records_that_no_queue_holds_can_be_parked():
    """The rows of a columnar handler's table take the same path."""
    bench = Bench()
    bench.desk.ledger.see(0, [0, 1])
    bench.desk.park_all(make_records(2), ValueError("planted"))
    bench.desk.tick()

    assert bench.desk.close().parked == 2


def test_lanes_in_use_are_averaged():
    """A turn of a second in a run of two uses half a lane."""
    bench = Bench(lambda record: bench.clock.advance(1))
    bench.desk.admit(make_records(2))
    bench.turn()
    bench.clock.advance(2)
    bench.turn()

    assert bench.desk.close().lanes_busy == pytest.approx(0.5)
