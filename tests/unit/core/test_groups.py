"""Handler kinds of one's own: groups of a turn, and kinds that are wrong."""

from __future__ import annotations

import asyncio
import copy
import pickle
import re
from itertools import groupby

import pytest

from laneway import App, GroupedBy, Json, Message, Reject, Retry, Skip, Topic
from laneway._core.call import Call
from laneway._core.processor import Processor
from laneway.errors import DeclarationError
from support.core import FakeClock, FakeSender, make_record, make_route

OUT = Topic("out")
ORDERS = Topic("orders")


class Kind:
    """A kind made of a function."""

    def __init__(self, split):
        self.split = split


BY_VALUE = Kind(lambda records: [list(group) for _, group in groupby(sorted(records, key=raw), raw)])


def raw(record):
    return record.raw


class Bench:
    """A processor of a custom handler, and what its function was given."""

    def __init__(self, function=lambda batch: None, *, form="sync", grouping=BY_VALUE, **fields):
        self.clock, self.sender, self.calls = FakeClock(), FakeSender(), []

        def handle(batch):
            self.calls.append([record.offset for record in batch])
            return function(batch)

        async def handle_async(batch):
            return handle(batch)

        fields = {"size": 50, **fields}
        chosen = handle if form == "sync" else handle_async
        self.route = make_route(chosen, kind="custom", grouping=grouping, **fields)
        self.processor = Processor([self.route], "billing", lanes=1, sender=self.sender, clock=self.clock)
        self.processor.is_closing = True
        self.call = Call(self.route, self.clock)

    def admit(self, *records):
        """Records as keys and values, whose places are their offsets."""
        self.processor.admit([make_record(offset, key, value) for offset, (key, value) in enumerate(records)])

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

    def parked(self):
        """Offset to the reason of each copy, in the order in which they were acknowledged."""
        found = {}
        for message in self.sender.acked:
            headers = dict(message["headers"])
            if message["topic"] == "orders.billing.error":
                found[int(headers["laneway-origin-offset"])] = headers["laneway-error-message"].decode()
        return found


BOTH = pytest.mark.parametrize("form", ["sync", "async"])


@BOTH
def test_each_group_is_a_call_of_its_own(form):
    """In the order that the kind gives."""
    bench = Bench(form=form)
    bench.admit((b"a", b"2"), (b"b", b"1"), (b"c", b"2"), (None, b"1"), (b"d", b"3"))
    tally = bench.run()

    assert bench.calls == [[1, 3], [0, 2], [4]]
    assert (tally.handled, tally.calls) == (5, 3)


@BOTH
def test_each_group_has_an_outcome_of_its_own(form):
    """One that raises fails alone, and is tried again alone."""

    def handle(batch):
        match batch.records[0].raw:
            case b"bad":
                raise ValueError("planted")
            case b"no":
                raise Reject("refused")
            case b"skip":
                raise Skip
            case b"send":
                return Message(OUT, b"sent")

    bench = Bench(handle, form=form, retry=Retry(2, "1s"))
    values = b"bad", b"good", b"no", b"send", b"skip"
    bench.admit(*((b"%s %d" % (value, n), value) for n in range(2) for value in values))
    tally = bench.run()

    assert [sorted(call) for call in bench.calls] == [[0, 5], [1, 6], [2, 7], [3, 8], [4, 9], [0, 5]]
    assert (tally.handled, tally.skipped, tally.parked, tally.retried) == (4, 2, 4, 2)
    assert bench.parked() == {2: "refused", 7: "refused", 0: "planted", 5: "planted"}
    assert [message["value"] for message in bench.sender.acked if message["topic"] == "out"] == [b"sent"]


@BOTH
def test_members_of_a_group_can_be_marked(form):
    """As those of a batch; a record of another group cannot."""
    strays = []

    def handle(batch):
        first = batch.records[0]
        if first.raw == b"1":
            batch.skip(first)
            batch.reject(batch.records[1], "refused")
        elif first.raw == b"2" and first.attempt == 1:
            batch.retry(first)
            strays.append(first)
        elif first.raw == b"3":
            batch.skip(strays[0])

    bench = Bench(handle, form=form, retry=Retry(2, "1s"))
    bench.admit((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"2"), (b"e", b"2"), (b"f", b"3"))
    tally = bench.run()

    assert (tally.handled, tally.skipped, tally.parked) == (3, 1, 2)
    assert bench.parked()[1] == "refused"
    assert "marked something that is not in its batch" in bench.parked()[5]


def test_records_of_a_key_in_several_groups_run_in_the_order_of_the_groups():
    """And in their own order in each group."""
    bench = Bench()
    bench.admit((b"k", b"1"), (b"k", b"2"), (b"k", b"1"), (b"k", b"3"))
    tally = bench.run()

    assert bench.calls == [[0, 2], [1], [3]]
    assert tally.handled == 4


def test_a_key_that_failed_in_one_group_waits_for_its_verdict():
    """Later records of it are given back, earlier ones run, and other keys' groups are whole."""

    def handle(batch):
        if batch.records[0].raw == b"2":
            raise ValueError("planted")

    bench = Bench(handle)
    bench.sender.is_silent = True
    # Key k: 0 in group 3, 1 in group 2 (which fails), 2 and 3 in groups 1 and 4; key l: 4 in group 3.
    bench.admit((b"k", b"3"), (b"k", b"2"), (b"k", b"1"), (b"k", b"4"), (b"l", b"3"))
    bench.turn()
    assert bench.calls == [[2], [1], [0, 4]]
    assert bench.processor.steps[0].ledger.unfinished(0) == (1, 3)
    assert not bench.turn()

    bench.sender.is_silent = False
    tally = bench.run()
    assert bench.calls[3:] == [[3]]
    assert (tally.handled, tally.parked) == (4, 1)


def test_a_key_waits_from_the_first_of_its_records_that_failed():
    """Also when later ones of it failed in the same group."""

    def handle(batch):
        if batch.records[0].raw == b"1":
            raise ValueError("planted")

    bench = Bench(handle)
    bench.sender.is_silent = True
    bench.admit((b"k", b"1"), (b"k", b"2"), (b"k", b"1"))
    bench.turn()
    assert bench.calls == [[0, 2]]

    bench.sender.is_silent = False
    tally = bench.run()
    assert bench.calls == [[0, 2], [1]]
    assert (tally.handled, tally.parked) == (1, 2)


def test_a_group_that_is_tried_again_comes_before_what_its_keys_held_back():
    """In the order of the key, whatever the groups were."""

    def handle(batch):
        if batch.records[0].raw in (b"1", b"2") and batch.records[0].attempt == 1:
            raise ValueError("planted")

    # 2 fails first, then 0; 1 and 3 are later than 0.
    bench = Bench(handle, retry=Retry(2, "1s", jitter=0))
    bench.admit((b"k", b"2"), (b"k", b"3"), (b"k", b"1"), (b"k", b"4"))
    bench.turn()
    assert bench.calls == [[2], [0]]
    bench.clock.advance(1)
    bench.processor.tick()
    (queue,) = turn = bench.processor.steps[0].scheduler.take(9)
    assert [(record.offset, record.attempt) for record in queue.work()] == [(0, 2), (1, 1), (2, 2), (3, 1)]

    bench.processor.settle(turn, bench.call.batch(turn))
    assert bench.run().handled == 4


def test_a_group_can_be_bisected():
    """Only the one that failed."""

    def handle(batch):
        if any(record.offset == 2 for record in batch):
            raise ValueError("planted")

    bench = Bench(handle, bisect=True)
    bench.admit(*((b"%d" % n, b"%d" % (n % 2)) for n in range(8)))
    tally = bench.run()

    assert bench.calls == [[0, 2, 4, 6], [0, 2], [0], [2], [4, 6], [1, 3, 5, 7]]
    assert (tally.handled, tally.parked) == (7, 1)


def test_a_kind_sees_only_what_can_be_decoded():
    """With nothing left it is not asked; an empty group is passed over."""
    asked = []

    def split(records):
        asked.append([record.value for record in records])
        return [[], records, ()]

    bench = Bench(grouping=Kind(split), topic=Topic("orders", Json()), size=2)
    bench.admit((b"a", b"{"), (b"b", b"1"), (b"c", b"{"), (b"d", b"{"))
    tally = bench.run()

    assert (asked, bench.calls) == ([[1]], [[1]])
    assert (tally.handled, tally.parked, tally.calls) == (1, 3, 1)


@pytest.mark.parametrize(
    "split",
    [
        lambda records: (iter([record]) for record in records),
        lambda records: (group for _, group in groupby(records, raw)),
        lambda records: {id(record): (record,) for record in records}.values(),
    ],
    ids=["iterators", "groupby", "tuples"],
)
def test_groups_may_be_anything_that_can_be_gone_through(split):
    """What is made while it is gone through, too."""
    bench = Bench(grouping=Kind(split))
    bench.admit((b"a", b"1"), (b"b", b"2"))

    assert (bench.run().handled, bench.calls) == (2, [[0], [1]])


def endless(records):
    while True:
        yield records


WRONG = {
    "loses": (lambda records: [records[1:]], r"left out 1 of 3 records, the first of them orders, partition 0, offset"),
    "loses all": (lambda records: [], "left out 3 of 3 records"),
    "repeats in a group": (lambda records: [[*records, records[0]]], r"gave orders, partition 0, offset \d twice"),
    "repeats in another": (lambda records: [records, records[2:]], r"gave orders, partition 0, offset \d twice"),
    "repeats without end": (endless, r"gave orders, partition 0, offset \d twice"),
    "makes one up": (lambda records: [records, [make_record(7)]], "gave orders, partition 0, offset 7, which is not"),
    "copies": (lambda records: [map(copy.copy, records)], r"gave orders, partition 0, offset \d, which is not"),
    "gives values": (lambda records: [[record.value for record in records]], "gave something of type bytes"),
    "gives records": (lambda records: records, "raised TypeError"),
    "gives nothing": (lambda records: None, "raised TypeError: 'NoneType' object is not iterable"),
    "raises": (lambda records: 1 / 0, "raised ZeroDivisionError: division by zero"),
    "raises late": (lambda records: ([r] if r.offset < 2 else 1 / 0 for r in records), "raised ZeroDivisionError"),
    "changes what it is given": (lambda records: [records.pop()], "raised AttributeError"),
}


@BOTH
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("bisect", [False, True])
def test_a_kind_that_is_wrong_fails_the_turn(form, name, bisect):
    """Nothing is called; each record is tried again and parked with the reason, and the run ends."""
    split, reason = WRONG[name]
    bench = Bench(grouping=Kind(split), form=form, retry=Retry(2, "1s"), bisect=bisect)
    bench.admit((b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
    tally = bench.run()

    assert bench.calls == []
    assert (tally.handled, tally.skipped, tally.parked, tally.retried, tally.calls) == (0, 0, 3, 3, 0)
    for text in bench.parked().values():
        assert re.match(f"the kind Kind of handler 'handle' {reason}", text)
        assert text.endswith("into exactly one group")


@pytest.mark.parametrize("error", [Skip("all"), Reject("all"), DeclarationError("mine")])
def test_a_kind_has_no_word_on_the_outcome(error):
    """What it raises is a failure of the kind, whatever it is; the cause is kept."""

    def split(records):
        raise error

    bench = Bench(grouping=Kind(split))
    bench.admit((b"a", b"1"), (b"b", b"2"))
    turn = bench.processor.take()
    result = bench.call.batch(turn)

    assert {error.__cause__ for _, _, error in result.members} == {error}
    assert {str(error).partition(";")[0] for _, _, error in result.members} == {
        f"the kind Kind of handler 'handle' raised {type(error).__name__}: {error}"
    }
    assert (result.skipped, result.handled) == ([], [])


def test_a_kind_that_is_wrong_only_once_costs_an_attempt():
    """It is asked again when the records are tried again."""
    asked = []

    def split(records):
        asked.append(len(records))
        return [records] if len(asked) > 1 else []

    bench = Bench(grouping=Kind(split), retry=Retry(2, "1s"))
    bench.admit((b"a", b"1"), (b"b", b"2"))
    tally = bench.run()

    assert (tally.handled, tally.retried, asked) == (2, 2, [2, 2])


def test_grouped_by_a_field():
    """A number and a text are different; without the field, or without JSON, they are a group of their own."""
    kind = pickle.loads(pickle.dumps(GroupedBy("a.b")))  # noqa: S301 - our own bytes
    values = [
        b'{"a": {"b": 1}}',
        b'{"a": {"b": "1"}}',
        b"{",
        b'{"a": {"b": 1, "c": 2}}',
        None,
        b'{"a": 1}',
        b'"\xff"',
        b"[" * 5000,
        b'{"a": {"b": {"y": 1, "x": 2}}}',
        b'{"a": {"b": {"x": 2, "y": 1}}}',
    ]
    records = [make_record(offset, raw=value) for offset, value in enumerate(values)]
    groups = [[record.offset for record in group] for group in kind.split(records)]

    assert groups == [[0, 3], [1], [2, 4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", 5, None])
def test_a_path_that_names_no_field_is_refused(path):
    """The message shows how to write one."""
    with pytest.raises(DeclarationError, match="name a field, such as GroupedBy"):
        GroupedBy(path)


class AsyncKind:
    async def split(self, records):
        return [records]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (GroupedBy, "handler 'handle': kind=GroupedBy is a class; pass an instance"),
        ("customer.id", "kind='customer.id' has no method split(records); give GroupedBy(…)"),
        (None, "kind=None has no method split(records)"),
        (len, "has no method split(records)"),
        (AsyncKind(), "split() of AsyncKind is async"),
    ],
)
def test_what_is_no_kind_is_refused(kind, message):
    """When it is declared, not when records come."""

    def handle(batch):
        """A handler."""

    with pytest.raises(DeclarationError) as caught:
        App("billing").custom_handler(ORDERS, kind=kind, size=5)(handle)

    assert message in str(caught.value)


def test_a_custom_handler_is_declared_like_a_batch_handler():
    """It keeps all that is said of it."""
    app = App("billing")

    @app.custom_handler(ORDERS, kind=BY_VALUE, size=7, within="2s", lanes=3, timeout="5s", retry=Retry(2), bisect=True)
    def handle(batch):
        """A handler."""

    (route,) = app.routes
    assert (route.kind, route.grouping, route.is_batch, route.bisect) == ("custom", BY_VALUE, True, True)
    assert (route.size, route.lanes, route.retry, route.kept_order) == (7, 3, Retry(2), "key")
