"""The checker of ownership finds every planted violation, and nothing in a history that is in order."""

from __future__ import annotations

import os

import pytest

from laneway.devkit.history import Event
from support.ownership import Allowance, LoggedCommit, Ownership, OwnershipRecorder, check_ownership, read_ownership


def call(offset, end, *, partition=0, lasts=1.0):
    """One handler call that ended at a moment."""
    return Event(7, partition, offset, end - lasts, end, 1)


def assigned(process, time, partition=0):
    return Ownership(process, "assigned", "t", partition, time)


def revoked(process, time, partition=0, kind="revoked"):
    return Ownership(process, kind, "t", partition, time)


def committed(process, time, offset, partition=0):
    return Ownership(process, "committed", "t", partition, time, offset)


def findings(verdict):
    """What was found and how often."""
    kinds = ("ahead", "after_revoke", "backwards", "unwritten", "rewinds", "strays")
    return {kind: count for kind in kinds if (count := getattr(verdict, kind))}


HANDED_OVER = [
    assigned("a", 0),
    assigned("a", 0, partition=1),
    committed("a", 3, 1),
    committed("a", 5, 2),
    revoked("a", 6),
    assigned("b", 7),
    committed("b", 9, 3),
    committed("b", 9, 3),
    committed("a", 9, 1, partition=1),
]
CALLS = {"a": [call(0, 2), call(1, 4), call(0, 8, partition=1)], "b": [call(2, 8.5)]}
EXPECTED = {0: 3, 1: 1}
LOG = [
    LoggedCommit(0, 1, 2.9),
    LoggedCommit(0, 2, 4.9),
    LoggedCommit(0, 3, 8.9),
    LoggedCommit(0, 3, 8.95),
    LoggedCommit(1, 1, 8.9),
]


@pytest.mark.parametrize("logged", [None, LOG])
def test_a_partition_that_is_handed_over_in_order_is_clean(logged):
    """Commits behind finished calls, the last of them inside the window of the revocation, are no violation."""
    verdict = check_ownership(HANDED_OVER, CALLS, EXPECTED, logged=logged)

    assert (verdict.is_clean, verdict.examples, verdict.commits) == (True, [], 10 if logged else 5)


def test_a_commit_past_a_record_that_still_runs_is_ahead():
    """Offset 0 ends a moment after the commit of 1; the later commit of 1 is in order."""
    events = [assigned("a", 0), committed("a", 1.9, 1), committed("a", 2, 1)]

    verdict = check_ownership(events, {"a": [call(0, 2)]}, {0: 1})

    assert findings(verdict) == {"ahead": 1}
    assert verdict.examples == ["ahead: a committed 0@1 at 1.900 while 0 had not finished"]


def test_a_commit_past_a_hole_is_ahead_for_ever():
    """Records after the hole do not make up for it: each commit above it counts."""
    events = [assigned("a", 0), committed("a", 5, 1), committed("a", 6, 2), committed("a", 7, 3)]

    verdict = check_ownership(events, {"a": [call(0, 1), call(2, 2)]}, {0: 3})

    assert findings(verdict) == {"ahead": 2}


def test_a_commit_past_the_end_is_ahead():
    """There is no record of which it could be said that it was finished."""
    assert findings(check_ownership([assigned("a", 0), committed("a", 5, 2)], {"a": [call(0, 1)]}, {0: 1})) == {
        "ahead": 1
    }


def test_a_call_of_any_process_finishes_a_record():
    """A record is done whichever worker did it; the first call counts, not the last."""
    events = [assigned("a", 0), revoked("a", 3), assigned("b", 4), committed("b", 6, 1)]

    assert check_ownership(events, {"a": [call(0, 2)], "b": [call(0, 8)]}, {0: 1}).is_clean


def test_a_parked_copy_finishes_a_record_from_its_moment_on():
    """A record without a successful call is finished when its copy is safe, and not before."""
    events = [assigned("a", 0), committed("a", 5, 1)]

    assert check_ownership(events, {}, {0: 1}, parked={(0, 0): 4.0}).is_clean
    assert findings(check_ownership(events, {}, {0: 1}, parked={(0, 0): 6.0})) == {"ahead": 1}


@pytest.mark.parametrize("kind", ["revoked", "lost"])
def test_a_commit_after_the_end_of_an_ownership_is_found(kind):
    """Whether the partition was given back or taken away, nothing is committed afterwards."""
    events = [assigned("a", 0), committed("a", 3, 1), revoked("a", 4, kind=kind), committed("a", 5, 1)]

    assert findings(check_ownership(events, {"a": [call(0, 2)]}, {0: 1})) == {"after_revoke": 1}


def test_a_commit_of_what_was_never_assigned_is_found():
    """Another partition's assignment, or another process's, gives no right."""
    events = [assigned("a", 0, partition=1), assigned("b", 0), committed("a", 3, 1)]

    assert findings(check_ownership(events, {"b": [call(0, 2)]}, {0: 1, 1: 0})) == {"after_revoke": 1}


def test_a_commit_after_an_assignment_to_another_is_found():
    """A process that was thrown out without noticing commits what is another's by now."""
    events = [assigned("a", 0), assigned("b", 4), committed("a", 5, 1)]

    verdict = check_ownership(events, {"a": [call(0, 2)]}, {0: 1})

    assert findings(verdict) == {"after_revoke": 1}
    assert verdict.examples == ["after_revoke: a committed 0@1 at 5.000, which b was given at 4.000"]


def test_an_assignment_to_another_and_back_gives_the_right_again():
    """What was another's in between is one's own after the next assignment."""
    events = [assigned("a", 0), revoked("a", 1), assigned("b", 2), revoked("b", 3), assigned("a", 4)]

    assert check_ownership([*events, committed("a", 5, 1)], {"a": [call(0, 1)]}, {0: 1}).is_clean


def test_a_process_that_was_thrown_out_and_let_in_again_has_the_right_again():
    """It need not have noticed that it was away: the new assignment counts."""
    events = [assigned("a", 0), committed("a", 2, 1), assigned("b", 3), assigned("a", 4), committed("a", 5, 0)]

    assert check_ownership(events, {"a": [call(0, 1)]}, {0: 1}).is_clean


def test_a_process_that_was_frozen_before_it_could_tell_is_innocent():
    """The broker's log shows that it took the commit before the other had the partition."""
    events = [assigned("a", 0), assigned("b", 4), committed("a", 5, 1)]

    assert check_ownership(events, {"a": [call(0, 2)]}, {0: 1}, logged=[LoggedCommit(0, 1, 3.0)]).is_clean


@pytest.mark.parametrize("moment", [4.5, -1.0])
def test_a_commit_that_the_broker_took_too_late_is_found(moment):
    """Logged after the other had the partition, or before this ownership began, it does not excuse."""
    events = [assigned("a", 0), assigned("b", 4), committed("a", 5, 0)]

    verdict = check_ownership(events, {}, {0: 1}, logged=[LoggedCommit(0, 0, moment)])

    assert findings(verdict) == {"after_revoke": 1}


def test_a_commit_below_an_earlier_one_is_backwards():
    """Inside one ownership; the same offset again is not."""
    events = [assigned("a", 0), committed("a", 3, 2), committed("a", 4, 2), committed("a", 5, 1)]

    assert findings(check_ownership(events, {"a": [call(0, 1), call(1, 2)]}, {0: 2})) == {"backwards": 1}


def test_a_new_ownership_may_begin_lower():
    """After an assignment offsets start from there: the group may have been set back."""
    events = [assigned("a", 0), committed("a", 3, 2), revoked("a", 4), assigned("a", 5), committed("a", 6, 1)]

    assert check_ownership(events, {"a": [call(0, 1), call(1, 2)]}, {0: 2}).is_clean


def test_a_commit_that_the_broker_does_not_have_is_found():
    """A process that reports a commit before the broker has it was too sure."""
    events = [assigned("a", 0), committed("a", 3, 1)]
    calls = {"a": [call(0, 2)]}

    assert findings(check_ownership(events, calls, {0: 1}, logged=[])) == {"unwritten": 1}
    assert findings(check_ownership(events, calls, {0: 1}, logged=[LoggedCommit(0, 1, 3.5)])) == {"unwritten": 1}
    assert check_ownership(
        events, calls, {0: 1}, logged=[LoggedCommit(0, 1, 3.5)], allowance=Allowance(doubt=0.6)
    ).is_clean


def test_the_log_is_checked_without_a_word_of_the_processes():
    """A commit that no process reported is found ahead all the same, unless it is within the doubt."""
    calls = {"a": [call(0, 2)]}

    assert findings(check_ownership([], calls, {0: 1}, logged=[LoggedCommit(0, 1, 1.5)])) == {"ahead": 1}
    assert check_ownership([], calls, {0: 1}, logged=[LoggedCommit(0, 1, 1.5)], allowance=Allowance(doubt=0.6)).is_clean


def test_a_log_that_goes_back_is_found():
    """A partition's commits in the log only rise, and each fall counts once; another partition's are its own."""
    calls = {"a": [call(0, 1), call(1, 1)]}
    log = [LoggedCommit(0, 2, 3), LoggedCommit(1, 0, 4), LoggedCommit(0, 1, 5), LoggedCommit(0, 1, 6)]

    verdict = check_ownership([], calls, {0: 2, 1: 0}, logged=log)

    assert findings(verdict) == {"rewinds": 1}
    assert verdict.examples == ["rewinds: partition 0 from 2 to 1 at 5.000"]


def test_a_call_outside_of_an_ownership_is_a_stray():
    """Begun before the assignment, after the revocation, or on a partition of another: each is found."""
    events = [assigned("a", 2), revoked("a", 5), assigned("a", 9)]
    calls = {"a": [call(0, 2.5), call(1, 3.5), call(2, 6.5), call(0, 3.5, partition=1)]}

    assert findings(check_ownership(events, calls, {0: 3, 1: 1})) == {"strays": 3}


@pytest.mark.parametrize(("late", "expected"), [(0.4, {"strays": 1}), (0.6, {})])
def test_an_assignment_may_be_reported_late(late, expected):
    """A call that began a little before its process reported the partition is excused, and only then."""
    events = [assigned("a", 2), revoked("a", 9)]

    assert findings(check_ownership(events, {"a": [call(0, 2.5)]}, {0: 1}, allowance=Allowance(late=late))) == expected


@pytest.mark.parametrize(
    ("kind", "grace", "expected"),
    [("lost", 0.6, {}), ("lost", 0.4, {"strays": 1}), ("revoked", 0.6, {"strays": 1})],
)
def test_a_call_may_begin_shortly_after_a_loss_but_not_after_a_revocation(kind, grace, expected):
    """What was taken away was another's before any report; what was given back was given back in order."""
    events = [assigned("a", 0), revoked("a", 2, kind=kind), assigned("a", 9)]

    found = findings(check_ownership(events, {"a": [call(0, 3.5)]}, {0: 1, 1: 0}, allowance=Allowance(grace=grace)))

    assert found == expected


def test_a_revocation_is_no_late_assignment():
    """The next word on the partition must be that it was assigned."""
    events = [assigned("a", 0), revoked("a", 2), revoked("a", 4), assigned("a", 4.1), committed("a", 9, 0)]

    assert findings(check_ownership(events, {"a": [call(0, 4.5)]}, {0: 1}, allowance=Allowance(late=2))) == {
        "strays": 1
    }


def test_what_a_killed_process_could_not_tell_any_more_is_excused():
    """Its last word came before it would have had to tell of the partition."""
    events = [assigned("a", 0, partition=1), committed("a", 3, 0, partition=1)]

    assert check_ownership(events, {"a": [call(0, 4)]}, {0: 1, 1: 0}, allowance=Allowance(late=1)).is_clean


def test_a_call_that_ends_after_a_loss_is_no_stray():
    """What was taken away in the middle of a call could not be prevented."""
    events = [assigned("a", 0), revoked("a", 2, kind="lost")]

    assert check_ownership(events, {"a": [call(0, 3, lasts=1.5)]}, {0: 1}).is_clean


@pytest.mark.parametrize(
    ("starts", "expected"),
    [([0], {"backwards": 1}), ([0, 6], {"backwards": 1}), ([0, 4], {"rewinds": 1}), ([6], {"rewinds": 1})],
)
def test_a_fall_in_the_log_is_explained_by_the_assignments(starts, expected):
    """Inside one ownership it is the owner's fault; across an assignment it is a late word of the one before."""
    calls = {"a": [call(0, 1), call(1, 1)]}
    log = [LoggedCommit(0, 2, 3), LoggedCommit(0, 1, 5)]

    assert findings(check_ownership([assigned("a", at) for at in starts], calls, {0: 2}, logged=log)) == {
        **expected,
        **({"strays": 2} if starts == [6] else {}),
    }


def test_a_process_that_hears_of_its_commits_late_is_innocent():
    """Reported in the wrong order, logged in the right one."""
    events = [assigned("a", 0), committed("a", 6, 2), committed("a", 6, 1)]
    log = [LoggedCommit(0, 1, 4), LoggedCommit(0, 2, 5)]

    assert check_ownership(events, {"a": [call(0, 1), call(1, 2)]}, {0: 2}, logged=log).is_clean


def test_examples_of_one_kind_do_not_crowd_out_another():
    """Every violation is counted, a few of each kind are described."""
    events = [assigned("a", 0), *(committed("a", 5, 9) for _ in range(50)), committed("a", 6, 0)]

    verdict = check_ownership(events, {}, {0: 9})

    assert findings(verdict) == {"ahead": 50, "backwards": 1}
    assert (len(verdict.examples), verdict.examples[-1]) == (6, "backwards: a committed 0@0 at 6.000, after 9")


def test_what_is_recorded_is_read_back(tmp_path):
    """Each event with its partitions, in the order of the reports."""
    recorder = OwnershipRecorder(str(tmp_path))
    recorder.assigned("t", (0, 1))
    recorder.committed("t", ((0, 5), (1, 7)))
    recorder.revoked("t", (0,), is_lost=False)
    recorder.revoked("u", (1,), is_lost=True)

    events = list(read_ownership(tmp_path))

    assert [(event.kind, event.topic, event.partition, event.offset) for event in events] == [
        ("assigned", "t", 0, -1),
        ("assigned", "t", 1, -1),
        ("committed", "t", 0, 5),
        ("committed", "t", 1, 7),
        ("revoked", "t", 0, -1),
        ("lost", "u", 1, -1),
    ]
    assert {str(os.getpid())} == {event.process for event in events}
    assert sorted(event.time for event in events) == [event.time for event in events]
    assert {"w"} == {event.process for event in read_ownership(tmp_path, "w")}


def test_a_line_that_was_cut_short_is_left_out(tmp_path):
    """A process that was killed in the middle of a line still counts with those before."""
    OwnershipRecorder(str(tmp_path)).assigned("t", (3,))
    with (tmp_path / f"{os.getpid()}.ownership").open("ab") as file:
        file.write(b'{"time": 1.0, "kind": "assi')

    assert [event.partition for event in read_ownership(tmp_path)] == [3]
