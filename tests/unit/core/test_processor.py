"""Where turns begin and end."""

from __future__ import annotations

import gc
import weakref
from datetime import timedelta

import pytest

from laneway import Buffer, Json, Message, Reject, Retry, RetryAfter, Skip, Topic
from laneway._clock import SystemClock
from laneway._core.call import Call
from laneway._core.decide import ERROR_TOPIC
from laneway._core.processor import Processor
from laneway.errors import MessageTooLargeError, ProduceError, UnreachableStateError
from laneway.observe import Tally
from support.core import FakeClock, FakeSender, Noted, make_record, make_records, make_route

OUT = Topic("out")


class Bench:
    """A processor with a clock, a sender and a handler."""

    def __init__(self, function=None, *, answers=(), lanes=4, listener=None, **fields):
        self.clock, self.sender = FakeClock(), FakeSender(answers)
        fields.setdefault("lanes", lanes)
        self.route = make_route(function, **fields)
        self.processor = Processor(
            [self.route], "billing", lanes=lanes, sender=self.sender, clock=self.clock, listener=listener
        )
        self.call = Call(self.route, self.clock)
        self.work = self.call.batch if self.route.kind == "batch" else self.call.single

    def turn(self):
        turn = self.processor.take()
        if turn is None:
            return False
        self.processor.settle(turn, self.work(turn))
        return True

    def run(self):
        for _ in range(1000):
            if not self.turn():
                if self.processor.is_done:
                    return self.processor.close()
                self.clock.advance(0.1)
                self.processor.tick()
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
    bench.processor.admit([make_record(7, timestamp=int(bench.clock.wall() * 1000) - 50)])

    assert bench.processor.steps[0].ledger.committable(0) == 7
    tally = bench.run()
    assert bench.processor.steps[0].ledger.committable(0) == 8
    assert (tally.read, tally.handled, tally.finished, tally.calls, tally.size) == (1, 1, 1, 1, 2)
    assert tally.percentile(50) == 50


def test_skipped_records_are_finished():
    """A skip is an end, and is counted as one."""
    bench = Bench(raising(Skip()))
    bench.processor.admit(make_records(3, keys=3))

    assert bench.run().skipped == 3


def test_a_failed_record_is_finished_when_its_copy_is_safe():
    """The copy has the record's key, bytes, headers and time; until it is acknowledged the key waits."""
    bench = Bench(raising(ValueError("planted")))
    bench.sender.is_silent = True
    bench.processor.admit([make_record(0, b"", None, headers=[("h", None)], timestamp=5), make_record(1, b"")])
    bench.turn()

    assert bench.processor.take() is None
    assert bench.processor.steps[0].ledger.committable(0) == 0
    assert bench.processor.lanes.busy == 0
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
    bench.processor.admit([make_record(0, b"a"), make_record(1, b"a"), make_record(2, b"b")])
    while bench.turn():
        pass
    assert calls == [(0, 1), (2, 1)]
    assert bench.processor.next_wake == bench.clock.now + 1

    tally = bench.run()
    assert calls == [(0, 1), (2, 1), (0, 2), (0, 3), (1, 1)]
    assert (tally.handled, tally.retried, tally.parked) == (3, 2, 0)
    assert [sample.fate for sample in tally.events] == ["retried", "retried"]


@pytest.mark.parametrize("error", [Unprintable(), ValueError("\ud800"), RetryAfter("soon"), RetryAfter(float("nan"))])
def test_a_strange_error_costs_its_record_only(error):
    """Once, an error without a text, or with one that is no Unicode, ended the run, again after each restart."""
    bench = Bench(raising(error), retry=Retry(2, "1ms"))
    bench.processor.admit([make_record()])
    tally = bench.run()

    assert tally.parked == 1
    assert Tally.decode(tally.encode()) == tally


def test_messages_are_safe_before_their_record_is_finished():
    """It is handled when the last of them is acknowledged; its key need not wait."""
    bench = Bench(lambda record: [Message(OUT, b"1"), Message(OUT, b"2")])
    bench.sender.is_silent = True
    bench.processor.admit(make_records(2))
    while bench.turn():
        pass

    assert bench.processor.steps[0].ledger.outstanding == 2
    assert bench.processor.tally.handled == 0
    with pytest.raises(UnreachableStateError, match="2 records of handler 'handle' are unfinished"):
        bench.processor.close()
    bench.sender.is_silent = False
    tally = bench.run()
    assert (tally.handled, tally.produced) == (2, 4)


def test_an_empty_list_of_messages_is_success():
    """There is nothing to wait for."""
    bench = Bench(lambda record: [])
    bench.processor.admit([make_record()])

    assert bench.run().handled == 1


def test_a_message_that_is_too_large_parks_its_record():
    """It is parked once, however many of its messages are too large, and not counted as handled."""
    too_large = MessageTooLargeError("x")
    bench = Bench(
        lambda record: [Message(OUT, b"1"), Message(OUT, b"2"), Message(OUT, b"3")],
        # Together, then each by itself, with the copy of the record in between.
        answers=[too_large, None, too_large, too_large, None, too_large],
    )
    bench.processor.admit([make_record()])
    tally = bench.run()

    assert (tally.handled, tally.parked, tally.undelivered) == (0, 1, 4)
    assert [message["topic"] for message in bench.sender.acked] == ["out", "orders.billing.error"]


def test_a_copy_that_is_too_large_goes_without_its_trace():
    """Nothing of the record is given up."""
    bench = Bench(raising(ValueError("planted")), answers=[MessageTooLargeError("x")])
    bench.processor.admit([make_record(raw=b"all of it")])
    bench.run()
    (copy,) = bench.sender.acked

    assert copy["value"] == b"all of it"
    headers = dict(copy["headers"])
    assert (headers["laneway-error-trace"], headers["laneway-reduced"]) == (b"", b"trace")
    assert (bench.processor.tally.parked, bench.processor.tally.reduced) == (1, 1)


def test_a_copy_that_is_still_too_large_is_a_reference():
    """It tells where the record is, why it failed, and that its value is left out; it counts as reduced once."""
    bench = Bench(raising(ValueError("planted")), answers=[MessageTooLargeError("x")] * 2, oversize="reference")
    bench.processor.admit([make_record(7, raw=b"all of it", headers=[("own", b"1")])])
    bench.run()
    (copy,) = bench.sender.acked
    headers = dict(copy["headers"])

    assert (copy["key"], copy["value"]) == (b"k", None)
    assert (headers["laneway-reduced"], headers["laneway-origin-offset"]) == (b"value", b"7")
    assert headers["own"] == b"1"
    assert (bench.processor.tally.parked, bench.processor.tally.reduced) == (1, 1)


@pytest.mark.parametrize("kind", ["single", "batch"])
def test_an_error_keeps_nothing_alive_once_it_is_settled(kind):
    """A failed turn once held all of its records, in a circle with its error, until the garbage was collected."""
    errors = []

    def handle(_):
        error = Unprintable()
        errors.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    bench = Bench(handle, kind=kind, retry=Retry.steps("1s"))
    bench.processor.admit(make_records(20, keys=20))
    gc.disable()
    try:
        assert bench.turn()
        assert errors
        assert not any(error() for error in errors)
    finally:
        gc.enable()


def test_an_error_topic_that_is_down_loses_nothing():
    """The record stays unfinished, and the outbox says why, until the topic is back."""
    bench = Bench(raising(ValueError()), answers=[ProduceError("down")] * 5)
    bench.processor.admit([make_record()])
    bench.turn()
    bench.processor.tick()

    assert bench.processor.outbox.trouble == "cannot write to orders.billing.error: down"
    assert not bench.processor.is_done
    assert bench.run().parked == 1


def test_room_counts_records_and_bytes():
    """Either bound stops the reading."""
    bench = Bench(buffer=Buffer(10, 20))
    assert bench.processor.room == 10
    bench.processor.admit(make_records(2))

    assert bench.processor.room == 8
    bench.processor.admit([make_record(5, raw=b"x" * 30)])
    assert bench.processor.room == 0
    bench.run()
    assert bench.processor.room == 10


def test_what_waits_for_its_acknowledgement_takes_room():
    """Once, a slow target topic was read for ever, because only waiting records counted."""
    bench = Bench(lambda record: Message(OUT, b"x" * 5), buffer=Buffer(4, 18))
    bench.sender.is_silent = True
    bench.processor.admit(make_records(3, keys=3))
    while bench.turn():
        pass

    assert bench.processor.steps[0].scheduler.records == 0
    assert bench.processor.room == 1
    bench.processor.admit([make_record(3)])
    bench.turn()
    assert bench.processor.room == 0


def test_records_of_a_batch_behind_one_message_take_room():
    """One message may stand for many records that are not finished."""
    bench = Bench(lambda batch: Message(OUT, b""), kind="batch", size=3, buffer=Buffer(4))
    bench.sender.is_silent = True
    bench.processor.admit(make_records(3))
    bench.turn()

    assert bench.processor.room == 1


def test_the_first_turns_are_of_one_record():
    """Once, the first lane took all records of an unknown handler and called it 16 times while other lanes idled."""
    bench = Bench()
    bench.processor.admit(make_records(100, keys=100))
    turns = [bench.processor.take() for _ in range(4)]

    assert [len(turn) for turn in turns] == [1, 1, 1, 1]


def test_turns_grow_for_a_fast_handler():
    """A handler of a microsecond is given hundreds of records at once."""
    bench = Bench(lambda record: bench.clock.advance(1e-6))
    bench.processor.admit(make_records(2000, keys=2000))
    bench.turn()

    assert len(bench.processor.take()) == 512


def test_turns_are_small_for_a_slow_handler():
    """A handler of a millisecond gets what it can do in its slice, and leaves work for the other lanes."""
    bench = Bench(lambda record: bench.clock.advance(0.001))
    bench.processor.admit(make_records(100, keys=100))
    bench.turn()

    assert len(bench.processor.take()) <= 2
    assert bench.processor.pace == pytest.approx(0.001)


def test_order_by_partition_takes_one_record_at_a_time():
    """With one lane, keys of a partition wait for each other."""
    bench = Bench(lanes=1)
    bench.processor.admit([*make_records(2, keys=2), *make_records(1, partition=1)])

    assert bench.processor.steps[0].scheduler.take(1)[0].work()[0].partition == 0
    bench.processor.lanes.total = 9
    assert bench.processor.steps[0].scheduler.take(1)[0].work()[0].partition == 1
    assert bench.processor.take() is None


def test_without_order_nobody_waits():
    """Records of one key may run at once."""
    bench = Bench(order="none")
    bench.processor.admit(make_records(4))

    assert all(bench.processor.take() for _ in range(4))


def test_a_batch_waits_until_it_is_full():
    """Not longer than `within`, and not at all when nothing more will come."""
    bench = Bench(kind="batch", size=3, within=timedelta(seconds=2))
    bench.processor.admit(make_records(2))
    assert bench.processor.take() is None
    assert bench.processor.next_wake == bench.clock.now + 2
    bench.clock.advance(2)
    assert bench.turn()

    bench.processor.admit([make_record(5), make_record(6), make_record(7)])
    assert bench.turn()
    bench.processor.admit([make_record(8)])
    assert not bench.turn()
    bench.processor.is_closing = True
    assert bench.turn()


def test_a_batch_does_not_wait_again_for_a_lane():
    """Once, a due batch that found no lane free had to wait as long again; and it is no reason to wake up."""
    bench = Bench(kind="batch", size=2, within=timedelta(seconds=2), lanes=1)
    bench.processor.admit([make_record(0, b"a"), make_record(1, b"a"), make_record(2, b"b")])
    turn = bench.processor.take()
    bench.processor.take()
    bench.clock.advance(2)

    assert bench.processor.take() is None
    assert bench.processor.next_wake is None
    bench.processor.settle(turn, bench.work(turn))
    assert bench.turn()


def reasons(copies):
    """Offset of a parked record to its error type and attempts."""
    told = [dict(copy["headers"]) for copy in copies]
    return {
        int(headers["laneway-origin-offset"]): (
            headers["laneway-error-type"].decode(),
            int(headers["laneway-attempts"]),
        )
        for headers in told
    }


def test_a_failed_batch_is_tried_again_without_what_cannot_be_decoded():
    """Then each of its records is parked with its reason; the undecodable one was parked at once, with its own."""
    bench = Bench(
        raising(ValueError("planted")), topic=Topic("orders", Json()), kind="batch", size=3, retry=Retry(2, "1s")
    )
    bench.processor.admit([make_record(0, b"a", b"1"), make_record(1, b"a", b"{"), make_record(2, b"b", b"2")])
    bench.turn()
    bench.processor.tick()
    assert reasons(bench.sender.acked) == {1: ("laneway.errors.CodecError", 1)}

    tally = bench.run()
    assert (tally.retried, tally.parked, tally.calls) == (2, 3, 2)
    assert reasons(bench.sender.acked) == {
        0: ("ValueError", 2),
        1: ("laneway.errors.CodecError", 1),
        2: ("ValueError", 2),
    }


class Grumpy:
    """A codec that does not keep to `CodecError`, which alone says that trying again cannot help."""

    def encode(self, value):
        return value

    def decode(self, data):
        if data == b"!":
            raise ValueError("grumpy")
        return data


def test_failed_members_keep_the_order_of_their_key():
    """Once, those that could not be decoded came before earlier ones, when tried again and on the error topic."""
    seen = []

    def handle(batch):
        seen.append([(record.offset, record.attempt) for record in batch])
        raise OSError("planted")

    bench = Bench(handle, topic=Topic("orders", Grumpy()), kind="batch", size=3, retry=Retry(2, "1s"))
    bench.processor.admit([make_record(0), make_record(1, raw=b"!"), make_record(2)])
    bench.turn()
    bench.clock.advance(1)
    bench.processor.tick()
    turn = bench.processor.steps[0].scheduler.take(3)
    assert [record.offset for record in turn[0].work()] == [0, 1, 2]

    bench.processor.settle(turn, bench.work(turn))
    tally = bench.run()
    assert seen == [[(0, 1), (2, 1)], [(0, 2), (2, 2)]]
    assert (tally.parked, tally.retried) == (3, 3)
    assert list(reasons(bench.sender.acked)) == [0, 1, 2]


def test_members_that_failed_together_come_back_together():
    """One random pause for all of them: one each would tear the batch apart, key by key."""
    sizes = []

    def handle(batch):
        sizes.append(len(batch))
        if len(sizes) == 1:
            raise ValueError("planted")

    bench = Bench(handle, kind="batch", size=20, retry=Retry(2, "10s", jitter=1.0))
    bench.processor.admit(make_records(20, keys=20))
    tally = bench.run()

    assert sizes == [20, 20]
    assert (tally.retried, tally.handled) == (20, 20)


def test_each_member_is_judged_by_its_own_attempt():
    """Once, a record that came late was parked without a retry when its batch held one that had used up its tries."""
    seen = []

    def handle(batch):
        seen.append([(record.offset, record.attempt) for record in batch])
        raise ValueError("planted")

    bench = Bench(handle, kind="batch", size=2, retry=Retry(2, "1s", jitter=0))
    bench.processor.is_closing = True
    bench.processor.admit([make_record(0, b"a")])
    bench.turn()
    bench.processor.admit([make_record(1, b"a")])
    tally = bench.run()

    assert seen == [[(0, 1)], [(0, 2), (1, 1)], [(1, 2)]]
    assert (tally.retried, tally.parked) == (2, 2)
    assert reasons(bench.sender.acked) == {0: ("ValueError", 2), 1: ("ValueError", 2)}


def marking(**by_offset):
    """A batch handler that marks members by offset, for as many attempts as told; `seen` has what it was given."""
    seen = []

    def handle(batch):
        seen.append([(record.offset, record.attempt) for record in batch])
        for record in batch:
            fate, attempts = by_offset.get(f"at{record.offset}", ("", 0))
            if record.attempt <= attempts:
                getattr(batch, fate)(record, f"{fate} it")

    return handle, seen


def test_only_marked_members_are_tried_again_parked_or_skipped():
    """All others are finished by the first call."""
    handle, seen = marking(at1=("reject", 9), at2=("retry", 1), at3=("skip", 9), at5=("retry", 9))
    bench = Bench(handle, kind="batch", size=6, retry=Retry(3, "1s", jitter=0))
    bench.processor.admit(make_records(6, keys=6))
    bench.turn()
    assert (
        bench.processor.tally.handled,
        bench.processor.tally.skipped,
        bench.processor.steps[0].ledger.outstanding,
    ) == (2, 1, 3)

    tally = bench.run()
    assert [sorted(call) for call in seen] == [[(n, 1) for n in range(6)], [(2, 2), (5, 2)], [(5, 3)]]
    assert (tally.handled, tally.skipped, tally.parked, tally.retried, tally.finished) == (3, 1, 2, 3, 6)
    assert reasons(bench.sender.acked) == {
        1: ("laneway.errors.Reject", 1),
        5: ("laneway.errors.RetryAfter", 3),
    }
    assert {(sample.offset, sample.fate) for sample in tally.events} == {
        (1, "parked"),
        (2, "retried"),
        (5, "retried"),
        (5, "parked"),
    }


def test_a_retried_member_comes_before_later_batches_of_its_key():
    """Those of its own batch count as handled before it."""
    handle, seen = marking(at0=("retry", 1), at2=("retry", 2))
    bench = Bench(handle, kind="batch", size=4, retry=Retry(3, "1s", jitter=0))
    bench.processor.is_closing = True
    bench.processor.admit(make_records(6))
    bench.run()

    assert seen == [[(0, 1), (1, 1), (2, 1), (3, 1)], [(0, 2), (2, 2), (4, 1), (5, 1)], [(2, 3)]]


def test_a_key_waits_for_its_copies_before_its_retried_members():
    """However long the pause was over; another key of the batch goes on."""
    handle, seen = marking(at0=("retry", 1), at1=("reject", 9), at2=("reject", 9), at3=("retry", 1))
    bench = Bench(handle, kind="batch", size=4, retry=Retry(3, "1s", jitter=0))
    bench.processor.is_closing = True
    bench.sender.is_silent = True
    bench.processor.admit([*(make_record(n, b"a") for n in range(3)), make_record(3, b"b")])
    bench.turn()
    bench.clock.advance(60)
    bench.processor.tick()
    assert bench.turn()
    assert not bench.turn()
    assert seen[1:] == [[(3, 2)]]

    bench.sender.is_silent = False
    bench.run()
    assert seen[2:] == [[(0, 2)]]
    assert set(reasons(bench.sender.acked)) == {1, 2}


def test_a_member_may_say_when_it_is_tried_again():
    """Its key waits as long as the longest of its members asks for."""
    pauses = {0: "5s", 1: timedelta(seconds=7), 2: "2s"}

    def handle(batch):
        for record in batch:
            if record.attempt == 1:
                batch.retry(record, after=pauses[record.offset])

    bench = Bench(handle, kind="batch", size=3, retry=Retry(2, "1s", jitter=0))
    bench.processor.is_closing = True
    bench.processor.admit([make_record(0, b"a"), make_record(1, b"a"), make_record(2, b"b")])
    bench.turn()

    assert bench.processor.next_wake == bench.clock.now + 2
    bench.clock.advance(2)
    bench.processor.tick()
    bench.turn()
    assert bench.processor.tally.handled == 1
    assert bench.processor.next_wake == bench.clock.now + 5
    assert bench.run().handled == 3


@pytest.mark.parametrize("after", ["soon", 5, -1.0, float("nan")])
def test_a_pause_that_is_none_costs_nothing_more(after):
    """The run goes on, and every record ends."""

    def handle(batch):
        batch.retry(batch.records[0], after=after)

    bench = Bench(handle, kind="batch", size=2, retry=Retry(2, "1s"))
    bench.processor.admit(make_records(2))
    tally = bench.run()

    assert (tally.handled, tally.parked, tally.retried) == (1, 1, 1)


def test_members_that_are_not_marked_wait_for_the_messages():
    """Those that are marked do not."""

    def handle(batch):
        batch.skip(batch.records[0])
        return Message(OUT, b"x")

    bench = Bench(handle, kind="batch", size=3)
    bench.sender.is_silent = True
    bench.processor.admit(make_records(3))
    bench.turn()
    assert bench.processor.steps[0].ledger.unfinished(0) == (1, 2)

    bench.sender.is_silent = False
    tally = bench.run()
    assert (tally.handled, tally.skipped, tally.produced) == (2, 1, 1)


def skip_all_and_say_so(batch):
    for record in batch:
        batch.skip(record)
    return [Message(OUT, b"x"), Message(OUT, b"y")]


def test_messages_of_a_batch_that_is_wholly_marked_are_sent():
    """The task does not end before they are acknowledged."""
    bench = Bench(skip_all_and_say_so, kind="batch", size=2)
    bench.sender.is_silent = True
    bench.processor.admit(make_records(2))
    bench.turn()
    assert not bench.processor.is_done

    bench.sender.is_silent = False
    tally = bench.run()
    assert (tally.handled, tally.skipped, tally.produced, tally.finished) == (0, 2, 2, 2)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_hopeless_message_of_a_batch_that_is_wholly_marked_is_told_of(is_told):
    """There is no record to park for it: each has an end of its own."""
    noted = Noted()
    bench = Bench(
        skip_all_and_say_so,
        kind="batch",
        size=2,
        answers=[MessageTooLargeError("huge"), None, MessageTooLargeError("huge")],
        listener=noted if is_told else None,
    )
    bench.processor.admit(make_records(2))
    tally = bench.run()

    assert (tally.skipped, tally.parked, tally.produced, tally.undelivered) == (2, 0, 1, 2)
    assert len(noted.notes) == is_told
    assert all("a message for out cannot be delivered: huge; it is given up" in notice for notice in noted.notes)


def test_a_mark_that_is_not_of_the_batch_parks_it_with_the_reason():
    """Nothing counts as handled that was perhaps meant to be rejected."""

    def handle(batch):
        batch.reject(make_record(77))

    bench = Bench(handle, kind="batch", size=2)
    bench.processor.admit(make_records(2))
    tally = bench.run()

    assert (tally.handled, tally.parked) == (0, 2)
    assert "offset 77" in tally.events[0].error


def test_an_undecodable_member_is_parked_alone():
    """The others of its batch are handled."""
    bench = Bench(topic=Topic("orders", Json()), kind="batch", size=2)
    bench.processor.admit([make_record(0, b"a", b"{"), make_record(1, b"a", b"1")])
    tally = bench.run()

    assert (tally.handled, tally.parked) == (1, 1)


def test_a_rejected_batch_is_parked_at_once():
    """Trying again cannot help."""
    bench = Bench(raising(Reject()), kind="batch", size=2, retry=Retry(5))
    bench.processor.admit(make_records(2))
    tally = bench.run()

    assert (tally.retried, tally.parked, tally.calls) == (0, 2, 1)


def test_records_that_no_queue_holds_can_be_parked():
    """The rows of a columnar handler's table take the same path."""
    bench = Bench()
    bench.processor.steps[0].ledger.see(0, [0, 1])
    bench.processor.copy_rows(make_records(2), ValueError("planted"), ERROR_TOPIC)
    bench.processor.tick()

    assert bench.processor.close().parked == 2


def test_lanes_in_use_are_averaged():
    """A turn of a second in a run of two uses half a lane."""
    bench = Bench(lambda record: bench.clock.advance(1))
    bench.processor.admit(make_records(2))
    bench.turn()
    bench.clock.advance(2)
    bench.turn()

    assert bench.processor.close().lanes_busy == pytest.approx(0.5)


def test_keys_that_failed_in_one_batch_are_due_at_one_moment():
    """Once, each key's pause began a microsecond after the one before, and the batch came back in pieces."""

    def fail(batch):
        raise ValueError("planted")

    clock = SystemClock()
    route = make_route(fail, kind="batch", size=5, lanes=1, retry=Retry(2, "20ms"))
    processor = Processor([route], "billing", lanes=1, sender=FakeSender(), clock=clock)
    processor.admit(make_records(5, keys=3))
    turn = processor.take()
    processor.settle(turn, Call(route, clock).batch(turn))

    assert len({until for until, _, _ in processor.steps[0].scheduler._late}) == 1
