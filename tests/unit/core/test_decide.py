"""What follows from what happened, as tables: `decide` for turns, `follow` for one record, `resolve` for messages."""

from __future__ import annotations

import pytest

from laneway import Ack, Reject, Retry, RetryAfter
from laneway._core.decide import ERROR_TOPIC, AwaitAck, Copy, Fate, RetryAt, decide, follow, resolve
from laneway._core.messages import ErrorCopy, PendingMessage, Reply, ReplyMessage, RetryCopy
from laneway._core.turn import TurnReport
from laneway.errors import (
    CodecError,
    MessageTooLargeError,
    ProduceError,
    TimestampRefusedError,
    Unacknowledged,
)
from support.core import make_record, make_route, make_turn

NOW = 100.0
BAD = ValueError("bad")
IN_PLACE = Retry(3, "2s", jitter=0)
UNORDERED, ORDERED = (Retry.steps("5s", "1m", mode=mode) for mode in ("unordered", "ordered"))
TOO_LARGE, DOWN = MessageTooLargeError("too large"), ProduceError("down")


def short(outcome):
    """An outcome in a few words."""
    match outcome:
        case RetryAt(_, at, pause, _):
            return ("again", at, pause)
        case Copy(_, step, error, holds_key):
            return ("error" if step == ERROR_TOPIC else step, "waits" if holds_key else "goes on", error is not None)
        case AwaitAck():
            return ("acknowledge",)


@pytest.mark.parametrize(
    ("error", "attempt", "retry", "step", "expected"),
    [
        (BAD, 1, IN_PLACE, 0, ("again", 102.0, 2.0)),
        (BAD, 2, IN_PLACE, 0, ("again", 104.0, 4.0)),
        (BAD, 3, IN_PLACE, 0, ("error", "waits", True)),
        (Reject(), 1, IN_PLACE, 0, ("error", "waits", True)),
        (CodecError("?"), 1, IN_PLACE, 0, ("error", "waits", True)),
        (RetryAfter("7s"), 1, IN_PLACE, 0, ("again", 107.0, 7.0)),
        (BAD, 1, UNORDERED, 0, (1, "goes on", True)),
        (BAD, 1, ORDERED, 0, (1, "waits", True)),
        (BAD, 1, ORDERED, 1, (2, "waits", True)),
        (BAD, 1, ORDERED, 2, ("error", "waits", True)),
        (RetryAfter("30s"), 1, UNORDERED, 0, (2, "goes on", True)),
        (Reject(), 1, UNORDERED, 0, ("error", "waits", True)),
        (Unacknowledged(Ack()), 1, IN_PLACE, 0, ("acknowledge",)),
    ],
)
def test_what_follows_for_a_record_that_failed(error, attempt, retry, step, expected):
    """By its error, its calls on this step, and the policy."""
    record, spec = make_record(), make_route(retry=retry, lanes=4).at_step("billing", step)
    record.attempt = attempt

    assert short(follow(record, error, spec, now=NOW)) == expected


@pytest.mark.parametrize(("retry", "expected"), [(IN_PLACE, "error"), (UNORDERED, 1), (ORDERED, 1)])
def test_a_record_whose_key_has_continued_is_not_tried_in_its_place(retry, expected):
    """Others have overtaken it; no key waits for its copy."""
    outcome = short(follow(make_record(), BAD, make_route(retry=retry, lanes=4), now=NOW, has_key=False))

    assert outcome == (expected, "goes on", True)


def singles(failures, done):
    report = TurnReport()
    report.failures, report.done = failures, done
    return report


def test_keys_of_a_turn_are_judged_one_by_one():
    """Those that did not fail are not named. A copied record leaves the queue, one that is tried again stays."""
    records = [make_record(offset, b"%d" % offset) for offset in range(4)]
    report = singles({1: (records[1], Reject()), 3: (records[3], BAD)}, [1, 0, 1, 0])
    decision = decide(
        make_turn(*([record] for record in records)), report, make_route(retry=IN_PLACE), now=NOW, is_outage=False
    )

    assert [(key.at, key.over, short(key.outcomes[0])[0]) for key in decision.keys] == [
        (1, 1, "error"),
        (3, 0, "again"),
    ]
    assert decision.given_back == 0


def test_in_an_outage_failures_of_the_handler_do_not_count():
    """A record that is at fault itself is parked all the same."""
    records = [make_record(offset, b"%d" % offset) for offset in range(2)]
    report = singles({0: (records[0], BAD), 1: (records[1], Reject())}, [0, 0])
    decision = decide(
        make_turn(*([record] for record in records)), report, make_route(retry=IN_PLACE), now=NOW, is_outage=True
    )

    assert [(key.at, short(key.outcomes[0])[0]) for key in decision.keys] == [(1, "error")]
    assert decision.given_back == 1


def batch(members, *, back=(), superseded=None):
    report = TurnReport()
    report.members, report.back = members, {id(record) for record in back}
    report.superseded = superseded or {}
    return report


def test_members_of_a_batch_stay_at_the_head_or_leave():
    """What is tried again stays, in its order, with what was not called; copies leave, and so does what is handled."""
    records = [make_record(offset) for offset in range(5)]
    report = batch([(0, records[1], BAD), (0, records[3], Reject())], back=[records[4]])
    (key,) = decide(
        make_turn(records), report, make_route(kind="batch", size=9, retry=IN_PLACE), now=NOW, is_outage=False
    ).keys

    assert [record.offset for record in key.over] == [1, 4]
    assert [short(outcome)[0] for outcome in key.outcomes] == ["again", "error"]


def test_a_member_takes_along_what_it_supersedes():
    """To its copy, or back to the head of its key."""
    old, new = make_record(1), make_record(2)
    route = make_route(kind="unique", size=9, retry=IN_PLACE)
    stays = batch([(0, new, BAD)], superseded={id(new): [old]})
    (key,) = decide(make_turn([old, new]), stays, route, now=NOW, is_outage=False).keys
    assert key.over == [old, new]

    goes = batch([(0, new, Reject())], superseded={id(new): [old]})
    (key,) = decide(make_turn([old, new]), goes, route, now=NOW, is_outage=False).keys
    assert (key.over, list(key.outcomes[0].superseded)) == (2, [old])


def test_no_later_member_goes_higher_than_an_earlier_one():
    """In ordered mode; or past one that waits in place: it would be called before it."""
    records = [make_record(offset) for offset in range(3)]
    report = batch([(0, records[0], BAD), (0, records[1], RetryAfter("30s")), (0, records[2], BAD)])
    (key,) = decide(
        make_turn(records), report, make_route(kind="batch", size=9, retry=ORDERED, lanes=4), now=NOW, is_outage=False
    ).keys

    assert [outcome.step for outcome in key.outcomes] == [2, 2, 1]


ENCODED = ("topic", b"k", b"v", (), None, None)


def retry_copy():
    return RetryCopy(1, ENCODED, make_record(), None, None)


def error_copy(reduced=""):
    copy = ErrorCopy(ENCODED, make_record(), None, None)
    copy.reduced = reduced
    return copy


def reply():
    return ReplyMessage(ENCODED, Reply([make_record()], {}, 1))


@pytest.mark.parametrize("message", [retry_copy(), error_copy(), reply()], ids=lambda found: type(found).__name__)
def test_what_arrived_has_arrived(message: PendingMessage):
    """Whatever it is."""
    assert resolve(message, None, waits=True, headers_size=9) == (Fate.ARRIVED, "")


@pytest.mark.parametrize(
    ("message", "error", "expected"),
    [
        (reply(), DOWN, Fate.REPEAT),
        (reply(), TOO_LARGE, Fate.GIVE_UP),
        (reply(), TimestampRefusedError("old"), Fate.GIVE_UP),
        (reply(), TypeError("header"), Fate.GIVE_UP),
        (retry_copy(), DOWN, Fate.REPEAT),
        (retry_copy(), TimestampRefusedError("old"), Fate.REPEAT),
        (retry_copy(), TOO_LARGE, Fate.GIVE_UP),
        (error_copy(), DOWN, Fate.REPEAT),
        (error_copy(), TimestampRefusedError("old"), Fate.REPEAT),
    ],
)
def test_what_follows_for_a_message_that_was_refused(message, error, expected):
    """It is repeated while that may help; the record of one that can never be delivered is parked."""
    assert resolve(message, error, waits=True, headers_size=9)[0] is expected


@pytest.mark.parametrize(
    ("reduced", "error", "waits", "expected"),
    [
        ("", TOO_LARGE, True, (Fate.REPLACE, "trace")),
        ("", TypeError("header"), True, (Fate.REPLACE, "trace")),
        ("trace", TOO_LARGE, True, (Fate.WAIT, "")),
        ("trace", TOO_LARGE, False, (Fate.REPLACE, 90)),
        ("trace", TypeError("header"), True, (Fate.REPLACE, 0)),
        (90, TOO_LARGE, False, (Fate.REPLACE, 45)),
        (1, TOO_LARGE, False, (Fate.REPLACE, 0)),
        (0, TOO_LARGE, False, (Fate.WAIT, 0)),
        ("trace", DOWN, True, (Fate.REPEAT, "trace")),
    ],
)
def test_what_is_left_out_of_a_parked_copy_that_does_not_fit(reduced, error, waits, expected):
    """First the trace. Then it waits, or the value goes, and half of the headers each time."""
    assert resolve(error_copy(reduced), error, waits=waits, headers_size=90) == expected
