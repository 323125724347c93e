"""A processor whose partitions come and go: what is released, fenced, late, drained, and opened again."""

from __future__ import annotations

import pytest

from laneway import Ack, Message, Retry, Topic
from laneway._core.call import Call
from laneway._core.deferred_keys import DeferredKeys
from laneway._core.processor import Processor
from laneway._core.state import Close, Drain, Open, Release
from laneway._runtime.lease import Lease
from laneway.errors import ProduceError
from support.core import FakeClock, FakeSender, make_record, make_route

OUT = Topic("out")


class Bench:
    """A processor with its clock, sender and handler; a test begins and ends its turns."""

    def __init__(self, function=None, *, lanes=4, step=0, **fields):
        self.clock, self.sender = FakeClock(), FakeSender()
        self.route = make_route(function, lanes=lanes, **fields)
        self.deferred = DeferredKeys()
        self.processor = Processor(
            [self.route], "billing", lanes=lanes, sender=self.sender, clock=self.clock, deferred=self.deferred
        )
        self.call = Call(self.route, self.clock)
        self.calls = []

    def admit(self, offsets, *, epoch=1, partition=0, key=None):
        records = [make_record(offset, key or b"key-%d" % offset, partition=partition) for offset in offsets]
        for record in records:
            record.epoch = epoch
        self.processor.admit(records)

    def end(self, turn):
        """Run the handler over a turn that was taken before, and settle it."""
        self.calls += [record.offset for queue in turn for record in queue.work()]
        self.processor.settle(turn, (self.call.batch if self.route.is_batch else self.call.single)(turn))

    def run(self, seconds=0.0):
        """Everything that can be run within so many seconds."""
        until = self.clock.now + seconds
        while True:
            self.processor.tick()
            while (turn := self.processor.take()) is not None:
                self.end(turn)
            if self.clock.now >= until:
                self.processor.tick()
                return
            self.clock.advance(0.1)

    def lose(self, partition=0, epoch=1):
        """As the member does when the group has given a partition away already."""
        self.processor.fence("orders", partition, epoch)
        self.processor.post(Close("orders", partition))

    def give_back(self, partition=0):
        self.processor.post(Release("orders", partition))
        self.processor.tick()

    def open(self, partition=0):
        self.processor.post(Open("orders", partition))

    def begin(self, count):
        turns = [self.processor.take() for _ in range(count)]
        assert all(turns)
        return turns


def failing(_):
    raise ConnectionError("planted")


def posting(_):
    return Message(OUT, b"made")


# --- release ---------------------------------------------------------------------------------------------------------


def test_a_released_partition_begins_nothing_more():
    """What no lane had begun is the next owner's; other partitions go on."""
    bench = Bench()
    bench.admit(range(10))
    bench.admit(range(5), partition=1)
    begun = bench.begin(2)
    bench.give_back()
    for turn in begun:
        bench.end(turn)
    bench.run()

    assert sorted(bench.calls) == [0, 0, 1, 1, 2, 3, 4]
    assert bench.processor.steps[0].ledger.committable(0) == 2
    assert bench.processor.steps[0].ledger.committable(1) == 5


def test_a_partition_is_drained_when_all_that_was_begun_has_ended():
    """Not before the last call has ended, and then at once, although others of it stay unfinished."""
    bench = Bench()
    bench.admit(range(10))
    begun = bench.begin(3)
    assert not bench.processor.steps[0].is_drained(0)
    bench.give_back()
    for turn in begun:
        assert not bench.processor.steps[0].is_drained(0)
        bench.end(turn)

    assert bench.processor.steps[0].is_drained(0)


def test_a_partition_without_records_is_drained_as_soon_as_it_is_released():
    """A release of what was never read is not waited for."""
    bench = Bench()
    assert not bench.processor.steps[0].is_drained(3)
    bench.give_back(3)

    assert bench.processor.steps[0].is_drained(3)


def test_copies_on_their_way_are_waited_for():
    """A record that failed is begun until its copy is safe."""
    bench = Bench(failing)
    bench.admit([0, 1])
    bench.sender.is_silent = True
    (turn,) = bench.begin(1)
    bench.end(turn)
    bench.give_back()
    assert not bench.processor.steps[0].is_drained(0)
    bench.sender.is_silent = False
    bench.processor.tick()

    assert bench.processor.steps[0].is_drained(0)
    assert bench.processor.steps[0].ledger.committable(0) == 1


def test_a_try_that_is_due_later_is_not_waited_for():
    """A record that fails while its partition is given back is the next owner's to try again."""
    bench = Bench(failing, retry=Retry(attempts=5, backoff="60s"))
    bench.admit(range(4))
    (turn,) = bench.begin(1)
    bench.give_back()
    bench.end(turn)

    assert bench.processor.steps[0].is_drained(0)
    bench.run(seconds=200)
    assert bench.calls == [0]
    assert bench.processor.steps[0].ledger.committable(0) == 0


def test_what_a_lane_gives_back_of_a_released_partition_is_not_begun():
    """A turn of many records that ends early leaves the rest to the next owner."""
    bench = Bench(lambda record: bench.clock.advance(1))
    bench.processor.pace = 1e-9
    bench.admit(range(40), key=b"one")
    (turn,) = bench.begin(1)
    assert len(turn[0].work()) > 10
    bench.give_back()
    result = bench.call.single(turn)
    result.done[0], rest = 5, result.handled[5:]
    result.handled = result.handled[:5]
    bench.processor.settle(turn, result)

    assert rest
    assert bench.processor.steps[0].is_drained(0)
    assert bench.processor.take() is None
    assert bench.processor.steps[0].ledger.committable(0) == 5


def test_records_that_arrive_after_the_release_are_left_out():
    """What was on its way to the processor is not admitted."""
    bench = Bench()
    bench.give_back()
    bench.admit([0, 1])
    bench.admit([0], partition=1)
    bench.run()

    assert bench.calls == [0]
    assert bench.processor.steps[0].ledger.snapshot(0) is None


# --- fence -----------------------------------------------------------------------------------------------------------


def test_late_results_count_for_nothing():
    """A record of a partition that was lost in the middle of its call is not finished here, and its key goes on."""
    bench = Bench()
    bench.admit([0, 1], key=b"one")
    bench.admit([7], partition=1, key=b"one")
    (turn,) = bench.begin(1)
    bench.lose()
    bench.end(turn)
    bench.run()

    assert bench.processor.steps[0].ledger.snapshot(0) is None
    assert bench.processor.steps[0].ledger.committable(1) == 8
    assert bench.processor.is_done


def test_late_failures_are_neither_parked_nor_tried_again():
    """The new owner has the record: a copy from here would be a second one."""
    for retry in (Retry(), Retry(attempts=9, backoff="1s"), Retry.steps("1s")):
        bench = Bench(failing, retry=retry)
        bench.admit([0])
        (turn,) = bench.begin(1)
        bench.lose()
        bench.end(turn)
        bench.run(seconds=30)

        assert bench.sender.sent == []
        assert bench.calls == [0]
        assert bench.processor.is_done


def test_late_messages_are_not_sent():
    """The new owner's call sends them."""
    bench = Bench(posting)
    bench.admit([0])
    (turn,) = bench.begin(1)
    bench.lose()
    bench.end(turn)
    bench.run()

    assert bench.sender.sent == []
    assert bench.processor.is_done


def test_an_acknowledgement_that_comes_after_the_fence_finishes_nothing():
    """A copy that was on its way when the partition was lost does not touch the ledger of the next ownership."""
    bench = Bench(failing)
    bench.admit([0])
    bench.sender.is_silent = True
    bench.run()
    bench.lose()
    bench.open()
    bench.admit([0], epoch=2)
    bench.sender.is_silent = False
    bench.processor.tick()

    assert bench.processor.steps[0].ledger.unfinished(0) == (0,)


def test_a_late_word_of_a_handler_that_acknowledges_by_hand_counts_for_nothing():
    """Neither its success nor its failure: no copy, no finish, and the key goes on."""
    acks: list[Ack] = []
    bench = Bench(lambda record, ack: acks.append(ack), is_manual=True)
    bench.admit([0, 1])
    bench.run()
    bench.lose()
    bench.open()
    bench.admit([0, 1], epoch=2)
    acks[0].done()
    acks[1].failed(ConnectionError("planted"))
    bench.run(seconds=2)

    assert bench.sender.sent == []
    assert bench.processor.steps[0].ledger.unfinished(0) == (0, 1)
    assert len(acks) == 4
    acks[2].done()
    acks[3].done()
    bench.run()
    assert bench.processor.steps[0].ledger.committable(0) == 2


def test_a_fence_holds_however_long_old_records_take_to_arrive():
    """Records that were read before the loss may wait in the intake while the processor has nothing to do."""
    bench = Bench()
    bench.admit([0])
    bench.run()
    bench.lose()
    for _ in range(3):
        bench.run(seconds=1)
    bench.admit([1, 2])
    bench.run()

    assert bench.calls == [0]
    assert bench.processor.steps[0].ledger.snapshot(0) is None


def test_old_records_that_arrive_in_a_new_ownership_are_left_out():
    """They will be read again, and would be seen twice."""
    bench = Bench()
    bench.admit([0])
    bench.run()
    bench.give_back()
    bench.lose()
    bench.open()
    bench.run(seconds=1)
    bench.admit([1, 2])
    bench.admit([1, 2, 3], epoch=2)
    bench.run()

    assert bench.calls == [0, 1, 2, 3]
    assert bench.processor.steps[0].ledger.committable(0) == 4


def test_a_batch_of_two_ownerships_finishes_only_what_is_ours():
    """Members of a partition that was lost are left out of a call's results; the others are finished."""
    bench = Bench(lambda batch: None, kind="batch", size=4)
    bench.admit([0, 1])
    bench.admit([5, 6], partition=1)
    (turn,) = bench.begin(1)
    bench.lose()
    bench.end(turn)
    bench.run()

    assert bench.processor.steps[0].ledger.snapshot(0) is None
    assert bench.processor.steps[0].ledger.committable(1) == 7


def test_members_of_a_failed_batch_are_judged_only_if_they_are_ours():
    """Those that are void are not parked."""
    bench = Bench(failing, kind="batch", size=4)
    bench.admit([0, 1])
    bench.admit([5, 6], partition=1)
    (turn,) = bench.begin(1)
    bench.lose()
    bench.end(turn)
    bench.run(seconds=1)

    assert len(bench.sender.sent) == 2
    assert bench.processor.steps[0].ledger.committable(1) == 7
    assert bench.processor.is_done


def test_a_key_runs_once_at_a_time_over_two_ownerships():
    """The call of the former ownership still runs when the record is read again: it waits for its end."""
    bench = Bench()
    bench.admit([0], key=b"one")
    (turn,) = bench.begin(1)
    bench.lose()
    bench.open()
    bench.admit([0, 1], epoch=2, key=b"one")
    assert bench.processor.take() is None
    bench.end(turn)
    bench.run()

    assert bench.calls == [0, 0, 1]
    assert bench.processor.steps[0].ledger.committable(0) == 2


def test_a_drop_of_old_records_does_not_pass_for_a_drain_of_new_ones():
    """Void records that come back in a new ownership are not counted as left behind by it."""
    bench = Bench()
    bench.processor.pace = 1e-9
    bench.admit(range(40), key=b"one")
    (old,) = bench.begin(1)
    bench.lose()
    bench.open()
    bench.processor.pace = 0
    bench.admit([0, 1], epoch=2)
    new = bench.begin(2)
    result = bench.call.single(old)
    result.done[0] = 5  # the rest comes back
    bench.processor.settle(old, result)
    bench.give_back()

    assert not bench.processor.steps[0].is_drained(0)
    for turn in new:
        bench.end(turn)
    assert bench.processor.steps[0].is_drained(0)


# --- forget and open -------------------------------------------------------------------------------------------------


def test_a_partition_that_comes_back_begins_anew():
    """Offsets that were seen in the former ownership are read again without complaint."""
    bench = Bench()
    bench.admit(range(10))
    begun = bench.begin(2)
    bench.give_back()
    for turn in begun:
        bench.end(turn)
    bench.lose()
    bench.open()
    bench.admit(range(2, 10), epoch=2)
    bench.run()

    assert sorted(bench.calls) == list(range(10))
    assert bench.processor.steps[0].ledger.committable(0) == 10
    assert not bench.processor.steps[0].is_drained(0)


def test_only_the_lowest_step_forgets_what_waits():
    """Steps share the deferred: one that is late must not forget what the new ownership has loaded."""
    bench = Bench(retry=Retry.steps("1s", mode="ordered"))
    higher = Processor(
        [bench.route.at_step("billing", 1)], "billing", lanes=1, sender=bench.sender, clock=bench.clock,
        deferred=bench.deferred,
    )  # fmt: skip
    bench.deferred.joined(0, b"key", 1)
    higher.post(Close("orders.billing.retry.1", 0))
    higher.obey()
    assert bench.deferred.behind(0, b"key", 0) == 1
    bench.processor.post(Close("orders", 0))
    bench.processor.obey()
    assert bench.deferred.behind(0, b"key", 0) is None


# --- drain -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_wound_up_desk_leaves_no_hole(ends):
    """When all that was begun has ended, the finished records are the first ones: the commit needs no map."""
    bench = Bench(lanes=3)
    bench.admit([0, 3], key=b"a")
    bench.admit([4], key=b"b")
    bench.admit([5, 6], key=b"a")
    bench.admit([7, 8, 9], key=b"c")
    begun = bench.begin(3)
    bench.processor.post(Drain())
    bench.processor.tick()
    for number in ends:
        bench.end(begun[number])
    bench.run()

    end, unfinished = bench.processor.steps[0].ledger.snapshot(0)
    assert unfinished == list(range(min(unfinished), end)), "a finished record lies past an unfinished one"
    assert bench.processor.is_done
    assert bench.calls


def test_what_was_wound_up_is_drained():
    """A partition that is given back at the end of a process is not waited for, whatever was left unbegun."""
    bench = Bench()
    bench.admit(range(100))
    begun = bench.begin(2)
    bench.processor.post(Drain())
    bench.processor.tick()
    for turn in begun:
        bench.end(turn)
    bench.run()
    bench.give_back()

    assert bench.processor.steps[0].ledger.count(0) > 50
    assert bench.processor.steps[0].is_drained(0)


def test_the_end_does_not_wait_for_a_try_that_is_due_later():
    """Neither for one that waited before, nor for one that begins to wait while the processor is drained."""
    bench = Bench(failing, retry=Retry(attempts=5, backoff="60s"))
    bench.admit([0, 1])
    first, second = bench.begin(2)
    bench.end(first)
    bench.processor.post(Drain())
    bench.processor.tick()
    bench.end(second)
    bench.processor.tick()

    assert bench.processor.is_done
    assert bench.processor.steps[0].ledger.unfinished(0) == (0, 1)


def test_the_end_waits_for_a_try_that_is_due_soon():
    """Half a second is worth a record that is finished, when one behind it was begun already."""
    bench = Bench(failing, retry=Retry(attempts=2, backoff="500ms", jitter=0))
    bench.admit([0, 1])
    first, second = bench.begin(2)
    bench.end(first)
    bench.processor.post(Drain())
    bench.processor.tick()
    bench.end(second)
    bench.run(seconds=2)

    assert sorted(bench.calls) == [0, 0, 1, 1]
    assert bench.processor.steps[0].ledger.committable(0) == 2


# --- a lease that has run out ----------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    made = FakeClock()
    monkeypatch.setattr(Lease, "now", staticmethod(made.monotonic))
    return made


def leased(*args, **rest):
    """A bench whose processor has a lease of ten seconds."""
    bench = Bench(*args, **rest)
    bench.processor.lease = Lease(10.0)
    return bench


def test_nothing_begins_while_it_has_run_out(clock):
    """Records wait; the runner looks again soon, and does not spin."""
    bench = leased()
    bench.admit(range(3))
    clock.now += 11
    assert bench.processor.take() is None
    assert not bench.processor.can_start
    assert 0 < bench.processor.next_wake - bench.clock.now < 0.2

    bench.processor.lease.confirm(clock.now)
    bench.run()
    assert bench.calls == [0, 1, 2]


def test_what_ended_meanwhile_counts_when_the_partition_is_still_ours(clock):
    """It is settled late, and its message is sent then and not before."""
    bench = leased(posting)
    bench.admit([0])
    (turn,) = bench.begin(1)
    clock.now += 11
    bench.end(turn)
    bench.processor.tick()
    assert bench.sender.sent == []
    assert bench.processor.lanes.busy == 1

    bench.processor.lease.confirm(clock.now)
    bench.run()
    assert len(bench.sender.sent) == 1
    assert (bench.processor.steps[0].ledger.committable(0), bench.processor.is_done) == (1, True)


def test_what_ended_meanwhile_counts_for_nothing_when_the_partition_is_lost(clock):
    """Neither its message nor its copy is sent, and no lane stays busy with it."""
    for function, fields in ((posting, {}), (failing, {"retry": Retry(attempts=1)})):
        bench = leased(function, **fields)
        bench.admit(range(3))
        (turn,) = bench.begin(1)
        clock.now += 11
        bench.end(turn)
        bench.lose()
        bench.processor.lease.confirm(clock.now)
        bench.run()
        assert bench.sender.sent == []
        assert (bench.calls, bench.processor.is_done, bench.processor.lanes.busy) == ([0], True, 0)


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        (posting, {}),
        (failing, {"retry": Retry(attempts=1)}),
        (failing, {"retry": Retry.steps("5s", mode="unordered")}),
        (failing, {"retry": Retry.steps("5s", mode="ordered")}),
    ],
    ids=["message", "error topic", "retry topic", "retry topic, in order"],
)
def test_what_waits_to_be_sent_again_is_withdrawn_when_the_partition_is_lost(clock, function, fields):
    """It would come behind what the new owner has sent; keys go on, and nothing is counted as safe."""
    bench = leased(function, **fields)
    bench.sender.answers.extend([ProduceError("planted")] * 4)
    bench.admit([0], key=b"k")
    bench.run(0.2)
    tries = len(bench.sender.sent)
    assert tries == 1
    clock.now += 11
    bench.run(2.0)
    assert len(bench.sender.sent) == tries

    bench.lose()
    bench.processor.lease.confirm(clock.now)
    bench.run(2.0)
    tally = bench.processor.tally
    assert len(bench.sender.sent) == tries
    assert (bench.processor.is_done, tally.parked, tally.deferred, tally.produced) == (True, 0, 0, 0)
    assert not bench.deferred

    bench.open()
    bench.admit([7], epoch=2, key=b"k")
    bench.run(0.2)
    assert bench.calls[-1] == 7
