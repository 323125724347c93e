"""A turn through the user's function."""

from __future__ import annotations

import asyncio
import copy
from datetime import timedelta

import pytest

from laneway import Json, Reject, RetryAfter, Skip, Topic
from laneway._core.call import Call
from laneway.errors import CodecError, DeclarationError, HandlerTimeoutError, LanewayError
from support.core import FakeClock, make_record, make_route, make_turn

OUT = Topic("out")
JSON = Topic("orders", Json())


def records(*offsets, key=b"k", raw=b"v"):
    return [make_record(offset, key, raw) for offset in offsets]


def call(function, turn, *, clock=None, topic=None, kind="single", **fields):
    """Run a turn through a sync function, or an async one on a loop of its own."""
    route = make_route(function, topic, kind=kind, **fields)
    runner = Call(route, clock or FakeClock())
    name = kind if not route.is_async else f"{kind}_async"
    result = getattr(runner, name)(turn)
    return asyncio.run(result) if route.is_async else result


def as_async(function):
    async def handler(record):
        return function(record)

    return handler


def fates(result):
    """Failed members as (queue, offset, reason)."""
    return [(index, record.offset, str(error)) for index, record, error in result.members]


def offsets(records):
    return [record.offset for record in records]


BOTH = pytest.mark.parametrize("form", [lambda function: function, as_async], ids=["sync", "async"])


@BOTH
def test_each_record_is_called_in_order(form):
    """Queue by queue, and all are finished."""
    calls = []
    turn = make_turn(records(1, 2), records(3, key=b"l"))
    result = call(form(lambda record: calls.append(record.offset)), turn)

    assert calls == [1, 2, 3]
    assert result.done == [2, 1]
    assert result.calls == 3
    assert [record.offset for record in result.handled] == [1, 2, 3]


@BOTH
def test_a_failure_ends_its_queue_only(form):
    """Later records of the key are not begun, other keys go on."""

    def handle(record):
        if record.offset == 2:
            raise ValueError("planted")

    result = call(form(handle), make_turn(records(1, 2, 3), records(4, key=b"l")))

    assert result.done == [1, 1]
    assert result.calls == 3
    assert list(result.failures) == [0]
    assert result.failures[0][0].offset == 2
    assert str(result.failures[0][1]) == "planted"


@BOTH
def test_skip_and_reject_are_outcomes(form):
    """A skipped record is done; a rejected one is a failure."""

    def handle(record):
        raise Skip if record.offset == 1 else Reject

    result = call(form(handle), make_turn(records(1), records(2, key=b"l")))

    assert [record.offset for record in result.skipped] == [1]
    assert isinstance(result.failures[1][1], Reject)
    assert result.done == [1, 0]


@BOTH
def test_messages_are_encoded_in_the_lane(form):
    """What is returned is ready to send, a tombstone stays null."""

    def handle(record):
        return [JSON.message({"a": 1}, key="k", headers=[("h", None)], partition=2), OUT.message(None)]

    result = call(form(handle), make_turn(records(1)))

    assert result.handled == []
    ((sources, posted),) = result.outputs
    assert [record.offset for record in sources] == [1]
    assert posted == [("orders", b"k", b'{"a":1}', [("h", None)], 2, None), ("out", None, None, (), None, None)]


@BOTH
@pytest.mark.parametrize(("answer", "error"), [("text", DeclarationError), ([OUT.message("text")], CodecError)])
def test_an_answer_that_cannot_be_sent_fails_its_record(form, answer, error):
    """Neither the run nor other records are harmed."""
    result = call(form(lambda record: answer), make_turn(records(1)))

    assert isinstance(result.failures[0][1], error)


@BOTH
def test_values_are_decoded_and_tombstones_are_not(form):
    """A codec sees bytes, also empty ones, never null."""
    seen = []
    turn = make_turn(records(1, raw=b"[1]"), records(2, raw=None, key=b"l"), records(3, raw=b"", key=b"m"))
    result = call(form(lambda record: seen.append(record.value)), turn, topic=JSON)

    assert seen == [[1], None]
    assert isinstance(result.failures[2][1], CodecError)


class Slow:
    """A handler whose calls take the given seconds of a fake clock."""

    def __init__(self, clock, seconds, error=None):
        self.clock, self.seconds, self.error = clock, seconds, error or {}
        self.calls = 0

    def __call__(self, record):
        self.calls += 1
        self.clock.advance(self.seconds.get(record.offset, 0.0))
        if record.offset in self.error:
            raise self.error[record.offset]


def test_a_slow_handler_gives_back_what_it_has_not_begun():
    """A lane looks at the clock every few queues and ends when its slice is over, so other lanes can go on."""
    clock = FakeClock()
    handler = Slow(clock, dict.fromkeys(range(100), 0.003))
    result = call(handler, make_turn(*[records(offset, key=b"%d" % offset) for offset in range(100)]), clock=clock)

    assert 1 <= handler.calls <= 16
    assert result.done == [1] * handler.calls
    assert result.seconds == pytest.approx(0.003 * handler.calls)


def test_a_fast_handler_works_through_its_turn():
    """Nothing is given back while the slice lasts."""
    turn = make_turn(*[records(offset, key=b"%d" % offset) for offset in range(100)])

    assert len(call(lambda record: None, turn).done) == 100


def test_a_late_sync_call_fails_once_it_returns():
    """It cannot be stopped, so it counts as failed afterwards; the message names both times."""
    clock = FakeClock()
    result = call(Slow(clock, {1: 2.0}), make_turn(records(1)), clock=clock, timeout=timedelta(seconds=1))

    assert isinstance(result.failures[0][1], HandlerTimeoutError)
    assert str(result.failures[0][1]) == "handler 'handle' took 2.000 s; its time limit is 1 s"


@pytest.mark.parametrize("error", [{}, {1: Skip()}, {1: ValueError()}])
def test_a_time_limit_is_for_each_call_alone(error):
    """Once, the time of a late, skipped or failed call was charged to the next one, which failed though quick."""
    clock = FakeClock()
    handler = Slow(clock, {1: 5.0, 2: 0.1}, error)
    turn = make_turn(records(1), records(2, key=b"l"), records(3, key=b"m"))
    result = call(handler, turn, clock=clock, timeout=timedelta(seconds=1))

    assert [record.offset for record in result.handled] == [2, 3]


def test_a_late_async_call_is_cancelled():
    """The call has really ended when its record fails."""
    ended = []

    async def handle(record):
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    result = call(handle, make_turn(records(1)), timeout=timedelta(milliseconds=5))

    assert isinstance(result.failures[0][1], HandlerTimeoutError)
    assert ended == [True]


def test_a_handler_that_swallows_its_cancellation_keeps_its_key():
    """The lane leaves the call only when it is over."""

    async def handle(record):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)

    result = call(handle, make_turn(records(1)), timeout=timedelta(milliseconds=5))

    assert result.done in ([0], [1])


async def awaits_something_cancelled(_):
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def test_a_cancellation_from_within_is_a_failure():
    """Once, it ended the lane in silence and its records were never finished."""
    single = call(awaits_something_cancelled, make_turn(records(1)))
    batch = call(awaits_something_cancelled, make_turn(records(1)), kind="batch")

    assert isinstance(single.failures[0][1], LanewayError)
    assert isinstance(batch.members[0][2], LanewayError)


@pytest.mark.parametrize("kind", ["single", "batch"])
def test_a_cancellation_from_outside_goes_through(kind):
    """A lane that is told to end does end."""

    async def handle(_):
        await asyncio.sleep(60)

    async def cancelled():
        runner = Call(make_route(handle, kind=kind), FakeClock())
        task = asyncio.create_task(getattr(runner, f"{kind}_async")(make_turn(records(1))))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


@BOTH
def test_a_batch_is_one_call(form):
    """All records together, those of a key in order."""
    seen = []
    result = call(form(lambda batch: seen.append(batch.records)), make_turn(records(1, 2), records(3)), kind="batch")

    assert [[record.offset for record in batch] for batch in seen] == [[1, 2, 3]]
    assert result.done == [2, 1]
    assert result.calls == 1
    assert len(result.handled) == 3


@BOTH
def test_a_batch_ends_as_one(form):
    """An error is the whole batch's, so are a skip and the messages."""

    def fail(batch):
        raise ValueError("planted")

    def skip(batch):
        raise Skip

    failed = call(form(fail), make_turn(records(1, 2)), kind="batch")
    skipped = call(form(skip), make_turn(records(1, 2)), kind="batch")
    sent = call(form(lambda batch: OUT.message(b"x")), make_turn(records(1, 2)), kind="batch")

    assert fates(failed) == [(0, 1, "planted"), (0, 2, "planted")]
    assert failed.handled == []
    assert len(skipped.skipped) == 2
    assert [len(sources) for sources, _ in sent.outputs] == [2]


@BOTH
def test_a_member_that_cannot_be_decoded_does_not_fail_the_others(form):
    """It is set apart with the index of its queue."""
    seen = []
    turn = make_turn(records(1, raw=b"1"), [*records(2, raw=b"{", key=b"l"), *records(3, raw=None, key=b"l")])
    result = call(form(lambda batch: seen.extend(batch.values)), turn, kind="batch", topic=JSON)

    assert seen == [1, None]
    assert [(index, record.offset) for index, record, _ in result.members] == [(1, 2)]
    assert [record.offset for record in result.handled] == [1, 3]


@BOTH
def test_a_batch_of_bad_members_is_not_called(form):
    """There is nothing to call with."""
    result = call(form(pytest.fail), make_turn(records(1, raw=b"{")), kind="batch", topic=JSON)

    assert [type(error) for _, _, error in result.members] == [CodecError]
    assert result.handled == []


def test_a_late_batch_fails():
    """Sync when it returns, async when it is cancelled."""
    clock = FakeClock()

    def slow(batch):
        clock.advance(2)

    async def slow_async(batch):
        await asyncio.sleep(60)

    sync = call(slow, make_turn(records(1)), kind="batch", clock=clock, timeout=timedelta(seconds=1))
    cancelled = call(slow_async, make_turn(records(1)), kind="batch", timeout=timedelta(milliseconds=5))

    assert isinstance(sync.members[0][2], HandlerTimeoutError)
    assert isinstance(cancelled.members[0][2], HandlerTimeoutError)


def marks(answer=None, error=None):
    """A handler that rejects 1, tries 2 again after five seconds and skips 3; then it answers or raises."""

    def handle(batch):
        for record in batch:
            if record.offset == 1:
                batch.reject(record, "negative")
            elif record.offset == 2:
                batch.retry(record, "busy", after="5s")
            elif record.offset == 3:
                batch.skip(record)
        if error is not None:
            raise error
        return answer

    return handle


@BOTH
def test_marked_members_have_fates_of_their_own(form):
    """The others are finished; each failed member comes with the index of its queue."""
    result = call(form(marks()), make_turn(records(1, 4), records(5, 2, 3, key=b"l")), kind="batch")

    assert fates(result) == [(0, 1, "negative"), (1, 2, "busy")]
    assert [type(error) for _, _, error in result.members] == [Reject, RetryAfter]
    assert result.members[1][2].delay == "5s"
    assert offsets(result.skipped) == [3]
    assert offsets(result.handled) == [4, 5]
    assert result.done == [2, 3]
    assert result.calls == 1


@BOTH
def test_messages_belong_to_the_members_that_are_not_marked(form):
    """They are finished when the messages are acknowledged."""
    result = call(form(marks(OUT.message(b"x"))), make_turn(records(1, 2, 3, 4, 5)), kind="batch")

    ((sources, posted),) = result.outputs
    assert offsets(sources) == [4, 5]
    assert [value for _, _, value, *_ in posted] == [b"x"]
    assert result.handled == []


@BOTH
def test_messages_go_out_also_when_every_member_is_marked(form):
    """Once, they were dropped, though the same message went out as soon as one more record was in the batch."""
    result = call(form(marks(OUT.message(b"x"))), make_turn(records(1, 3)), kind="batch")

    ((sources, posted),) = result.outputs
    assert (sources, len(posted)) == ([], 1)
    assert (offsets(result.skipped), fates(result)) == ([3], [(0, 1, "negative")])


@BOTH
def test_without_a_mark_left_nothing_is_finished(form):
    """A batch of marked members only."""
    result = call(form(marks()), make_turn(records(1, 2, 3)), kind="batch")

    assert (result.handled, result.outputs) == ([], [])


@BOTH
@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        (None, ValueError("planted"), "planted"),
        ("text", None, "handler 'handle' returned str"),
        (OUT.message("text"), None, ""),
    ],
    ids=["raises", "answers nonsense", "answers what cannot be encoded"],
)
def test_a_call_that_fails_forgets_its_marks(form, answer, error, reason):
    """All members failed for the same reason, and none of them twice."""
    result = call(form(marks(answer, error)), make_turn(records(1, 2), records(3, 4, key=b"l")), kind="batch")

    assert [(index, record.offset) for index, record, _ in result.members] == [(0, 1), (0, 2), (1, 3), (1, 4)]
    assert len({id(error) for _, _, error in result.members}) == 1
    assert str(result.members[0][2]).startswith(reason)
    assert (result.handled, result.skipped, result.outputs) == ([], [], [])


def test_a_late_call_forgets_its_marks():
    """The time limit is the whole call's."""
    clock = FakeClock()

    def slow(batch):
        batch.skip(batch.records[0])
        clock.advance(2)

    result = call(slow, make_turn(records(1, 2)), kind="batch", clock=clock, timeout=timedelta(seconds=1))

    assert [type(error) for _, _, error in result.members] == [HandlerTimeoutError] * 2
    assert result.skipped == []


@BOTH
def test_a_batch_that_is_skipped_forgets_its_marks(form):
    """What a handler raises counts for the whole batch."""
    result = call(form(marks(error=Skip())), make_turn(records(1, 2, 3, 4)), kind="batch")

    assert offsets(result.skipped) == [1, 2, 3, 4]
    assert (result.members, result.handled) == ([], [])


@BOTH
def test_the_last_mark_counts(form):
    """A member has one fate, however often it was marked."""

    def handle(batch):
        first, second = batch
        batch.skip(first)
        batch.reject(first)
        batch.retry(second)
        batch.skip(second)

    result = call(form(handle), make_turn(records(1, 2)), kind="batch")

    assert [record.offset for _, record, _ in result.members] == [1]
    assert offsets(result.skipped) == [2]
    assert result.handled == []


@BOTH
@pytest.mark.parametrize(
    ("mark", "what"),
    [
        (copy.copy, "orders, partition 0, offset 2"),
        (lambda record: make_record(9), "orders, partition 0, offset 9"),
        (lambda record: record.value, "bytes"),
    ],
    ids=["a copy", "another record", "a value"],
)
def test_marking_what_is_not_in_the_batch_fails_the_batch(form, mark, what):
    """The record that was meant would else count as handled."""

    def handle(batch):
        batch.skip(batch.records[0])
        batch.reject(mark(batch.records[1]))

    result = call(form(handle), make_turn(records(1, 2)), kind="batch")

    assert [type(error) for _, _, error in result.members] == [DeclarationError] * 2
    assert f"handler 'handle' marked something that is not in its batch ({what})" in str(result.members[0][2])
    assert (result.handled, result.skipped) == ([], [])


class Grumpy:
    """A codec that does not keep to `CodecError`."""

    def encode(self, value):
        return value

    def decode(self, data):
        if data == b"!":
            raise ValueError("grumpy")
        return data


@BOTH
@pytest.mark.parametrize("topic", [JSON, Topic("orders", Grumpy())], ids=["CodecError", "another error"])
def test_an_undecodable_member_keeps_its_own_reason_when_the_others_fail(form, topic):
    """Once, one that a codec refused with another error than `CodecError` was forgotten and never finished."""

    def fail(batch):
        raise OSError("planted")

    turn = make_turn([*records(1, raw=b"!"), *records(2, raw=b"2")], records(3, raw=b"3", key=b"l"))
    result = call(form(fail), turn, kind="batch", topic=topic)

    assert [(index, record.offset) for index, record, _ in result.members] == [(0, 1), (0, 2), (1, 3)]
    assert [isinstance(error, OSError) for _, _, error in result.members] == [False, True, True]
    assert len(fates(result)) == 3
