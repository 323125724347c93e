"""Desks on a ladder: what is called where, what queues behind what, and when a key is free again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from laneway import Buffer, Message, Reject, Retry, Skip, Topic
from laneway._core.call import Call
from laneway._core.decide import ERROR_TOPIC
from laneway._core.deferred_keys import DeferredKeys
from laneway._core.processor import Processor
from laneway._declare.record import Record
from laneway.errors import MessageTooLargeError, ProduceError
from support.core import FakeClock, FakeSender, make_record, make_route

FIRST, SECOND, ERROR = "orders.billing.retry.1", "orders.billing.retry.2", "orders.billing.error"


class Floor:
    """The processor of one step, with a clock, a sender and a deferred."""

    def __init__(self, function=None, *, step=0, deferred=None, answers=(), clock=None, **fields):
        self.clock, self.sender = clock or FakeClock(), FakeSender(answers)
        self.deferred = DeferredKeys() if deferred is None else deferred
        fields.setdefault("lanes", 4)
        fields.setdefault("retry", Retry.steps("5s", "1m", mode="ordered"))
        self.route = make_route(function, **fields).at_step("billing", step)
        self.processor = Processor(
            [self.route],
            "billing",
            lanes=fields["lanes"],
            sender=self.sender,
            clock=self.clock,
            deferred=self.deferred,
            per_partition=1 if self.route.strict else None,
        )
        call = Call(self.route, self.clock)
        self.work = call.batch if self.route.is_batch else call.single

    def turn(self):
        turn = self.processor.take()
        if turn is None:
            return False
        self.processor.settle(turn, self.work(turn))
        return True

    def run(self, *records):
        """Work until nothing is left but what waits for a time."""
        if records:
            self.processor.admit(records)
        for _ in range(1000):
            if not self.turn():
                if self.processor.is_done:
                    return self.processor.close()
                self.clock.advance(0.1)
                self.processor.tick()
        raise AssertionError("it does not end")

    @property
    def copies(self):
        """Topic and origin of what is safe."""
        return [(copy["topic"], int(dict(copy["headers"])["laneway-origin-offset"])) for copy in self.sender.acked]


class Tower:
    """All floors of a ladder over one deferred; what one writes to a retry topic the next reads after its delay."""

    def __init__(self, function, **fields):
        self.clock, self.deferred = FakeClock(), DeferredKeys()
        self.floors = [
            Floor(function, step=step, clock=self.clock, deferred=self.deferred, **fields) for step in range(3)
        ]

    def deliver(self):
        """Hand the copies that are safe to the floors that read them."""
        for floor in self.floors:
            copies, floor.sender.acked = floor.sender.acked, []
            for copy in copies:
                for above in self.floors[1:]:
                    if copy["topic"] == above.route.topic.name:
                        above.processor.admit([as_read(copy, above)])

    def run(self, *records):
        self.floors[0].processor.admit(records)
        for _ in range(200):
            for floor in self.floors:
                while floor.turn():
                    pass
                floor.processor.tick()
            self.deliver()
            self.clock.advance(0.5)
        return [floor.processor.close() for floor in self.floors]


def as_read(copy, floor):
    floor.next = getattr(floor, "next", 99) + 1
    place = (copy["topic"], copy["partition"], floor.next, copy["timestamp"])
    value = copy["value"]
    return Record(*place, copy["key"], value, copy["headers"], len(value or b""), value)


def waiting(offset=0, key=b"k", step=1, *, calls=1, timestamp=5, partition=0):
    """A record as it is read from a retry topic, 1,000 offsets further on."""
    headers = [
        ("laneway-origin-topic", b"orders"),
        ("laneway-origin-partition", b"%d" % partition),
        ("laneway-origin-offset", b"%d" % offset),
        ("laneway-origin-timestamp", b"%d" % timestamp),
        ("laneway-attempts", b"%d" % calls),
    ]
    topic = FIRST if step == 1 else SECOND
    return make_record(1000 + offset, key, partition=partition, headers=headers, topic=topic)


def raising(error):
    def handle(_):
        raise error

    return handle


def failing(*offsets, times=99, seen=None):
    """Fails the records of these origins, as many times as told; others are handled. `seen` has all calls."""

    def handle(record):
        offset = record.offset if record.origin is None else record.origin.offset
        if seen is not None:
            seen.append((offset, record.attempt))
        if offset in offsets and record.attempt <= times:
            raise ValueError("planted")

    return handle


def test_later_records_of_a_key_go_behind_the_one_that_waits():
    """They are not called; other keys and records without a key go on."""
    seen = []
    floor = Floor(failing(0, seen=seen))
    keys = [b"a", b"a", b"b", None, b"a", b"", b"a"]
    tally = floor.run(*(make_record(offset, key) for offset, key in enumerate(keys)))

    assert sorted(seen) == [(0, 1), (2, 1), (3, 1), (5, 1)]
    assert floor.copies == [(FIRST, 0), (FIRST, 1), (FIRST, 4), (FIRST, 6)]
    assert (tally.handled, tally.deferred, tally.calls, tally.finished) == (3, 4, 4, 7)
    assert (len(floor.deferred), floor.deferred.behind(0, b"a", 0)) == (1, 1)


def test_a_record_without_a_key_never_waits():
    """Not behind another one, and none behind it."""
    seen = []
    floor = Floor(failing(0, seen=seen))
    floor.run(make_record(0, None), make_record(1, None), make_record(2, None))

    assert sorted(seen) == [(0, 1), (1, 1), (2, 1)]
    assert (floor.copies, len(floor.deferred)) == ([(FIRST, 0)], 0)


def test_a_follower_says_that_it_was_not_called():
    """The one that failed was called once, those behind it never."""
    floor = Floor(failing(0))
    floor.run(make_record(0), make_record(1))
    told = [dict(copy["headers"]) for copy in floor.sender.acked]

    assert [headers["laneway-attempts"] for headers in told] == [b"1", b"0"]
    assert ["laneway-error-type" in headers for headers in told] == [True, False]


def test_a_key_that_waits_already_is_not_called():
    """The records of its past life are on the topics, and the deferred was loaded from them."""
    deferred = DeferredKeys()
    deferred.joined(0, b"a", 2)
    floor = Floor(raising(AssertionError), deferred=deferred)
    tally = floor.run(make_record(0, b"a"), make_record(1, b"a"))

    assert floor.copies == [(SECOND, 0), (SECOND, 1)]
    assert (tally.deferred, tally.calls) == (2, 0)


def test_on_a_step_only_higher_steps_count():
    """Those of its own step are in line with it."""
    deferred, seen = DeferredKeys(), []
    for step in (1, 1, 1):
        deferred.joined(0, b"a", step)
    deferred.joined(0, b"b", 2)
    floor = Floor(failing(seen=seen), step=1, deferred=deferred)
    floor.run(waiting(0, b"a"), waiting(1, b"b"), waiting(2, b"a"))

    assert seen == [(0, 2), (2, 2)]
    assert floor.copies == [(SECOND, 1)]


def test_a_partition_in_order_waits_as_a_whole():
    """Records without a key too, since they are in order here; the other partition goes on."""
    seen = []
    floor = Floor(failing(0, seen=seen), order="partition")
    floor.run(make_record(0, b"a"), make_record(1, None), make_record(2, b"b"), make_record(7, b"a", partition=1))

    assert sorted(seen) == [(0, 1), (7, 1)]
    assert floor.copies == [(FIRST, 0), (FIRST, 1), (FIRST, 2)]
    assert [copy["partition"] for copy in floor.sender.acked] == [0, 0, 0]


def by_customer(record):
    """One value for all, whatever their keys and partitions."""
    return "customer"


def mixed(*partitions, first=0):
    """Records of one customer, read from these partitions in this order."""
    return [make_record(first + index, partition=partition) for index, partition in enumerate(partitions)]


each_or_many = pytest.mark.parametrize("pace", [0.0, 1e-9], ids=["one a turn", "many a turn"])


@each_or_many
def test_a_value_that_is_in_two_partitions_waits_in_one(pace):
    """Its records there go behind; those of the other partition are called, before them and after them."""
    deferred, seen = DeferredKeys(), []
    deferred.joined(1, "customer", 1)
    floor = Floor(failing(seen=seen), deferred=deferred, order_by=by_customer)
    floor.processor.pace = pace
    tally = floor.run(*mixed(0, 0, 1, 0, 1, 1, 0, 2))

    assert seen == [(0, 1), (1, 1), (3, 1), (6, 1), (7, 1)]
    assert floor.copies == [(FIRST, 2), (FIRST, 4), (FIRST, 5)]
    assert [copy["partition"] for copy in floor.sender.acked] == [1, 1, 1]
    assert (tally.handled, tally.deferred, len(deferred)) == (5, 3, 1)


@each_or_many
def test_a_value_waits_on_another_step_in_each_partition(pace):
    """Each record goes behind those of its own partition."""
    deferred = DeferredKeys()
    deferred.joined(0, "customer", 2)
    deferred.joined(1, "customer", 1)
    deferred.joined(2, "customer", 1)
    floor = Floor(raising(AssertionError), deferred=deferred, order_by=by_customer)
    floor.processor.pace = pace
    floor.run(*mixed(0, 1, 2, 0, 0, 1))

    assert floor.copies == [(SECOND, 0), (FIRST, 1), (FIRST, 2), (SECOND, 3), (SECOND, 4), (FIRST, 5)]


def test_a_value_that_fails_in_one_partition_waits_there_only():
    """What joins and leaves does so in the partition where it was read."""
    seen = []
    tower = Tower(failing(0, times=1, seen=seen), order_by=by_customer)
    low, high, _ = tower.run(*mixed(1, 0, 1, 0))

    assert [call for call in seen if call[0] in (0, 2)] == [(0, 1), (0, 2), (2, 1)]
    assert (low.handled, low.deferred, high.handled) == (2, 2, 2)
    assert len(tower.deferred) == 0


def test_a_copy_that_is_turned_back_leaves_its_own_partition():
    """Those behind the one that waits in another partition still queue."""
    deferred, seen = DeferredKeys(), []
    deferred.joined(0, "customer", 1)
    floor = Floor(failing(0, seen=seen), deferred=deferred, order_by=by_customer, answers=[MessageTooLargeError("x")])
    floor.run(*mixed(1, 0, 1))

    assert seen == [(0, 1), (2, 1)]
    assert floor.copies == [(ERROR, 0), (FIRST, 1)]
    assert (deferred.behind(0, "customer", 0), deferred.behind(1, "customer", 0)) == (1, None)


def test_what_is_left_of_a_turn_stays_in_line_and_is_taken_again():
    """Only those that share an answer are taken; none is lost, and none is counted as ready while they are out."""
    deferred = DeferredKeys()
    deferred.joined(1, "customer", 1)
    floor = Floor(deferred=deferred, order_by=by_customer)
    floor.processor.pace = 1e-9
    floor.sender.is_silent = True
    floor.processor.admit(mixed(0, 0, 1, 1, 0))
    turn = floor.processor.take()
    assert [[record.offset for record in queue.work()] for queue in turn] == [[0, 1]]
    assert (floor.processor.steps[0].scheduler.records, floor.processor.steps[0].scheduler.ready) == (5, 0)
    assert floor.processor.take() is None

    floor.processor.settle(turn, floor.work(turn))
    assert (floor.processor.steps[0].scheduler.records, floor.processor.steps[0].scheduler.ready) == (3, 3)
    assert floor.processor.take() is None
    assert (floor.processor.lanes.busy, floor.processor.steps[0].ledger.outstanding, floor.processor.can_start) == (
        0,
        3,
        False,
    )
    floor.sender.is_silent = False
    floor.run()
    assert floor.copies == [(FIRST, 2), (FIRST, 3)]


def test_a_batch_takes_the_records_of_a_value_up_to_the_first_that_waits():
    """The ones behind it come in a later batch, with nothing of another partition left out."""
    deferred, seen = DeferredKeys(), []
    deferred.joined(1, "customer", 1)
    floor = Floor(marking({}, seen), deferred=deferred, kind="batch", size=8, order_by=by_customer)
    floor.processor.is_closing = True
    tally = floor.run(*mixed(0, 0, 1, 0, 0))

    assert seen == [[(0, 1), (1, 1)], [(3, 1), (4, 1)]]
    assert floor.copies == [(FIRST, 2)]
    assert (tally.handled, tally.deferred) == (4, 1)


@each_or_many
def test_records_that_are_read_again_run_where_they_are_in_each_partition(pace):
    """Those older than all that wait in their partition are called, the others go behind."""
    deferred, seen = DeferredKeys(), []
    deferred.load([waiting(1), waiting(5, partition=1)], 1, by_customer, "orders")
    floor = Floor(failing(seen=seen), deferred=deferred, order_by=by_customer)
    floor.processor.pace = pace
    floor.run(*mixed(0, 0, 1, 1, 0, 1, 1))

    assert seen == [(0, 1), (2, 1), (3, 1)]
    assert floor.copies == [(FIRST, 1), (FIRST, 4), (FIRST, 5), (FIRST, 6)]


def test_a_partition_that_is_forgotten_holds_nobody_up():
    """Given back with nothing waiting, its keys are called at once; what ends late there changes nothing."""
    deferred, seen = DeferredKeys(), []
    deferred.joined(0, b"k", 1)
    deferred.joined(1, b"k", 1)
    floor = Floor(failing(seen=seen), deferred=deferred)
    deferred.forget(1)
    floor.run(make_record(0, partition=0), make_record(1, partition=1))

    assert seen == [(1, 1)]
    assert floor.copies == [(FIRST, 0)]


def test_a_copy_is_where_it_was_read_whatever_it_says():
    """Once on a step, it leaves the partition it was read from, and goes up in that one."""
    deferred = DeferredKeys()
    deferred.joined(1, b"k", 1)
    floor = Floor(raising(ValueError()), step=1, deferred=deferred)
    record = waiting(0, partition=1)
    record.headers = [(name, b"5" if name == "laneway-origin-partition" else value) for name, value in record.headers]
    floor.run(record)

    assert [copy["partition"] for copy in floor.sender.acked] == [1]
    assert (deferred.behind(1, b"k", 0), deferred.behind(1, b"k", 1), len(deferred)) == (2, 2, 1)


def test_without_order_nobody_waits():
    """There is nothing to keep, so a ladder in ordered mode is one of topics."""
    seen = []
    floor = Floor(failing(0, seen=seen), order="none")
    floor.run(make_record(0), make_record(1))

    assert sorted(seen) == [(0, 1), (1, 1)]
    assert len(floor.deferred) == 0


@pytest.mark.parametrize("mode", ["unordered", "blocking"])
def test_a_backlog_is_for_park_mode_only(mode):
    """In another mode a key goes on, whatever waits."""
    deferred, seen = DeferredKeys(), []
    deferred.joined(0, b"k", 1)
    floor = Floor(failing(seen=seen), deferred=deferred, retry=Retry.steps("5s", "1m", mode=mode))
    floor.run(make_record(0))

    assert seen == [(0, 1)]


def test_a_key_is_out_until_its_copies_are_safe():
    """The record behind is not even copied before: its copy could come to the topic first."""
    floor = Floor(failing(0))
    floor.sender.is_silent = True
    floor.processor.admit([make_record(0), make_record(1)])
    floor.turn()
    assert floor.processor.take() is None
    assert len(floor.sender.sent) == 1
    assert floor.processor.steps[0].ledger.committable(0) == 0

    floor.sender.is_silent = False
    floor.processor.tick()
    floor.sender.is_silent = True
    assert floor.processor.steps[0].ledger.committable(0) == 1
    assert floor.processor.take() is None
    assert len(floor.sender.sent) == 2
    floor.processor.tick()
    assert floor.processor.steps[0].ledger.committable(0) == 1
    assert not floor.processor.is_done


def test_a_key_is_free_when_its_last_record_has_ended():
    """From then on it is called again at once, also while the copy of a follower was on its way."""
    seen = []
    tower = Tower(failing(0, times=1, seen=seen))
    first, second, _ = tower.run(make_record(0), make_record(1))
    assert seen == [(0, 1), (0, 2), (1, 1)]
    assert (first.deferred, second.handled, len(tower.deferred)) == (2, 2, 0)

    tower.run(make_record(2))
    assert seen[3:] == [(2, 1)]


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_a_record_climbs_to_the_error_topic(attempts):
    """It gets its calls on each step, counts them in all, and the ones behind it come after it in their order."""
    seen = []
    retry = Retry.steps("5s", "1m", mode="ordered", attempts=attempts, backoff="1ms")
    tower = Tower(failing(0, seen=seen), retry=retry)
    tallies = tower.run(make_record(0, timestamp=77), make_record(1), make_record(2))
    calls = 3 * attempts

    assert seen == [*((0, attempt) for attempt in range(1, calls + 1)), (1, 1), (2, 1)]
    assert [tally.deferred for tally in tallies] == [3, 3, 0]
    assert [tally.parked for tally in tallies] == [0, 0, 1]
    assert [tally.retried for tally in tallies] == [attempts - 1] * 3
    assert len(tower.deferred) == 0


def test_keys_climb_on_their_own():
    """A slow key holds up no other, on no step."""
    seen = []
    tower = Tower(failing(0, 3, times=1, seen=seen))
    tower.run(make_record(0, b"a"), make_record(1, b"b"), make_record(2, b"a"), make_record(3, b"b"))

    assert seen[:3] == [(0, 1), (1, 1), (3, 1)]
    assert [offset for offset, _ in seen if offset in (0, 2)] == [0, 0, 2]
    assert [offset for offset, _ in seen if offset in (1, 3)] == [1, 3, 3]


@pytest.mark.parametrize(
    ("function", "ends"),
    [
        (lambda record: None, "handled"),
        (raising(Skip()), "skipped"),
        (raising(Reject()), "parked"),
        (raising(ValueError()), "parked"),
        (lambda record: Message(Topic("out"), b"x"), "handled"),
    ],
)
def test_a_record_leaves_its_step_when_it_has_ended(function, ends):
    """However it ends, and not before that is durable."""
    deferred = DeferredKeys()
    deferred.joined(0, b"k", 2)
    floor = Floor(function, step=2, deferred=deferred)
    floor.sender.is_silent = True
    floor.processor.admit([waiting(0, step=2, calls=2)])
    floor.turn()
    floor.processor.tick()
    is_safe = floor.processor.steps[0].ledger.outstanding == 0
    assert (deferred.behind(0, b"k", 0) is None) == is_safe

    floor.sender.is_silent = False
    tally = floor.run()
    assert getattr(tally, ends) == 1
    assert len(deferred) == 0


def test_a_record_that_goes_up_is_never_off_the_backlog():
    """It has joined the next step before it leaves its own, and its own until the copy is safe."""
    deferred = DeferredKeys()
    deferred.joined(0, b"k", 1)
    floor = Floor(raising(ValueError()), step=1, deferred=deferred, answers=[ProduceError("down")])
    floor.processor.admit([waiting(0)])
    floor.turn()
    assert (deferred.behind(0, b"k", 0), deferred.behind(0, b"k", 1)) == (1, 2)
    floor.processor.tick()
    assert (deferred.behind(0, b"k", 0), deferred.behind(0, b"k", 1)) == (1, 2)

    floor.run()
    assert (deferred.behind(0, b"k", 0), deferred.behind(0, b"k", 1)) == (2, 2)


def test_a_copy_may_be_dealt_with_before_its_acknowledgement_is_here():
    """Once, its key was then taken to wait for ever, and every later record of it took the long way."""
    seen = []
    tower = Tower(failing(0, times=1, seen=seen))
    low, high, _ = tower.floors
    low.sender.is_silent = True
    low.processor.admit([make_record(0)])
    low.turn()
    (copy,) = low.sender.sent
    high.processor.admit([as_read(copy, high)])
    high.turn()
    assert (seen, len(tower.deferred)) == ([(0, 1), (0, 2)], 0)

    low.sender.is_silent = False
    low.processor.tick()
    assert len(tower.deferred) == 0


def test_what_is_too_large_for_a_retry_topic_holds_nobody_up():
    """It is parked instead, and the next record of its key is called."""
    seen = []
    floor = Floor(failing(0, seen=seen), answers=[MessageTooLargeError("x")])
    tally = floor.run(make_record(0), make_record(1))

    assert seen == [(0, 1), (1, 1)]
    assert (floor.copies, tally.parked, len(floor.deferred)) == ([(ERROR, 0)], 1, 0)


def test_a_turn_that_only_goes_behind_takes_no_lane():
    """With one lane for each partition, the keys that may run are called in the same moment."""
    deferred, seen = DeferredKeys(), []
    deferred.joined(0, b"a", 1)
    floor = Floor(failing(seen=seen), deferred=deferred, strict=True)
    floor.sender.is_silent = True
    floor.processor.admit([make_record(0, b"a"), make_record(1, b"b"), make_record(2, b"a")])

    assert floor.turn()
    assert seen == [(1, 1)]
    assert floor.processor.lanes.busy == 0
    floor.sender.is_silent = False
    floor.run()
    assert floor.copies == [(FIRST, 0), (FIRST, 2)]


def test_followers_on_their_way_take_room():
    """They are in memory until they are safe."""
    deferred = DeferredKeys()
    deferred.joined(0, b"k", 1)
    floor = Floor(deferred=deferred, buffer=Buffer(2))
    floor.sender.is_silent = True
    floor.processor.admit([make_record(0), make_record(1)])
    floor.processor.take()
    floor.processor.tick()

    assert floor.processor.room == 0
    floor.sender.is_silent = False
    floor.run()
    assert floor.processor.room == 2


def marking(fates, seen):
    """A batch handler that marks members by origin for as many attempts as told."""

    def handle(batch):
        offsets = [record.offset if record.origin is None else record.origin.offset for record in batch]
        seen.append([(offset, record.attempt) for offset, record in zip(offsets, batch, strict=True)])
        for offset, record in zip(offsets, batch, strict=True):
            fate, attempts = fates.get(offset, ("", 0))
            if record.attempt <= attempts:
                getattr(batch, fate)(record)

    return handle


def test_a_batch_goes_without_the_keys_that_wait():
    """They go behind, the others are called at once, however few they are."""
    deferred, seen = DeferredKeys(), []
    deferred.joined(0, b"a", 1)
    floor = Floor(marking({}, seen), deferred=deferred, kind="batch", size=4)
    floor.processor.is_closing = True
    tally = floor.run(*(make_record(offset, key) for offset, key in enumerate([b"a", b"b", None, b"a"])))

    assert seen == [[(1, 1), (2, 1)]]
    assert floor.copies == [(FIRST, 0), (FIRST, 3)]
    assert (tally.handled, tally.deferred) == (2, 2)


def test_a_batch_that_goes_behind_as_a_whole_wakes_nobody():
    """Once, the moment when it was due stayed the next one to wake up at, and the runner never slept again."""
    deferred = DeferredKeys()
    deferred.joined(0, b"a", 1)
    floor = Floor(deferred=deferred, kind="batch", size=4, within=timedelta(seconds=2))
    floor.sender.is_silent = True
    floor.processor.admit([make_record(0, b"a")])
    assert floor.processor.take() is None
    floor.clock.advance(2)

    assert floor.processor.take() is None
    assert len(floor.sender.sent) == 1
    assert floor.processor.next_wake is None


def test_a_member_that_waits_is_followed_by_the_later_ones_of_its_key():
    """In the same batch they count as handled before it; after that they queue."""
    seen = []
    floor = Floor(marking({0: ("retry", 9)}, seen), kind="batch", size=2)
    floor.processor.is_closing = True
    tally = floor.run(*(make_record(offset) for offset in range(4)))

    assert seen == [[(0, 1), (1, 1)]]
    assert floor.copies == [(FIRST, 0), (FIRST, 2), (FIRST, 3)]
    assert (tally.handled, tally.deferred) == (1, 3)


def test_a_member_that_was_to_be_tried_again_keeps_its_calls_when_it_goes_behind():
    """An earlier one of its key had used up its attempts in the meantime."""
    seen = []
    retry = Retry.steps("5s", "1m", mode="ordered", attempts=2, backoff="1s", jitter=0)
    floor = Floor(marking({0: ("retry", 9), 1: ("retry", 9)}, seen), kind="batch", size=2, retry=retry)
    floor.processor.is_closing = True
    floor.processor.admit([make_record(0)])
    floor.turn()
    tally = floor.run(make_record(1))
    told = [dict(copy["headers"])["laneway-attempts"] for copy in floor.sender.acked]

    assert seen == [[(0, 1)], [(0, 2), (1, 1)]]
    assert (floor.copies, told) == ([(FIRST, 0), (FIRST, 1)], [b"2", b"1"])
    assert (tally.retried, tally.deferred) == (2, 2)


def test_members_are_judged_by_their_calls_on_this_step():
    """Once, two with the same attempt shared a verdict, though one had made more of these calls on earlier steps."""
    seen = []
    retry = Retry.steps("5s", "1m", mode="unordered", attempts=2, backoff="1s", jitter=0)

    def handle(batch):
        seen.append([(record.origin.offset, record.attempt) for record in batch])
        raise ValueError("planted")

    floor = Floor(handle, step=1, kind="batch", size=2, retry=retry)
    floor.processor.is_closing = True
    floor.processor.admit([waiting(0, calls=1)])
    floor.turn()
    floor.processor.admit([waiting(1, calls=2)])
    tally = floor.run()

    assert seen == [[(0, 2)], [(0, 3), (1, 3)], [(1, 4)]]
    assert (tally.retried, tally.deferred) == (2, 2)


def unique(seen, fails=()):
    def handle(batch):
        seen.append([record.offset % 1000 for record in batch])
        for record in batch:
            if record.offset % 1000 in fails:
                batch.retry(record)

    return handle


def test_the_newest_record_waits_for_those_that_it_supersedes():
    """They are finished when its copy is safe; those that come later queue behind it."""
    seen = []
    floor = Floor(unique(seen, fails={2}), kind="unique", size=3)
    floor.processor.is_closing = True
    floor.processor.admit([make_record(offset) for offset in range(3)])
    floor.sender.is_silent = True
    floor.turn()
    assert floor.processor.steps[0].ledger.outstanding == 3

    floor.sender.is_silent = False
    tally = floor.run(make_record(3), make_record(4))
    assert seen == [[2]]
    assert floor.copies == [(FIRST, 2), (FIRST, 3), (FIRST, 4)]
    assert (tally.superseded, tally.deferred, tally.finished) == (2, 3, 5)


def test_superseded_records_leave_their_step():
    """On the retry topic the newest one that queued supersedes the others."""
    deferred, seen = DeferredKeys(), []
    for _ in range(3):
        deferred.joined(0, b"k", 1)
    floor = Floor(unique(seen), step=1, deferred=deferred, kind="unique", size=3)
    floor.processor.is_closing = True
    tally = floor.run(*(waiting(offset) for offset in range(3)))

    assert seen == [[2]]
    assert (tally.superseded, tally.handled, len(deferred)) == (2, 1, 0)


def test_a_record_comes_back_as_it_was():
    """With its first timestamp, from which its latency counts, and the calls it has had."""
    seen = []

    def handle(record):
        seen.append((record.origin, record.timestamp, record.before, record.attempt, record.topic))

    floor = Floor(handle, step=1)
    began = int(floor.clock.wall() * 1000) - 7_000
    record = waiting(42, timestamp=began)
    record.timestamp = began + 1_000
    tally = floor.run(record)

    assert seen == [(("orders", 0, 42), began, 1, 2, FIRST)]
    assert tally.percentile(50) == pytest.approx(7_000, rel=0.05)
    assert (tally.invalid_headers, tally.early_due) == (0, 0)


def test_a_record_with_headers_that_cannot_be_true_is_run_and_counted():
    """It gets the calls of this step and no more: then it is parked."""
    seen = []
    floor = Floor(failing(1000, seen=seen), step=2, retry=Retry.steps("5s", "1m", mode="ordered", attempts=2))
    record = make_record(1000, topic=SECOND, headers=[("laneway-attempts", b"-7")])
    tally = floor.run(record)

    assert seen == [(1000, 5), (1000, 6)]
    assert (tally.invalid_headers, tally.parked) == (1, 1)
    assert floor.copies == [(ERROR, 1000)]


@pytest.mark.parametrize(("ahead", "expected"), [(-5_000, 0), (-4_500, 0), (-4_000, 0), (-3_000, 1), (3_600_000, 1)])
def test_a_record_that_is_run_before_its_time_is_counted(ahead, expected):
    """A second is what clocks may differ; beyond that its timestamp says later than it may wait."""
    floor = Floor(step=1)
    record = waiting(0)
    record.timestamp = int(floor.clock.wall() * 1000) + ahead

    assert expected == floor.run(record).early_due


def test_the_rows_of_a_table_climb_too():
    """They count the calls on earlier steps, and go to the next topic."""
    floor = Floor(kind="columnar", step=1, retry=Retry.steps("5s", "1m", attempts=2))
    records = [waiting(0, calls=2), waiting(1, calls=1)]
    for record in records:
        record.attempt = 2
        floor.processor.steps[0].ledger.see(0, [record.offset])
    floor.processor.copy_rows(records, ValueError("planted"), 2)
    floor.processor.tick()
    told = [dict(copy["headers"])["laneway-attempts"] for copy in floor.sender.acked]

    assert (floor.copies, told) == ([(SECOND, 0), (SECOND, 1)], [b"4", b"3"])
    assert floor.processor.close().deferred == 2


def test_rows_that_are_parked_from_a_step_know_their_origin():
    """As single records do."""
    floor = Floor(kind="columnar", step=2, retry=Retry.steps("5s", "1m"))
    record = waiting(7, step=2, calls=2)
    floor.processor.steps[0].ledger.see(0, [record.offset])
    floor.processor.copy_rows([record], ValueError("planted"), ERROR_TOPIC)
    floor.processor.tick()

    assert floor.copies == [(ERROR, 7)]
    assert floor.processor.close().parked == 1
