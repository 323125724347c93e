"""The checker is checked: each planted flaw is found within a few hundred schedules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laneway._core import decide as _decide
from laneway._core.call import Call
from laneway._core.copies import CopyWriter
from laneway._core.decide import Park, judge
from laneway._core.ledger import Ledger
from laneway._core.messages import PendingMessage
from laneway._core.outbox import Outbox
from laneway._core.processor import Processor
from laneway._core.scheduler import Scheduler
from laneway.errors import CodecError, Reject
from simulation.simulator import simulate

SEEDS = 400


def finds(text):
    """Some schedule breaks the promise that *text* names, and says how to run it again."""
    for seed in range(SEEDS):
        try:
            simulate(seed)
        except AssertionError as error:
            if text in str(error) and f"simulate({seed})" in str(error):
                return
    pytest.fail(f"{SEEDS} schedules did not find it")


def test_a_pause_that_is_not_kept_is_found(monkeypatch):
    """A retry before its time breaks a promise."""
    monkeypatch.setattr(Scheduler, "postpone", lambda self, queue, until: self.release(queue))
    finds("before its pause is over")


def test_a_record_left_out_is_found(monkeypatch):
    """Settling one record too many loses it."""
    settle = Scheduler.settle

    def greedy(self, queue, done):
        left = len(queue.items) - queue.start - done
        settle(self, queue, done + 1 if done and left else done)

    monkeypatch.setattr(Scheduler, "settle", greedy)
    finds("is called before")


def test_a_record_called_again_is_found(monkeypatch):
    """Settling one record too few repeats it."""
    settle = Scheduler.settle
    monkeypatch.setattr(Scheduler, "settle", lambda self, queue, done: settle(self, queue, max(0, done - 1)))
    finds("is called again after its end")


def test_a_key_in_two_turns_is_found(monkeypatch):
    """Forgetting that a key is out gives it to two lanes."""
    push = Scheduler.push

    class Lenient(dict):
        def __delitem__(self, key):
            self.pop(key, None)

    def forgetful(self, items, keys, partitions=None):
        self._queues = Lenient({key: queue for key, queue in self._queues.items() if not queue.is_busy})
        push(self, items, keys, partitions)

    monkeypatch.setattr(Scheduler, "push", forgetful)
    finds("is in two turns at once")


def test_a_line_in_the_wrong_order_is_found(monkeypatch):
    """Handing out the newest record of a key first breaks its order."""
    take = Scheduler.take

    def newest_first(self, most):
        for queue in list(self._ready)[:1]:
            queue.items[queue.start :] = reversed(queue.items[queue.start :])
        return take(self, most)

    monkeypatch.setattr(Scheduler, "take", newest_first)
    finds("before")


def test_lanes_beyond_their_number_are_found(monkeypatch):
    """A lane that is never counted as busy is used twice."""
    take = Scheduler.take

    def uncounted(self, most):
        turn = take(self, most)
        self.lanes.busy = 0
        return turn

    monkeypatch.setattr(Scheduler, "take", uncounted)
    finds("a turn without a free lane")


def test_a_commit_beyond_an_unfinished_record_is_found(monkeypatch):
    """Offering the last seen offset passes those that are unfinished."""
    monkeypatch.setattr(Ledger, "committable", lambda self, partition: self._next.get(partition))
    finds("could be committed")


def test_a_finish_before_the_messages_are_safe_is_found(monkeypatch):
    """A record is not finished when its messages are only handed over."""
    produce = Processor._produce

    def hasty(self, reply, messages):
        self._replied(reply)
        produce(self, reply, messages)

    monkeypatch.setattr(Processor, "_produce", hasty)
    finds("its outcome is not durable")


def test_a_finish_before_the_copy_is_safe_is_found(monkeypatch):
    """A record is not finished when its copy is only handed over."""
    error_copy = Processor._error_copy

    def hasty(self, record, *rest):
        self._finish((record,))
        return error_copy(self, record, *rest)

    monkeypatch.setattr(Processor, "_error_copy", hasty)
    finds("its outcome is not durable")


def test_a_key_that_does_not_wait_for_its_copy_is_found(monkeypatch):
    """The next record of a key waits until the copy of the failed one is acknowledged."""
    monkeypatch.setattr(Scheduler, "hold", lambda self, queue, count, until=0.0: self.release(queue))
    finds("is not safe")


def test_a_failed_try_taken_for_success_is_found(monkeypatch):
    """A message that was refused did not land."""
    answered = PendingMessage.answered
    monkeypatch.setattr(PendingMessage, "answered", lambda self, _error: answered(self, None))
    finds("its outcome is not durable")


def test_a_message_that_is_dropped_is_found(monkeypatch):
    """A message that is not repeated leaves its record unfinished."""
    monkeypatch.setattr(Outbox, "repeat", lambda self, message, _error, _now: self.over(message))
    finds("")


def test_memory_beyond_the_bound_is_found(monkeypatch):
    """Reading on while acknowledgements are awaited fills the memory."""
    monkeypatch.setattr(Processor, "room", property(lambda self: max(0, self._most_records - self.records)))
    finds("in memory")


def test_one_attempt_too_many_is_found(monkeypatch):
    """A record is parked after as many calls as were asked for."""

    def lenient(error, attempt, retry, step):
        return judge(error, attempt, replace(retry, attempts=retry.attempts + 1), step)

    monkeypatch.setattr(_decide, "judge", lenient)
    finds("is called again after its end")


def test_an_empty_key_taken_for_none_is_found(monkeypatch):
    """The copy of a record with an empty key has an empty key."""
    encoded = CopyWriter.encoded

    def careless(self, *what):
        topic, key, *rest = encoded(self, *what)
        return (topic, key or None, *rest)

    monkeypatch.setattr(CopyWriter, "encoded", careless)
    finds("another key, value or time")


def test_a_miscount_is_found(monkeypatch):
    """The tally says what happened."""
    settle = Processor.settle

    def careless(self, turn, report):
        settle(self, turn, report)
        self.tally.skipped += bool(report.skipped)

    monkeypatch.setattr(Processor, "settle", careless)
    finds("the tally says")


def test_a_mark_that_is_not_heeded_is_found(monkeypatch):
    """A member that was to be rejected is not finished with the others."""
    accept = Call._accept

    def careless(self, result, turn, batch, answer):
        batch.fates[:] = [fate for fate in batch.fates if not isinstance(fate[1], Reject)]
        accept(self, result, turn, batch, answer)

    monkeypatch.setattr(Call, "_accept", careless)
    finds("its outcome is not durable")


def test_marks_of_a_call_that_failed_are_found(monkeypatch):
    """A call that failed has failed for all of its members, marked or not."""
    fail_all = Call._fail_all

    def careless(result, turn, records, error):
        fail_all(result, turn, records[1:], error)
        result.skipped = records[:1]

    monkeypatch.setattr(Call, "_fail_all", staticmethod(careless))
    finds("its outcome is not durable")


def test_a_retried_member_that_loses_its_place_is_found(monkeypatch):
    """It comes before what waits behind its batch."""
    advance = Scheduler.advance

    def to_the_end(self, queue, over):
        if not isinstance(over, list):
            return advance(self, queue, over)
        taken = queue.work()
        self.records -= len(taken) - len(over)
        self.size -= sum(item.size for item in taken) - sum(item.size for item in over)
        queue.items[queue.start :] = [*queue.items[queue.start + queue.taken :], *over]
        queue.taken = 0
        return None

    monkeypatch.setattr(Scheduler, "advance", to_the_end)
    finds("a batch has")


def test_a_finished_member_that_is_tried_again_is_found(monkeypatch):
    """Only those that were marked are called again."""
    advance = Scheduler.advance
    monkeypatch.setattr(
        Scheduler, "advance", lambda self, queue, over: advance(self, queue, 0 if isinstance(over, list) else over)
    )
    finds("next are")


def test_one_verdict_for_a_whole_batch_is_found(monkeypatch):
    """A member that is new in its batch is not parked because another one has used up its tries."""
    judged = _decide._judged

    def harsh(failed, spec, verdicts):
        found = judged(failed, spec, verdicts)
        is_over = any(isinstance(verdict, Park) for *_, verdict in found)
        return [(record, Reject(), Park()) for record, *_ in found] if is_over else found

    monkeypatch.setattr(_decide, "_judged", harsh)
    finds("has a copy on the error topic, its fate is None")


def test_an_undecodable_member_that_is_forgotten_is_found(monkeypatch):
    """Once, a batch that failed forgot those that a codec had refused with another error than `CodecError`."""
    fail_all = Call._fail_all

    def forgetful(result, turn, records, error):
        result.members = [member for member in result.members if isinstance(member[2], CodecError)]
        fail_all(result, turn, records, error)

    monkeypatch.setattr(Call, "_fail_all", staticmethod(forgetful))
    finds("never finished")


def test_messages_that_no_record_waits_for_are_found_when_they_are_dropped(monkeypatch):
    """Once, a batch whose members were all marked lost the messages it returned."""
    produce = Processor._produce
    monkeypatch.setattr(
        Processor, "_produce", lambda self, reply, messages: reply.records and produce(self, reply, messages)
    )
    finds("messages were never sent")
