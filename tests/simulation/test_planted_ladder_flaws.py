"""The checker of ladders is checked: each planted flaw is found within a few hundred schedules."""

from __future__ import annotations

import pytest

from laneway._core import copies as _copies
from laneway._core import ladder as _ladder
from laneway._core.copies import Copies
from laneway._core.deferred_keys import DeferredKeys
from laneway._core.headers import deferred_headers
from laneway._core.ladder import Ladder
from laneway._core.overdue import Overdue
from laneway._declare.retry import Defer
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
    defer = Copies._defer

    def late(self, record, failure, step, cause, then):
        joined, self._joined = self._joined, lambda record, step: None

        def landed():
            joined(record, step)
            then()

        defer(self, record, failure, step, cause, landed)
        self._joined = joined

    monkeypatch.setattr(Copies, "_defer", late)
    finds("keys wait on retry topics for records that are not there")


def test_a_key_that_leaves_too_early_is_found(monkeypatch):
    """It waits on its step until its copy is on the next one."""
    send_all = Copies.send_all

    def hasty(self, members, then):
        for record, _, verdict in members:
            if isinstance(verdict, Defer):
                self._turned_back(record, verdict.step - 1)
        send_all(self, members, then)

    monkeypatch.setattr(Copies, "send_all", hasty)
    finds("is called before")


def test_a_key_that_never_leaves_is_found(monkeypatch):
    """It would take the long way forever."""
    monkeypatch.setattr(DeferredKeys, "left", lambda self, partition, key, step: None)
    finds("keys wait on retry topics for records that are not there")


def test_a_copy_that_was_turned_back_and_still_counts_is_found(monkeypatch):
    """What was parked because it is too large for the retry topic does not wait there."""
    monkeypatch.setattr(Ladder, "turned_back", lambda self, record, step: None)
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
    init = Copies.__init__

    def side_by_side(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self._is_in_turn = False

    monkeypatch.setattr(Copies, "__init__", side_by_side)
    finds("is called before")


def test_a_key_that_does_not_wait_for_a_late_copy_is_found(monkeypatch):
    """Later records overtake a failed one, but not while its copy cannot be written."""
    monkeypatch.setattr(Overdue, "parted", lambda self, turn: turn)
    finds("is late")


def test_a_key_that_waits_for_ever_is_found(monkeypatch):
    """After the last of its late copies it goes on."""
    monkeypatch.setattr(Overdue, "ended", lambda self, copy: None)
    finds("records are unfinished and nothing will ever happen")


def test_a_follower_that_runs_at_once_is_found(monkeypatch):
    """Later records of a key queue behind the one that waits."""
    monkeypatch.setattr(Ladder, "parted", lambda self, turn: (turn, []))
    finds("is called before")


def test_a_queue_that_is_judged_by_its_first_record_is_found(monkeypatch):
    """The first may run, and one behind it is of a partition where the key waits."""
    cut = Ladder._cut

    def careless(self, queue, backlog):
        taken = queue.taken
        step = cut(self, queue, backlog)
        queue.taken = taken
        return step

    monkeypatch.setattr(Ladder, "_cut", careless)
    finds("is called before", schedules=4_000)  # rare: a key in both partitions, several of it taken at once


def test_a_key_that_joins_in_another_partition_is_found(monkeypatch):
    """It waits where its record was read; elsewhere it would block nothing, and never leave."""
    joined = DeferredKeys.joined
    monkeypatch.setattr(DeferredKeys, "joined", lambda self, partition, *rest: joined(self, 1 - partition, *rest))
    finds("is called before")
    finds("keys wait on retry topics for records that are not there")


def test_a_record_without_a_key_that_waits_is_found(monkeypatch):
    """It has no order, so it waits for no other."""

    def strict(self, turn):
        return [], [(queue, 1 + self._route.step) for queue in turn]

    monkeypatch.setattr(Ladder, "parted", strict)
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
    recall = _ladder.recall

    def forgetful(record, source, most_calls):
        told = recall(record, source, most_calls)
        record.before, record.attempt = 0, 1
        return told

    monkeypatch.setattr(_ladder, "recall", forgetful)
    finds("says attempt")


def test_a_step_that_is_left_out_is_found(monkeypatch):
    """A record goes up one step at a time."""
    job = Copies._job

    def hurried(self, record, error, verdict):
        if isinstance(verdict, Defer) and verdict.step < self.route.retry.hops:
            verdict = Defer(verdict.step + 1)
        return job(self, record, error, verdict)

    monkeypatch.setattr(Copies, "_job", hurried)
    finds("there is no reason for a copy")


@pytest.mark.parametrize(("field", "text"), [(1, "another key or value"), (4, "the copy of"), (5, "the copy of")])
def test_a_copy_in_the_wrong_place_is_found(monkeypatch, field, text):
    """It has the record's key, lies in its partition, and its delay counts from now."""
    deferred = Copies._deferred

    def careless(self, record, failure, step):
        posted = list(deferred(self, record, failure, step))
        posted[field] = (None, None, None, None, 1 - record.partition, record.timestamp)[field]
        return tuple(posted)

    monkeypatch.setattr(Copies, "_deferred", careless)
    finds(text)


def test_a_finish_before_the_copy_waits_is_found(monkeypatch):
    """A record is not finished when its copy is only on its way to a retry topic."""
    defer = Copies._defer

    def hasty(self, record, *rest):
        self._finish((record,))
        defer(self, record, *rest)

    monkeypatch.setattr(Copies, "_defer", hasty)
    finds("its outcome is not durable")
