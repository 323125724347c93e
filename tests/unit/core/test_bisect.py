"""Batches that fail are halved until the records are found that made them fail."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from math import ceil, log2
from random import Random

import pytest

from laneway import App, Json, Message, Reject, Retry, RetryAfter, Skip, Topic
from laneway._core.call import Call
from laneway._core.deferred_keys import DeferredKeys
from laneway._core.processor import Processor
from laneway.errors import DeclarationError
from support.core import FakeClock, FakeSender, make_record, make_records, make_route

OUT = Topic("out")
ORDERS = Topic("orders")


class Bench:
    """A processor whose batches are bisected, and what its handler was given."""

    def __init__(self, function, *, form="sync", lanes=1, deferred=None, **fields):
        self.clock, self.sender, self.calls = FakeClock(), FakeSender(), []

        def handle(batch):
            self.calls.append([record.offset for record in batch])
            return function(batch)

        async def handle_async(batch):
            answer = handle(batch)
            return await answer if asyncio.iscoroutine(answer) else answer

        fields = {"kind": "batch", "size": 500, "bisect": True, **fields}
        self.route = make_route(handle if form == "sync" else handle_async, **fields)
        self.processor = Processor(
            [self.route],
            "billing",
            lanes=lanes,
            sender=self.sender,
            clock=self.clock,
            deferred=deferred or DeferredKeys(),
        )
        self.processor.is_closing = True
        self.call = Call(self.route, self.clock)

    def turn(self):
        turn = self.processor.take()
        if turn is not None:
            result = asyncio.run(self.call.batch_async(turn)) if self.route.is_async else self.call.batch(turn)
            self.processor.settle(turn, result)
        return turn is not None

    def run(self):
        for _ in range(10_000):
            if not self.turn():
                if self.processor.is_done:
                    return self.processor.close()
                self.clock.advance(0.1)
                self.processor.tick()
        raise AssertionError("it does not end")

    def sent(self, topic="orders.billing.error"):
        """Offsets of the copies on a topic, in the order in which they were acknowledged."""
        return [origin_of(message) for message in self.sender.acked if message["topic"] == topic]


def origin_of(message):
    return int(dict(message["headers"])["laneway-origin-offset"])


def failing(*offsets, error=ValueError):
    """A handler that raises when one of the records is in its batch."""

    def handle(batch):
        bad = [record.offset for record in batch if record.offset in offsets]
        if bad:
            raise error(f"bad: {bad}")

    return handle


BOTH = pytest.mark.parametrize("form", ["sync", "async"])


@BOTH
@pytest.mark.parametrize("bad", [0, 1, 249, 250, 337, 499])
def test_one_bad_record_does_not_drag_the_others_along(form, bad):
    """Of 500 records 499 are handled and one is parked, for at most 2·log2(500) calls more than one."""
    bench = Bench(failing(bad), form=form)
    bench.processor.admit(make_records(500, keys=500))
    tally = bench.run()

    assert (tally.handled, tally.parked, tally.retried) == (499, 1, 0)
    assert bench.sent() == [bad]
    assert tally.calls == len(bench.calls) <= 1 + 2 * ceil(log2(500))
    assert bench.calls[0] == list(range(500))
    assert [bad] in bench.calls


@BOTH
@pytest.mark.parametrize("bad", [(0, 250, 499), (10, 11, 12), (249, 250, 251)])
def test_several_bad_records_are_found_wherever_they_are(form, bad):
    """Each costs its own search, no more."""
    bench = Bench(failing(*bad), form=form)
    bench.processor.admit(make_records(500, keys=500))
    tally = bench.run()

    assert (tally.handled, tally.parked) == (497, 3)
    assert bench.sent() == list(bad)
    assert tally.calls == len(bench.calls) <= 1 + 3 * 2 * ceil(log2(500))


def test_halves_come_in_order_the_first_one_first():
    """A half that is good is called once."""
    bench = Bench(failing(2))
    bench.processor.admit(make_records(5, keys=5))
    bench.run()

    assert bench.calls == [[0, 1, 2, 3, 4], [0, 1], [2, 3, 4], [2], [3, 4]]


def test_when_all_are_bad_calls_are_bounded():
    """Two for each record, less one; each record is parked with the reason of the call in which it was alone."""
    bench = Bench(failing(*range(64)))
    bench.processor.admit(make_records(64, keys=64))
    tally = bench.run()

    assert (tally.parked, tally.calls) == (64, 127)
    messages = [dict(message["headers"])["laneway-error-message"] for message in bench.sender.acked]
    assert messages == [b"bad: [%d]" % offset for offset in range(64)]


def test_a_failure_that_does_not_come_again_costs_two_calls():
    """Nothing is tried again or parked that is good by now, and no attempt is used up."""
    failures = [ValueError("planted")]

    def handle(batch):
        if failures:
            raise failures.pop()
        assert [record.attempt for record in batch] == [1] * len(batch)

    bench = Bench(handle)
    bench.processor.admit(make_records(10, keys=10))
    tally = bench.run()

    assert (tally.handled, tally.calls, tally.retried) == (10, 3, 0)


def test_without_it_a_batch_fails_as_one():
    """Nobody's handler is repeated unasked."""
    bench = Bench(failing(3), bisect=False)
    bench.processor.admit(make_records(10, keys=10))
    tally = bench.run()

    assert (tally.parked, tally.calls) == (10, 1)


def test_later_records_of_a_failed_key_are_given_back():
    """They are not called before the copy of the failed one is safe; other keys of the batch go on."""
    bench = Bench(failing(2))
    bench.sender.is_silent = True
    bench.processor.admit([make_record(offset, b"key") for offset in range(8)])
    bench.processor.admit([make_record(offset, b"other") for offset in range(100, 104)])
    bench.turn()

    rest = [100, 101, 102, 103]
    assert bench.calls == [[*range(8), *rest], [0, 1, 2, 3, 4, 5], [0, 1, 2], [0], [1, 2], [1], [2], rest]
    assert bench.processor.tally.handled == 6
    assert not bench.turn()

    bench.sender.is_silent = False
    tally = bench.run()
    assert bench.calls[8:] == [[3, 4, 5, 6, 7]]
    assert (tally.handled, tally.parked) == (11, 1)


def test_a_record_that_is_tried_again_is_the_first_of_its_key():
    """The later ones wait through its pause and come with it; it is called with them again, then alone."""
    seen = []

    def handle(batch):
        seen.append([(record.offset, record.attempt) for record in batch])
        failing(1)(batch)

    bench = Bench(handle, size=4, retry=Retry(2, "1s", jitter=0))
    bench.processor.admit([make_record(offset) for offset in range(5)])
    bench.turn()
    assert seen == [[(0, 1), (1, 1), (2, 1), (3, 1)], [(0, 1), (1, 1)], [(0, 1)], [(1, 1)]]
    assert not bench.turn()
    assert bench.processor.next_wake == bench.clock.now + 1

    tally = bench.run()
    assert seen[4:] == [
        [(1, 2), (2, 1), (3, 1), (4, 1)],
        [(1, 2), (2, 1)],
        [(1, 2)],
        [(2, 1), (3, 1), (4, 1)],
    ]
    assert (tally.handled, tally.parked, tally.retried) == (4, 1, 1)


@pytest.mark.parametrize(
    ("mode", "calls", "deferred"),
    [("unordered", [[3, 4, 5]], [2]), ("ordered", [], [2, 3, 4, 5])],
)
def test_after_a_deferred_record_its_key_goes_on_or_queues_behind_it(mode, calls, deferred):
    """As the ladder says; in both cases not before its copy is safe."""
    bench = Bench(failing(2), retry=Retry.steps("5s", mode=mode))
    bench.sender.is_silent = True
    bench.processor.admit([make_record(offset) for offset in range(6)])
    bench.turn()
    begun = len(bench.calls)
    assert not bench.turn()

    bench.sender.is_silent = False
    tally = bench.run()
    assert bench.calls[begun:] == calls
    (retry_topic,) = bench.route.retry_topics_of("billing")
    assert bench.sent(retry_topic) == deferred
    assert (tally.deferred, tally.handled) == (len(deferred), 6 - len(deferred))


@BOTH
@pytest.mark.parametrize(
    ("error", "expected"),
    [(Reject("no"), (0, 4, 0, 0)), (Skip("no"), (0, 0, 4, 0)), (RetryAfter("1s"), (0, 4, 0, 4))],
)
def test_a_word_on_the_whole_batch_is_not_bisected(form, error, expected):
    """The handler has said what is to become of every record."""

    def handle(batch):
        raise error

    bench = Bench(handle, form=form, retry=Retry(2))
    bench.processor.admit(make_records(4, keys=4))
    tally = bench.run()

    assert (tally.handled, tally.parked, tally.skipped, tally.retried) == expected
    assert tally.calls == 1 + (tally.retried > 0)


def test_a_word_on_a_half_is_for_that_half():
    """Its keys wait for their verdict in the other half, too."""

    def handle(batch):
        offsets = [record.offset for record in batch]
        if len(batch) == 8:
            raise ValueError("planted")
        if 1 in offsets:
            raise Reject("planted")
        if 5 in offsets:
            raise Skip

    bench = Bench(handle)
    keys = b"a", b"a", b"a", b"b", b"b", b"c", b"d", b"d"
    bench.processor.admit([make_record(offset, key) for offset, key in enumerate(keys)])
    tally = bench.run()

    assert bench.calls == [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3], [5, 6, 7], [4]]
    assert (tally.parked, tally.skipped, tally.handled) == (4, 3, 1)


def test_marks_count_in_the_call_that_returned():
    """Those of calls that failed are forgotten; a marked record keeps later ones of its key from the next halves."""

    def handle(batch):
        for record in batch:
            if record.offset == 0:
                batch.skip(record)
            elif record.offset == 1 and record.attempt == 1:
                batch.retry(record)
            elif record.offset == 4:
                batch.reject(record)
        failing(6)(batch)

    bench = Bench(handle, retry=Retry(2, "1s", jitter=0))
    keys = b"s", b"a", b"a", b"x", b"r", b"a", b"bad", b"r"
    bench.processor.admit([make_record(offset, key) for offset, key in enumerate(keys)])
    bench.turn()
    # By queue: 0 | 1 2 5 | 3 | 4 7 | 6. The first half returns, so 1 is tried again and 2 counts as handled.
    assert bench.calls == [[0, 1, 2, 5, 3, 4, 7, 6], [0, 1, 2, 5], [3, 4, 7, 6], [3, 4], [6]]
    assert bench.processor.steps[0].ledger.unfinished(0) == (1, 4, 6, 7)

    tally = bench.run()
    assert (tally.handled, tally.skipped, tally.parked, tally.retried) == (5, 1, 2, 2)
    assert sorted(bench.sent()) == [4, 6]


def test_messages_of_good_halves_are_sent():
    """Each half is finished when its own are acknowledged; those of calls that failed are never sent."""

    def handle(batch):
        failing(3)(batch)
        return Message(OUT, b" ".join(b"%d" % record.offset for record in batch))

    bench = Bench(handle)
    bench.sender.is_silent = True
    bench.processor.admit(make_records(4, keys=4))
    bench.turn()
    assert bench.processor.steps[0].ledger.unfinished(0) == (0, 1, 2, 3)

    bench.sender.is_silent = False
    tally = bench.run()
    assert [message["value"] for message in bench.sender.acked if message["topic"] == "out"] == [b"0 1", b"2"]
    assert (tally.handled, tally.parked) == (3, 1)


def test_a_message_that_cannot_be_encoded_fails_its_half_only():
    """What the handler returned is part of the call."""

    def handle(batch):
        return [Message(OUT, b"x" if record.offset != 2 else "text") for record in batch]

    bench = Bench(handle)
    bench.processor.admit(make_records(4, keys=4))
    tally = bench.run()

    assert (tally.handled, tally.parked, bench.sent()) == (3, 1, [2])


def test_a_late_sync_batch_is_bisected():
    """Each call has the whole time limit to itself."""
    bench = Bench(
        lambda batch: bench.clock.advance(5 if any(r.offset == 2 for r in batch) else 0.6),
        timeout=timedelta(seconds=1),
    )
    bench.processor.admit(make_records(4, keys=4))
    tally = bench.run()

    assert bench.calls == [[0, 1, 2, 3], [0, 1], [2, 3], [2], [3]]
    assert (tally.handled, tally.parked) == (3, 1)
    assert bench.processor.tally.seconds == pytest.approx(5 * 3 + 0.6 * 2)


def test_a_late_async_batch_is_bisected():
    """It is cancelled, and so is each half that is late."""

    async def handle(batch):
        await asyncio.sleep(60 if any(record.offset == 2 for record in batch) else 0)

    bench = Bench(handle, form="async", timeout=timedelta(milliseconds=20))
    bench.processor.admit(make_records(4, keys=4))
    tally = bench.run()

    assert bench.calls == [[0, 1, 2, 3], [0, 1], [2, 3], [2], [3]]
    assert (tally.handled, tally.parked) == (3, 1)
    assert dict(bench.sender.acked[0]["headers"])["laneway-error-type"] == b"laneway.errors.HandlerTimeoutError"


def test_a_cancellation_from_within_is_bisected():
    """It is a failure like any other."""

    async def handle(batch):
        if any(record.offset == 1 for record in batch):
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

    bench = Bench(handle, form="async")
    bench.processor.admit(make_records(4, keys=4))
    tally = bench.run()

    assert (tally.handled, tally.parked, tally.calls) == (3, 1, 5)


def test_a_cancellation_from_outside_ends_the_search():
    """A lane that is told to end does end."""

    async def handle(batch):
        if len(batch) > 1:
            raise ValueError("planted")
        await asyncio.sleep(60)

    async def cancelled():
        bench = Bench(handle, form="async")
        bench.processor.admit(make_records(4, keys=4))
        task = asyncio.create_task(bench.call.batch_async(bench.processor.take()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


def test_what_a_unique_record_supersedes_stays_with_it():
    """Older records are finished with the newest one, also when that was found to be bad."""
    bench = Bench(failing(6), kind="unique")
    bench.processor.admit(make_records(8, keys=4))
    bench.turn()
    assert bench.calls == [[4, 5, 6, 7], [4, 5], [6, 7], [6], [7]]
    assert bench.processor.steps[0].ledger.unfinished(0) == (2, 6)

    tally = bench.run()
    assert (tally.handled, tally.parked, tally.superseded) == (3, 1, 4)


def test_a_newer_record_supersedes_one_that_was_found_to_be_bad():
    """It waits for its retry with what it superseded, and then is never called again."""
    bench = Bench(failing(3), kind="unique", retry=Retry(3, "1s"))
    bench.processor.admit(make_records(4, keys=2))
    bench.turn()
    bench.processor.admit([make_record(4, b"key-0"), make_record(5, b"key-1")])
    tally = bench.run()

    assert bench.calls == [[2, 3], [2], [3], [4], [5]]
    assert (tally.handled, tally.parked, tally.superseded, tally.retried) == (3, 0, 3, 1)


def test_what_cannot_be_decoded_is_no_part_of_the_search():
    """It is parked alone, and the order of its key holds among the others."""
    bench = Bench(failing(2), topic=Topic("orders", Json()), retry=Retry(2, "1s"))
    bench.processor.admit([make_record(offset, raw=b"{" if offset in (1, 3) else b"1") for offset in range(6)])
    bench.turn()
    assert bench.calls == [[0, 2, 4, 5], [0, 2], [0], [2]]

    tally = bench.run()
    assert (tally.handled, tally.parked, tally.retried) == (3, 3, 1)
    assert bench.sent() == [1, 3, 2]


def test_given_back_records_keep_their_place_between_failed_ones():
    """One that a codec refuses in a way of its own is tried again: behind what was given back before it."""

    class Grumpy:
        def decode(self, data):
            if data == b"!":
                raise ValueError("grumpy")
            return data

    bench = Bench(failing(0), topic=Topic("orders", Grumpy()), retry=Retry(2, "1s", jitter=0))
    bench.processor.admit([make_record(0), make_record(1), make_record(2, raw=b"!"), make_record(3)])
    bench.turn()
    bench.clock.advance(1)
    bench.processor.tick()
    (queue,) = bench.processor.steps[0].scheduler.take(9)

    assert [(record.offset, record.attempt) for record in queue.work()] == [(0, 2), (1, 1), (2, 2), (3, 1)]


def test_a_handler_may_do_what_it_likes_with_its_list():
    """Once, a handler that emptied its list lost the records."""

    def handle(batch):
        batch.records.sort(key=lambda record: -record.offset)
        failing(1)(batch)
        batch.records.clear()

    bench = Bench(handle)
    bench.processor.admit([make_record(offset) for offset in range(4)])
    tally = bench.run()

    assert bench.calls == [[0, 1, 2, 3], [0, 1], [0], [1], [2, 3]]
    assert (tally.handled, tally.parked) == (3, 1)


@pytest.mark.parametrize("seed", range(150))
def test_a_record_never_runs_before_an_earlier_one_of_its_key(seed):
    """Each is called with every earlier one of its key that has not reached its end, whatever fails and how often."""
    rng = Random(seed)
    count, keys, attempts = rng.randint(1, 40), rng.randint(1, 6), rng.randint(1, 3)
    plan = {offset: rng.choice([0] * 8 + [1, 2, 9]) for offset in range(count)}  # calls alone that fail
    alone = dict.fromkeys(range(count), 0)
    handled, line, flaws = set(), {}, []

    def handle(batch):
        offsets = [record.offset for record in batch]
        over = handled | set(bench.sent())
        for key, mine in line.items():
            given = [record.offset for record in batch if record.key == key]
            if given != [offset for offset in mine if offset not in over][: len(given)]:
                flaws.append((offsets, over))
        if len(offsets) == 1:
            alone[offsets[0]] += 1
        if any(alone[offset] - (len(offsets) == 1) < plan[offset] for offset in offsets):
            raise ValueError("planted")
        handled.update(offsets)

    bench = Bench(handle, form=rng.choice(["sync", "async"]), size=rng.randint(1, 12), retry=Retry(attempts, "1s"))
    records = [make_record(offset, b"%d" % rng.randrange(keys)) for offset in range(count)]
    for record in records:
        line.setdefault(record.key, []).append(record.offset)
    while records:
        some = rng.randint(1, len(records))
        bench.processor.admit(records[:some])
        del records[:some]
        bench.turn()
        bench.processor.tick()
    tally = bench.run()

    assert flaws == []
    parked = {offset for offset in range(count) if plan[offset] >= attempts}
    assert (handled & set(bench.sent()), set(bench.sent()), len(bench.sent())) == (set(), parked, len(parked))
    assert (tally.handled, tally.parked, tally.calls) == (count - len(parked), len(parked), len(bench.calls))


def test_only_what_takes_batches_can_be_bisected():
    """A single record has no halves, and a table is not judged row by row."""
    app = App("billing")
    app.batch_handler(ORDERS, size=5, bisect=True)(lambda batch: None)
    assert app.routes[0].bisect
    for kind in ("single", "columnar"):
        with pytest.raises(DeclarationError, match=f"bisect=True halves batches, and a {kind} handler takes none"):
            make_route().with_changes(kind=kind, bisect=True)
