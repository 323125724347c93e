"""Interceptors change what goes in and out, and nothing else."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from laneway import App, Batch, Json, Message, Reject, Retry, Skip, Topic
from laneway._core.call import Call
from laneway._core.interceptors import intercepted, producing
from laneway._core.processor import Processor
from laneway._declare.interceptors import Interceptors
from laneway.errors import DeclarationError, MessageTooLargeError
from laneway.events import InterceptorFailed, RecordDropped, RecordHandled, RecordParked, RecordSkipped
from support.core import FakeClock, FakeSender, Noted, make_record, make_route, make_turn

ORDERS, OUT = Topic("orders"), Topic("out")


def as_async(function):
    async def handler(argument):
        return function(argument)

    return handler


BOTH = pytest.mark.parametrize("form", [lambda function: function, as_async], ids=["sync", "async"])


def call(function, turn, *, consume=(), produce=(), kind="single", **fields):
    """Run a turn through a function with interceptors, sync or async."""
    route = make_route(function, kind=kind, interceptors=Interceptors(tuple(consume), tuple(produce)), **fields)
    runner = Call(route, FakeClock())
    name = "single" if kind == "single" else "batch"
    result = getattr(runner, name if not route.is_async else f"{name}_async")(turn)
    result = asyncio.run(result) if route.is_async else result
    assert runner._stand_ins is None or runner._stand_ins._shown == {}
    return result


def offsets(records):
    return [record.offset for record in records]


def shout(record):
    return record.replaced(value=record.value.upper())


def drop_odd(record):
    return None if record.offset % 2 else record


def fail_at(*wrong):
    def interceptor(record):
        if record.offset in wrong:
            raise ConnectionError(f"at {record.offset}")
        return record

    return interceptor


def spoil(record):
    """Change everything that a copy is made of, in place."""
    record.value, record.raw, record.key, record.offset, record.partition, record.topic = b"x", b"x", b"x", 99, 9, "x"
    record.headers.append(("x", b"x"))
    return record


class Run:
    """A processor that works through its records, with a sender that answers as told."""

    def __init__(self, function, *, kind="single", answers=(), consume=(), produce=(), error=(), **fields):
        self.clock, self.sender, self.notices = FakeClock(), FakeSender(answers), Noted()
        interceptors = Interceptors(tuple(consume), tuple(produce), tuple(error))
        self.route = make_route(function, kind=kind, interceptors=interceptors, **fields)
        self.processor = Processor(
            [self.route], "billing", lanes=4, sender=self.sender, clock=self.clock, listener=self.notices
        )
        self.work = getattr(Call(self.route, self.clock), "single" if kind == "single" else "batch")

    def __call__(self, *records):
        self.processor.admit(records)
        self.processor.is_closing = True
        for _ in range(1000):
            turn = self.processor.take()
            if turn is not None:
                self.processor.settle(turn, self.work(turn))
            elif self.processor.is_done:
                return self.processor.close()
            else:
                self.clock.advance(0.1)
                self.processor.tick()
        raise AssertionError("it does not end")

    @property
    def copies(self):
        """What is safe on the error topic, as (value, names of headers that are not ours)."""
        return [
            (sent["value"], [name for name, _ in sent["headers"] if not name.startswith("laneway-")])
            for sent in self.sender.acked
        ]


def raising(error):
    def handle(_):
        raise error

    return handle


@BOTH
def test_the_handler_sees_what_the_interceptors_made(form):
    """One after the other, each what the one before gave; the record that was read is finished."""
    seen = []
    records = [make_record(1, raw=b"a"), make_record(2, raw=b"b")]
    result = call(form(lambda record: seen.append(record.value)), make_turn(records), consume=[shout, shout])

    assert seen == [b"A", b"B"]
    assert [finished is record for finished, record in zip(result.handled, records, strict=True)] == [True, True]
    assert [record.value for record in records] == [b"a", b"b"]


@BOTH
def test_a_dropped_record_is_skipped_with_the_reason(form):
    """The handler is not called with it; the reason is kept only when somebody wants to know."""
    seen = []
    function = form(lambda record: seen.append(record.offset))
    turn = make_turn([make_record(offset) for offset in range(4)])
    result = call(function, turn, consume=[drop_odd, shout], wanted=frozenset({RecordSkipped}))

    assert (offsets(result.handled), offsets(result.skipped), result.done) == ([0, 2], [1, 3], [4])
    assert [str(why) for why in result.reasons.values()] == ["dropped by consume interceptor 'drop_odd'"] * 2
    assert call(function, turn, consume=[drop_odd]).reasons == {}


@BOTH
def test_an_interceptor_that_raises_fails_its_record_only(form):
    """As the handler would: the records behind it wait, other queues go on."""
    turn = make_turn([make_record(0), make_record(1), make_record(2)], [make_record(7, b"l")])
    result = call(form(lambda record: None), turn, consume=[fail_at(1)])

    assert (offsets(result.handled), result.done) == ([0, 7], [1, 1])
    assert [(index, record.offset, str(error)) for index, (record, error) in result.failures.items()] == [
        (0, 1, "at 1")
    ]


@BOTH
@pytest.mark.parametrize("kind", ["batch", "unique"])
def test_members_of_a_batch_pass_one_by_one(form, kind):
    """Dropped and failed ones are not in the batch; what is said of a rewritten member is said of the one behind it."""
    seen = []

    def handle(batch):
        seen.extend(batch.values)
        batch.reject(batch.records[1], "no")

    turn = make_turn(*[[make_record(offset, b"%d" % offset, b"v%d" % offset)] for offset in range(6)])
    records = [queue.items[0] for queue in turn]
    result = call(form(handle), turn, kind=kind, consume=[drop_odd, fail_at(0), shout])

    assert seen == [b"V2", b"V4"]
    assert (offsets(result.skipped), offsets(result.handled)) == ([1, 3, 5], [2])
    assert [(index, record is records[index], str(error)) for index, record, error in result.members] == [
        (0, True, "at 0"),
        (4, True, "no"),
    ]


def test_a_batch_that_fails_does_not_take_dropped_members_with_it():
    """What was dropped is skipped, what failed before the call keeps its own error, the rest fails with the call."""
    turn = make_turn(*[[make_record(offset, b"%d" % offset)] for offset in range(4)])
    result = call(raising(ValueError("all")), turn, kind="batch", consume=[drop_odd, fail_at(0)])

    assert offsets(result.skipped) == [1, 3]
    assert [(record.offset, str(error)) for _, record, error in result.members] == [(0, "at 0"), (2, "all")]


def test_a_skipped_batch_does_not_hide_members_that_failed():
    """`Skip` is for those that the handler saw."""
    turn = make_turn(*[[make_record(offset, b"%d" % offset)] for offset in range(4)])
    result = call(raising(Skip()), turn, kind="batch", consume=[drop_odd, fail_at(0)])

    assert sorted(offsets(result.skipped)) == [1, 2, 3]
    assert [record.offset for _, record, _ in result.members] == [0]


def test_a_bisected_batch_passes_the_interceptors_once():
    """Its halves are shown the same stand-ins, and the one that fails alone is the record behind it."""
    passed, sizes = [], []

    def count(record):
        passed.append(record.offset)
        return record.replaced(value=b"bad" if record.offset == 2 else b"good")

    def handle(batch):
        sizes.append(len(batch))
        if b"bad" in batch.values:
            raise ValueError("one of them")

    turn = make_turn(*[[make_record(offset, b"%d" % offset)] for offset in range(4)])
    result = call(handle, turn, kind="batch", consume=[count], bisect=True)

    assert (passed, sizes) == ([0, 1, 2, 3], [4, 2, 2, 1, 1])
    assert offsets(result.handled) == [0, 1, 3]
    assert [record is turn[2].items[0] for _, record, _ in result.members] == [True]


def test_the_same_stand_in_for_two_members_keeps_them_apart():
    """An interceptor that gives one object for all records must not let a mark reach the wrong one."""
    same = make_record(1000)

    def handle(batch):
        batch.reject(batch.records[0], "first")

    turn = make_turn(*[[make_record(offset, b"%d" % offset)] for offset in range(3)])
    result = call(handle, turn, kind="batch", consume=[lambda record: same])

    assert offsets(result.handled) == [1, 2]
    assert [record.offset for _, record, _ in result.members] == [0]


def test_a_mark_of_something_else_is_still_refused():
    """Neither a copy nor a record that the batch does not hold can be marked."""
    turn = make_turn([make_record(1)])
    result = call(lambda batch: batch.reject(make_record(77)), turn, kind="batch", consume=[shout])

    assert [(record.offset, type(error)) for _, record, error in result.members] == [(1, DeclarationError)]
    assert "offset 77" in str(result.members[0][2])


def test_the_newest_of_a_key_supersedes_the_others_also_when_it_is_dropped():
    """A unique handler's dropped record is its key's newest word."""
    run = Run(lambda batch: None, kind="unique", size=9, lanes=4, consume=[drop_odd])
    tally = run(make_record(0), make_record(1))

    assert (tally.skipped, tally.superseded, tally.handled) == (1, 1, 0)


@pytest.mark.parametrize("kind", ["single", "batch"])
def test_copies_are_made_of_the_record_as_it_came(kind):
    """Whatever an interceptor does to what it is given, also in place, and as often as the record is tried."""
    attempts = []

    def handle(argument):
        record = argument.records[0] if isinstance(argument, Batch) else argument
        attempts.append((record.value, record.attempt, len(record.headers)))
        raise ConnectionError

    run = Run(handle, kind=kind, consume=[spoil], retry=Retry(attempts=2, backoff="1ms"))
    record = make_record(7, b"k", b"raw", 3, headers=[("own", b"1")])
    tally = run(record)

    assert attempts == [(b"x", 1, 2), (b"x", 2, 2)]
    assert (tally.retried, tally.parked) == (1, 1)
    (copy,) = run.sender.acked
    told = dict(copy["headers"])
    assert (copy["key"], copy["value"], told["own"]) == (b"k", b"raw", b"1")
    assert (told["laneway-origin-topic"], told["laneway-origin-partition"]) == (b"orders", b"3")
    assert (told["laneway-origin-offset"], "x" in told) == (b"7", False)
    assert run.processor.steps[0].ledger.committable(3) == 8


@BOTH
@pytest.mark.parametrize("kind", ["single", "batch"])
def test_messages_pass_before_they_are_encoded(form, kind):
    """Each may be changed or dropped; a record whose messages are all dropped is handled."""
    out = Topic("out", Json())

    def stamp(message):
        return message.replaced(value={**message.value, "by": "us"}, headers=[("v", b"1")])

    def drop_small(message):
        return None if message.value["n"] < 2 else message

    turn = make_turn([make_record(1)])
    function = form(lambda _: [out.message({"n": n}) for n in range(4)])
    result = call(function, turn, kind=kind, produce=[drop_small, stamp])
    assert [(posted[2], posted[3]) for posted in result.outputs[0][1]] == [
        (b'{"n":2,"by":"us"}', [("v", b"1")]),
        (b'{"n":3,"by":"us"}', [("v", b"1")]),
    ]

    run = Run(lambda _: out.message({"n": 0}), produce=[drop_small])
    assert (run(make_record(1)).handled, run.sender.sent) == (1, [])


def test_a_produce_interceptor_that_raises_fails_the_record():
    """It climbs the ladder like any other failure, and nothing is sent."""

    def broken(message):
        raise KeyError("card")

    run = Run(lambda record: OUT.message(b"v"), produce=[broken], retry=Retry(attempts=2, backoff="1ms"))
    tally = run(make_record(1))

    assert (tally.retried, tally.parked, tally.handled) == (1, 1, 0)
    assert [sent["topic"] for sent in run.sender.sent] == ["orders.billing.error"]


@pytest.mark.parametrize("side", ["consume", "produce"])
def test_what_is_neither_a_record_nor_a_message_is_refused(side):
    """The record is parked with a text that says what to return."""
    run = Run(lambda record: OUT.message(b"v"), **{side: [lambda found: "text"]})
    run(make_record(1))

    (parked,) = run.sender.acked
    assert b"interceptor '<lambda>' returned str; return a" in dict(parked["headers"])["laneway-error-message"]


def mask(message, record, error):
    """What a user writes to keep a card number off the error topic."""
    return message.replaced(value=b"***", headers=[*message.headers, ("why", type(error).__name__.encode())])


def test_the_copy_for_the_error_topic_may_be_changed():
    """It is a message of bytes with everything that would be sent; the record and its error are given too."""
    given = []

    def look(message, record, error):
        given.append((message, record, error))
        return message

    record = make_record(1, b"k", b"card 4711", headers=[("own", b"1")])
    run = Run(raising(Reject("no")), error=[look, mask])
    tally = run(record)

    ((message, seen, error),) = given
    assert (message.topic.name, message.key, message.value) == ("orders.billing.error", b"k", b"card 4711")
    assert (message.timestamp, dict(message.headers)["own"]) == (record.timestamp, b"1")
    assert (seen.offset, seen.raw, str(error)) == (1, b"card 4711", "no")
    assert run.copies == [(b"***", ["own", "why"])]
    assert (tally.parked, tally.dropped) == (1, 0)
    assert [type(event) for event in tally.events] == [RecordParked]


def test_a_copy_that_is_made_smaller_is_masked_again():
    """A copy that was too large must not bring back what was hidden in the first one."""
    run = Run(raising(Reject("no")), error=[mask], answers=[MessageTooLargeError("large")])
    run(make_record(1, b"k", b"card 4711"))

    assert [sent["value"] for sent in run.sender.sent] == [b"***", b"***"]
    assert "why" in dict(run.sender.acked[0]["headers"])


@pytest.mark.parametrize("kind", ["single", "batch"])
def test_a_copy_may_be_dropped(kind):
    """The record is finished, its key goes on, and it counts as dropped and not as parked."""
    handled = []

    def handle(argument):
        record = argument.records[0] if isinstance(argument, Batch) else argument
        if record.offset < 3:
            raise Reject("no")
        handled.append(record.offset)

    run = Run(handle, kind=kind, size=1, error=[lambda message, record, error: None])
    tally = run(*[make_record(offset) for offset in range(4)])

    assert (handled, run.sender.sent) == ([3], [])
    assert (tally.dropped, tally.parked, tally.handled, tally.finished) == (3, 0, 1, 4)
    assert [event.offset for event in tally.events if isinstance(event, RecordDropped)] == [0, 1, 2]


def test_a_copy_may_be_dropped_when_it_is_made_smaller():
    """Nothing waits for a copy that is never sent again."""
    answers = iter([True, False])

    def once(message, record, error):
        return message if next(answers) else None

    run = Run(raising(Reject("no")), error=[once], answers=[MessageTooLargeError("large")])
    tally = run(make_record(1))

    assert (tally.dropped, tally.parked, tally.undelivered, len(run.sender.sent)) == (1, 0, 1, 1)
    assert run.processor.steps[0].scheduler.is_idle


def test_dropping_thousands_of_one_key_needs_no_stack():
    """Copies that keep their order are sent one after the other; those that are dropped must not pile up calls."""
    run = Run(
        raising(ValueError("all")),
        kind="batch",
        size=5000,
        error=[lambda message, record, error: None],
        retry=Retry.steps("1m", mode="ordered"),
        step=1,
        source="orders-at-first",
    )
    assert run(*[make_record(offset) for offset in range(5000)]).dropped == 5000


def break_down(message, record, error):
    """What a user did not think of, with traces left in what it was given."""
    message.headers.append(("half", b"done"))
    spoil(record)
    raise LookupError("card")


@pytest.mark.parametrize(
    "wrong",
    [
        break_down,
        lambda message, record, error: "text",
        lambda message, record, error: message.replaced(value=5),
        lambda message, record, error: message.replaced(key=5),
        lambda message, record, error: message.replaced(headers=[("n", 5)]),
        lambda message, record, error: message.replaced(headers=[(5, b"n")]),
        lambda message, record, error: message.replaced(headers=5),
        lambda message, record, error: message.replaced(partition="0"),
        lambda message, record, error: message.replaced(timestamp="0"),
    ],
)
def test_an_error_interceptor_that_fails_loses_no_copy(wrong):
    """The copy goes out as the ones before it made it; the failure is an event and, once, a notice."""
    run = Run(raising(Reject("no")), error=[mask, wrong])
    tally = run(*[make_record(offset, b"%d" % offset) for offset in range(3)])

    assert run.copies == [(b"***", ["why"])] * 3
    assert (tally.parked, tally.dropped) == (3, 0)
    failed = [event for event in tally.events if isinstance(event, InterceptorFailed)]
    assert [(event.handler, event.offset) for event in failed] == [("handle", 0), ("handle", 1), ("handle", 2)]
    assert failed[0].interceptor == wrong.__name__
    assert len(run.notices.notes) == 1
    assert "parked as it was" in run.notices.notes[0]


def test_what_a_failed_interceptor_left_behind_does_not_go_out():
    """Not what it did in place, and the next one gets the copy as it was."""
    run = Run(raising(Reject("no")), error=[break_down, mask])
    tally = run(make_record(1, b"k", b"card 4711", headers=[("own", b"1")]))

    assert (tally.parked, run.copies) == (1, [(b"***", ["own", "why"])])
    run = Run(raising(Reject("no")), error=[break_down])
    run(make_record(1, b"k", b"card 4711", headers=[("own", b"1")]))
    assert (run.copies, run.processor.steps[0].ledger.committable(0)) == ([(b"card 4711", ["own"])], 2)


def test_each_error_interceptor_gets_what_the_one_before_made():
    """What one hid, the next does not see."""
    seen = []

    def look(message, record, error):
        seen.append((message.value, dict(message.headers)["why"]))
        return message

    Run(raising(Reject("no")), error=[mask, look])(make_record(1, raw=b"card 4711"))
    assert seen == [(b"***", b"Reject")]


def test_copies_for_retry_topics_do_not_pass():
    """Only what is parked for good does."""
    run = Run(raising(ValueError("no")), error=[mask], retry=Retry.steps("1m"))
    tally = run(make_record(1, raw=b"card 4711"))

    assert (tally.deferred, run.copies) == (1, [(b"card 4711", [])])


def test_a_copy_too_large_for_its_retry_topic_passes_before_it_is_parked():
    """With the error that the handler raised, not with that of the topic."""
    seen = []

    def look(message, record, error):
        seen.append(str(error))
        return mask(message, record, error)

    run = Run(
        raising(ValueError("no")),
        error=[look],
        retry=Retry.steps("1m"),
        answers=[MessageTooLargeError("large")],
    )
    tally = run(make_record(1))

    assert (tally.parked, seen, run.copies) == (1, ["no"], [(b"***", ["why"])])


def test_nothing_stands_in_the_way_when_there_are_none():
    """The handler's own function is called, and nothing is made for a record."""
    route = make_route(lambda record: None)
    plain = Call(route, FakeClock())

    assert plain.function is route.function
    assert isinstance(plain._messages, partial)
    assert plain._stand_ins is None
    assert intercepted(make_route(route.function, kind="batch")) is route.function
    assert producing(route)(Message(OUT, b"v")) == (Message(OUT, b"v"),)


def declared(app):
    """Names of the interceptors of each handler, side by side."""
    return {
        route.name: [
            [found.__name__ for found in side]
            for side in (route.interceptors.consume, route.interceptors.produce, route.interceptors.error)
        ]
        for route in app.routes
    }


def named(name):
    def interceptor(*arguments):
        return arguments[0]

    interceptor.__name__ = name
    return interceptor


def test_those_of_all_handlers_come_first_whatever_the_order_of_declaration():
    """Also when they are declared after those of one handler, and before the handler itself."""
    app = App("billing")
    app.consume_interceptor(of="charge")(named("own 1"))
    app.consume_interceptor()(named("all 1"))
    app.error_interceptor(of="refund")(named("own"))

    @app.handler(ORDERS)
    def charge(record):
        return None

    @app.batch_handler(ORDERS, size=9)
    def refund(batch):
        return None

    app.consume_interceptor(of=charge)(named("own 2"))
    app.consume_interceptor()(named("all 2"))
    app.produce_interceptor()(named("out"))

    assert declared(app) == {
        "charge": [["all 1", "all 2", "own 1", "own 2"], ["out"], []],
        "refund": [["all 1", "all 2"], ["out"], ["own"]],
    }
    assert declared(app.configured({}, {}, ["refund"])) == {
        "charge": [["all 1", "all 2", "own 1", "own 2"], ["out"], []],
    }
    assert app.routes[0].at_step("billing", 0).interceptors == app.routes[0].interceptors


async def _later(record):
    return record


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda app: app.consume_interceptor()(_later), "'_later' is async"),
        (lambda app: app.produce_interceptor()(_later), "is async"),
        (lambda app: app.error_interceptor()("mask"), "not a function"),
        (lambda app: app.consume_interceptor(of="nobody")(shout), "no handler 'nobody'; it has: count, charge"),
        (lambda app: app.consume_interceptor(of="count")(shout), "columnar handler 'count' takes tables"),
        (lambda app: app.consume_interceptor()(shout), "columnar handler 'count' takes tables"),
        (lambda app: app.produce_interceptor(of="count")(shout), "returns no messages"),
    ],
)
def test_what_cannot_run_is_refused(declare, says):
    """At the declaration, or when the app is about to run."""
    app = App("billing")

    @app.columnar_handler(ORDERS)
    def count(table):
        return None

    @app.handler(ORDERS)
    def charge(record):
        return None

    with pytest.raises(DeclarationError, match=says):  # noqa: PT012 - one or the other
        declare(app)
        _ = app.routes


def test_what_a_columnar_handler_parks_may_be_masked():
    """An error interceptor sees the copies of its rows; one for all handlers does not need to know the kind."""
    app = App("billing")

    @app.columnar_handler(ORDERS)
    def count(table):
        return None

    app.error_interceptor()(mask)
    app.produce_interceptor()(mask)
    assert declared(app) == {"count": [[], ["mask"], ["mask"]]}


def test_a_record_with_messages_is_told_as_handled_when_they_are_safe():
    """Not when they are only on their way."""
    run = Run(lambda record: OUT.message(b"v"), wanted=frozenset({RecordHandled}))
    run.processor.admit([make_record(1)])
    turn = run.processor.take()
    run.processor.settle(turn, run.work(turn))
    assert run.processor.tally.events == []

    run.processor.tick()
    assert [event.offset for event in run.processor.tally.events] == [1]


@pytest.mark.parametrize("wanted", [{RecordHandled}, {RecordSkipped}, set()])
def test_records_that_went_well_are_told_only_when_somebody_wants_to_know(wanted):
    """And then only the first few."""

    def handle(record):
        if record.offset % 2:
            raise Skip("odd")

    run = Run(handle, wanted=frozenset(wanted))
    tally = run(*[make_record(offset, b"%d" % offset) for offset in range(100)])

    assert (tally.handled, tally.skipped) == (50, 50)
    told = [(type(event), event.offset) for event in tally.events]
    expected = [(RecordHandled, 0), (RecordHandled, 2), (RecordHandled, 4)] if RecordHandled in wanted else []
    expected += [(RecordSkipped, 2 * n + 1) for n in range(20)] if RecordSkipped in wanted else []
    assert told == expected
    assert {event.error for event in tally.events if isinstance(event, RecordSkipped)} <= {"odd"}
