"""The checker of ladders is checked: each planted flaw is found within a few hundred schedules."""

from __future__ import annotations

import pytest

from laneway._core import copies as _copies
from laneway._core import step as _step
from laneway._core.copies import CopyWriter
from laneway._core.decide import ERROR_TOPIC, Copy
from laneway._core.deferred_keys import DeferredKeys
from laneway._core.headers import deferred_headers
from laneway._core.messages import RetryCopy
from laneway._core.outbox import Outbox
from laneway._core.processor import Processor
from simulation.simulator import LADDERS, simulate

SCHEDULES = 400


def finds(text, schedules=SCHEDULES):
    """Some schedule of a ladder breaks the promise that *text* names, and says how to run it again."""
    for seed in range(1, schedules * LADDERS, LADDERS):
        try:
            simulate(seed)
        except AssertionError as error:
            if text in str(error) and f"simulate({seed})" in str(error):
                return
    pytest.fail(f"{schedules} schedules did not find it")


def test_a_backlog_that_is_not_loaded_is_found(monkeypatch):
    """After a crash the topics alone tell which keys wait."""
    monkeypatch.setattr(DeferredKeys, "load", lambda self, records, step, key_of: None)
    finds("is called before")


def test_a_key_that_joins_too_late_is_found(monkeypatch):
    """Once, a copy could be read and dealt with before its acknowledgement, and its key waited forever."""
    copy, arrived = Processor._copy, Processor._arrived

    def unjoined(self, outcome):
        deferred, self.deferred = self.deferred, None
        made = copy(self, outcome)
        self.deferred = deferred
        return made

    def late(self, message, landed):
        arrived(self, message, landed)
        key = self.spec.lane_key(message.records[0])
        if isinstance(message, RetryCopy) and self.deferred is not None and key is not None:
            self.deferred.joined(message.record.partition, key, message.step)

    monkeypatch.setattr(Processor, "_copy", unjoined)
    monkeypatch.setattr(Processor, "_arrived", late)
    finds("keys wait on retry topics for records that are not there")


def test_a_key_that_leaves_too_early_is_found(monkeypatch):
    """It waits on its step until its copy is on the next one."""
    copy = Processor._copy

    def hasty(self, outcome):
        if self.deferred is not None and outcome.step != ERROR_TOPIC and outcome.error is not None:
            self.deferred.left(outcome.record.partition, self.spec.lane_key(outcome.record), outcome.step - 1)
        return copy(self, outcome)

    monkeypatch.setattr(Processor, "_copy", hasty)
    finds("is called before")


def test_a_key_that_never_leaves_is_found(monkeypatch):
    """It would take the long way forever."""
    monkeypatch.setattr(DeferredKeys, "left", lambda self, partition, key, step: None)
    finds("keys wait on retry topics for records that are not there")


def test_a_copy_that_was_turned_back_and_still_counts_is_found(monkeypatch):
    """What was parked because it is too large for the retry topic does not wait there."""
    give_up = Processor._give_up

    def forgetful(self, message, error):
        deferred, self.deferred = self.deferred, None
        give_up(self, message, error)
        self.deferred = deferred

    monkeypatch.setattr(Processor, "_give_up", forgetful)
    finds("keys wait on retry topics for records that are not there")


def test_a_place_behind_the_highest_step_is_found(monkeypatch):
    """There it would overtake those on the steps between."""

    def highest(self, partition, key, step):
        steps = self._steps.get(partition, {}).get(key, ())
        return max((found for found in steps if found > step), default=None)

    monkeypatch.setattr(DeferredKeys, "behind", highest)
    finds("is called before")


def test_copies_of_a_key_side_by_side_are_found(monkeypatch):
    """One that is repeated comes behind one that was sent after it."""

    def side_by_side(self, copies):
        for copy in copies:
            self.outbox.send(copy)

    monkeypatch.setattr(Processor, "_send", side_by_side)
    finds("is called before")


def test_a_key_that_does_not_wait_for_a_late_copy_is_found(monkeypatch):
    """Later records overtake a failed one, but not while its copy cannot be written."""
    monkeypatch.setattr(Outbox, "late_copies", lambda self, now: [])
    finds("is late")


def test_a_key_that_waits_for_ever_is_found(monkeypatch):
    """After the last of its late copies it goes on."""
    over = Processor._over

    def forgetful(self, message):
        if getattr(message, "is_late", False):
            message.queue = None
        over(self, message)

    monkeypatch.setattr(Processor, "_over", forgetful)
    finds("records are unfinished and nothing will ever happen")


def test_a_follower_that_runs_at_once_is_found(monkeypatch):
    """Later records of a key queue behind the one that waits."""
    monkeypatch.setattr(DeferredKeys, "cut", lambda self, queue, step: None)
    finds("is called before")


def test_a_queue_that_is_judged_by_its_first_record_is_found(monkeypatch):
    """The first may run, and one behind it is of a partition where the key waits."""
    cut = DeferredKeys.cut

    def careless(self, queue, step):
        taken = queue.taken
        found = cut(self, queue, step)
        queue.taken = taken
        return found

    monkeypatch.setattr(DeferredKeys, "cut", careless)
    finds("is called before", schedules=4_000)  # rare: a key in both partitions, several of it taken at once


def test_a_key_that_joins_in_another_partition_is_found(monkeypatch):
    """It waits where its record was read; elsewhere it would block nothing, and never leave."""
    joined = DeferredKeys.joined
    monkeypatch.setattr(DeferredKeys, "joined", lambda self, partition, *rest: joined(self, 1 - partition, *rest))
    finds("is called before")
    finds("keys wait on retry topics for records that are not there")


def test_a_record_without_a_key_that_waits_is_found(monkeypatch):
    """It has no order, so it waits for no other."""

    def strict(self, step, turn):
        for queue in turn:
            copies = [Copy(record, step.spec.step + 1, None) for record in queue.work()]
            self._apply(step, queue, queue.taken, copies)
        self._end_turn(step, turn)
        return []

    monkeypatch.setattr(Processor, "_runnable", strict)
    finds("there is no reason for a copy")


def test_a_follower_whose_calls_are_miscounted_is_found(monkeypatch):
    """It was not called, so it has used up no attempt."""

    def careless(record, failure, **fields):
        return deferred_headers(record, failure or _copies.Failure("", "", ""), **fields)

    monkeypatch.setattr(_copies, "deferred_headers", careless)
    finds("there is no reason for a copy")

    def miscounting(record, failure, **fields):
        headers = deferred_headers(record, failure, **fields)
        return [(name, b"7" if name == "laneway-attempts" else value) for name, value in headers]

    monkeypatch.setattr(_copies, "deferred_headers", miscounting)
    finds("says b'7' calls")


def test_calls_on_earlier_steps_that_are_forgotten_are_found(monkeypatch):
    """A record says how often it was called in all."""
    recall = _step.recall

    def forgetful(record, source, most_calls):
        told = recall(record, source, most_calls)
        record.before, record.attempt = 0, 1
        return told

    monkeypatch.setattr(_step, "recall", forgetful)
    finds("says attempt")


def test_a_step_that_is_left_out_is_found(monkeypatch):
    """A record goes up one step at a time."""
    copy = Processor._copy

    def hurried(self, outcome):
        is_low = outcome.step != ERROR_TOPIC and outcome.step < self.spec.retry.hops
        return copy(self, outcome._replace(step=outcome.step + 1) if is_low else outcome)

    monkeypatch.setattr(Processor, "_copy", hurried)
    finds("there is no reason for a copy")


@pytest.mark.parametrize(("field", "text"), [(1, "another key or value"), (4, "the copy of")])
def test_a_copy_in_the_wrong_place_is_found(monkeypatch, field, text):
    """It has the record's key and lies in its partition."""
    for_retry = CopyWriter.for_retry

    def careless(self, record, *rest):
        copy = for_retry(self, record, *rest)
        encoded = list(copy.encoded)
        encoded[field] = None if field == 1 else 1 - record.partition
        copy.encoded = tuple(encoded)
        return copy

    monkeypatch.setattr(CopyWriter, "for_retry", careless)
    finds(text)


def test_a_delay_that_counts_from_another_time_is_found(monkeypatch):
    """It counts from when the copy was made."""
    headers = _copies.deferred_headers
    monkeypatch.setattr(
        _copies,
        "deferred_headers",
        lambda record, failure, **more: headers(record, failure, **{**more, "due": record.timestamp}),
    )
    finds("the copy of")


def test_a_finish_before_the_copy_waits_is_found(monkeypatch):
    """A record is not finished when its copy is only on its way to a retry topic."""
    copy = Processor._copy

    def hasty(self, outcome):
        if outcome.step != ERROR_TOPIC:
            self._finish((outcome.record,))
        return copy(self, outcome)

    monkeypatch.setattr(Processor, "_copy", hasty)
    finds("its outcome is not durable")
