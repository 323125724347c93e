"""Who may run now, by example; the state machine in tests/properties tries everything else."""

from __future__ import annotations

from laneway._core.scheduler import Lanes, Scheduler, StrictScheduler
from support.core import make_record


def push(scheduler, *keys, partition=0):
    records = [make_record(number, key, partition=partition) for number, key in enumerate(keys)]
    scheduler.push(records, keys, [partition] * len(keys))
    return records


def keys_of(turn):
    return [queue.key for queue in turn]


def test_a_free_lane_takes_the_key_that_waited_longest():
    """Keys come in the order in which they became ready."""
    scheduler = Scheduler(Lanes(3))
    push(scheduler, b"a", b"b", b"c")

    assert [keys_of(scheduler.take(1)) for _ in range(3)] == [[b"a"], [b"b"], [b"c"]]


def test_a_turn_takes_several_keys():
    """A turn goes on with the next key while it has room, and stops in the middle of a key when it is full."""
    scheduler = Scheduler(Lanes(1))
    push(scheduler, b"a", b"b", b"b", b"b")
    turn = scheduler.take(3)

    assert [queue.taken for queue in turn] == [1, 2]


def test_an_empty_key_is_a_key():
    """Records with an empty key wait for each other; records without one do not."""
    scheduler = Scheduler(Lanes(4))
    push(scheduler, b"", b"", None, None)
    turns = [scheduler.take(1) for _ in range(4)]

    assert [turn[0].key for turn in turns if turn] == [b"", None, None]


def test_a_key_that_is_out_is_not_taken_again():
    """What arrives for a key in work waits behind it."""
    scheduler = Scheduler(Lanes(2))
    push(scheduler, b"a")
    turn = scheduler.take(5)
    push(scheduler, b"a")

    assert scheduler.take(5) is None
    assert scheduler.ready == 0
    scheduler.settle(turn[0], 1)
    scheduler.end_turn(turn)
    assert scheduler.ready == 1


def test_a_postponed_key_comes_first_when_its_time_has_come():
    """A retry is due before keys that have not been tried."""
    scheduler = Scheduler(Lanes(1))
    push(scheduler, b"a", b"b")
    turn = scheduler.take(1)
    scheduler.advance(turn[0], 0)
    scheduler.postpone(turn[0], until=5.0)
    scheduler.end_turn(turn)

    assert scheduler.wake(4.9) == 0
    assert scheduler.wake(5.0) == 1
    assert keys_of(scheduler.take(1)) == [b"a"]


def test_two_keys_postponed_to_the_same_time_come_in_order():
    """A tie falls to neither a comparison of queues nor an error."""
    scheduler = Scheduler(Lanes(2))
    push(scheduler, b"a", b"b")
    for turn in (scheduler.take(1), scheduler.take(1)):
        scheduler.advance(turn[0], 0)
        scheduler.postpone(turn[0], until=1.0)
        scheduler.end_turn(turn)

    assert scheduler.next_wake == 1.0
    assert scheduler.wake(1.0) == 2


def test_items_that_are_kept_stay_at_the_head_of_their_key():
    """The others of the turn are finished with; what waits behind stays behind."""
    scheduler = Scheduler(Lanes(1))
    records = push(scheduler, *[b"a"] * 6)
    turn = scheduler.take(4)
    scheduler.advance(turn[0], [records[1], records[3]])

    assert turn[0].items[:2] == [records[1], records[3]]
    assert (scheduler.records, scheduler.size, scheduler.ready) == (4, sum(r.size for r in records[:4]), 0)
    scheduler.postpone(turn[0], until=1.0)
    scheduler.end_turn(turn)
    scheduler.wake(1.0)
    assert scheduler.ready == 4
    assert scheduler.take(9)[0].work() == [records[1], records[3], records[4], records[5]]


def test_items_are_kept_while_others_arrive():
    """A key that waits for its copies goes on with what was kept, then with what came meanwhile."""
    scheduler = Scheduler(Lanes(1))
    first = push(scheduler, b"a", b"a", b"a")
    turn = scheduler.take(1)
    scheduler.settle(turn[0], 1)
    scheduler.end_turn(turn)
    turn = scheduler.take(2)
    scheduler.end_turn(turn)
    later = push(scheduler, b"a")
    scheduler.advance(turn[0], first[2:])
    scheduler.settle(turn[0], 0)

    assert scheduler.records == 2
    assert scheduler.take(9)[0].work() == [first[2], *later]


def test_keeping_all_items_changes_nothing():
    """A batch that failed as a whole is tried again as it was."""
    scheduler = Scheduler(Lanes(1))
    records = push(scheduler, None, b"a", b"a")
    free, queue = scheduler.take(3)
    scheduler.advance(free, records[:1])
    scheduler.advance(queue, records[1:])

    assert (free.items, queue.items) == (records[:1], records[1:])
    assert (scheduler.records, scheduler.size) == (3, sum(record.size for record in records))


def test_a_strict_partition_keeps_to_its_lanes():
    """A partition with all of its lanes in use waits while another one goes on."""
    scheduler = StrictScheduler(Lanes(4, per_partition=1))
    push(scheduler, b"a", b"b", partition=0)
    push(scheduler, b"c", partition=1)
    first, second = scheduler.take(1), scheduler.take(1)

    assert keys_of(first) == [b"a"]
    assert keys_of(second) == [b"c"]
    assert scheduler.take(1) is None
    scheduler.settle(first[0], 1)
    scheduler.end_turn(first)
    assert keys_of(scheduler.take(1)) == [b"b"]


def test_a_strict_turn_looks_past_other_partitions():
    """A turn gathers the keys of one partition from between those of others, which keep their places."""
    scheduler = StrictScheduler(Lanes(4, per_partition=1))
    for partition, key in ((0, b"a"), (1, b"b"), (0, b"c"), (1, b"d")):
        push(scheduler, key, partition=partition)

    assert keys_of(scheduler.take(9)) == [b"a", b"c"]
    assert keys_of(scheduler.take(9)) == [b"b", b"d"]


def test_a_strict_lane_does_not_idle_while_a_key_was_held_back():
    """Once, keys given back one for each lane went into a single turn, and the next lane found nothing."""
    scheduler = StrictScheduler(Lanes(4, per_partition=2))
    push(scheduler, b"a", b"b", b"c", b"d", b"e", b"f")
    turns = [scheduler.take(1), scheduler.take(1)]
    assert scheduler.take(1) is None  # c to f are held back
    for turn in turns:
        scheduler.settle(turn[0], 1)
        scheduler.end_turn(turn)

    assert keys_of(scheduler.take(9)) == [b"c", b"d"]
    assert keys_of(scheduler.take(9)) == [b"e"]


def test_finished_items_are_let_go():
    """A long line of one key does not keep its finished records in memory."""
    scheduler = Scheduler(Lanes(1))
    push(scheduler, *[b"a"] * 100)
    for _ in range(60):
        turn = scheduler.take(1)
        scheduler.settle(turn[0], 1)
        scheduler.end_turn(turn)

    assert scheduler.records == 40
    assert len(turn[0].items) <= 80
    assert len(turn[0].items) - turn[0].start == 40


def test_there_is_always_a_lane():
    """Zero lanes means one record at a time."""
    assert Scheduler(Lanes(0)).lanes.total == 1


def test_what_waits_for_its_partition_goes_on_when_the_one_before_it_is_dropped():
    """With strict lanes: the key that was next in line is gone, and the one behind it is as ready."""
    scheduler = StrictScheduler(Lanes(3, 1))
    items = push(scheduler, b"a", b"b", b"c")
    turn = scheduler.take(1)
    assert scheduler.take(1) is None
    scheduler.settle(turn[0], 1)
    scheduler.end_turn(turn)
    assert scheduler.drop(lambda item: item is items[1]) == 1

    (queue,) = scheduler.take(1)
    assert queue.key == b"c"


def test_a_held_key_continues_when_the_last_one_has_arrived():
    """Not before; and not before its time, if it has one."""
    scheduler = Scheduler(Lanes(1))
    push(scheduler, b"a", b"a")
    (queue,) = turn = scheduler.take(1)
    scheduler.advance(queue, 1)
    scheduler.hold(queue, 2, until=5.0)
    scheduler.end_turn(turn)
    scheduler.arrived(queue)
    assert (scheduler.take(1), scheduler.next_wake) == (None, None)
    scheduler.arrived(queue)
    assert (scheduler.take(1), scheduler.next_wake) == (None, 5.0)
    scheduler.wake(5.0)
    assert keys_of(scheduler.take(1)) == [b"a"]


def test_what_waits_behind_a_held_key_can_be_dropped():
    """Its partition is given away: nothing is left to continue with, and a later record begins at once."""
    scheduler = Scheduler(Lanes(1))
    push(scheduler, b"a", b"a")
    (queue,) = turn = scheduler.take(1)
    scheduler.advance(queue, 1)
    scheduler.hold(queue, 1)
    scheduler.end_turn(turn)
    assert scheduler.drop(lambda item: True) == 1
    scheduler.arrived(queue)
    assert (scheduler.is_idle, scheduler.queue_of(b"a")) == (True, None)
    push(scheduler, b"a")
    assert keys_of(scheduler.take(1)) == [b"a"]
