"""Handler kinds of one's own."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from laneway import GroupedBy, Json, Reject, Retry
from support.contract import Row
from support.contract_recorder import overlaps

if TYPE_CHECKING:
    from support.contract import World


class Halves:
    """A kind of a user: even offsets, then odd ones."""

    def split(self, records):
        for rest in (0, 1):
            yield [record for record in records if record.offset % 2 == rest]


class Forgetful:
    """A kind that loses a record."""

    def split(self, records):
        return [records[1:]]


def _row(number: int, customer: int) -> Row:
    return Row(b"k%d" % (number % 7), b'{"customer": {"id": %d}, "number": %d}' % (customer, number))


@pytest.mark.engine_neutral("async")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_call_has_the_records_of_one_group(world: World, kind: str) -> None:
    """All that were gathered of a customer, in key order; a key is never in two calls at once."""
    app, topic, calls = world.app(), world.topic(2, value=Json(dict)), world.recorder
    out = world.topic(1, value=Json(list))

    def bill(batch):
        customers = {value["customer"]["id"] for value in batch.values}
        with calls.call(*batch.records, customers=sorted(customers)):
            return out.message([value["number"] for value in batch.values])

    async def bill_async(batch):
        await asyncio.sleep(0.001)
        return bill(batch)

    handler = app.custom_handler(topic, kind=GroupedBy("customer.id"), size=30, within="2s", lanes=3)
    handler(bill if kind == "sync" else bill_async)
    world.produce(topic, [_row(n, n % 4) for n in range(200)])
    tally = world.run(app)

    made = calls.calls()
    assert all(len(call.facts["customers"]) == 1 for call in made)
    assert any(len(call.offsets) > 1 for call in made)
    assert sorted(number for record in world.output(out) for number in record.value) == list(range(200))
    assert overlaps(made, lambda call: call.keys) == []
    for call in made:
        for key in set(call.keys):
            mine = [offset for offset, other in zip(call.offsets, call.keys, strict=True) if other == key]
            assert mine == sorted(mine)
    assert (tally.handled, tally.calls) == (200, len(made))
    assert world.committed(app, topic) == world.ends(topic)


@pytest.mark.engine_neutral
def test_each_group_has_an_outcome_of_its_own(world: World) -> None:
    """One that raises is tried again and parked alone, single records can be marked, the others are finished."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.custom_handler(
        topic, kind=GroupedBy("customer.id"), size=100, within="2s", retry=Retry(attempts=2, backoff="20ms")
    )
    def bill(batch):
        with calls.call(*batch.records):
            if b'"id": 1}' in batch.records[0].raw:
                raise OSError("customer 1 is locked")
            if b'"id": 2}' in batch.records[0].raw:
                raise Reject("customer 2 is closed")
            for record in batch:
                if record.offset == 4:
                    batch.skip(record)
                elif record.offset == 8:
                    batch.reject(record, "refused")

    world.produce(topic, [Row(b"k%d" % n, _row(n, n % 4).value) for n in range(16)])
    tally = world.run(app)

    groups = [sorted(call.offsets) for call in calls.calls()]
    assert groups == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15], [1, 5, 9, 13]]
    assert Counter(record.header("laneway-error-message") for record in world.errors(app)) == {
        b"customer 1 is locked": 4,
        b"customer 2 is closed": 4,
        b"refused": 1,
    }
    assert (tally.handled, tally.skipped, tally.parked, tally.retried) == (6, 1, 9, 4)
    assert world.committed(app, topic) == world.ends(topic)


@pytest.mark.engine_neutral
def test_records_of_a_key_in_several_groups_keep_the_order_of_the_groups(world: World) -> None:
    """Once one has failed, later ones of its key that were not called yet wait for its verdict."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.custom_handler(topic, kind=Halves(), size=12, within="2s")
    def handle(batch):
        with calls.call(*batch.records):
            if any(record.value == b"bad" for record in batch):
                raise ValueError("bad record")

    world.produce(topic, [Row(b"k%d" % (n % 3), b"bad" if n == 4 else b"fine") for n in range(12)])
    tally = world.run(app)

    # The first group, with 0, 4 and all other even ones, fails; only odd ones before the first of their key can run,
    # and there is one: 1 of k1, since 4 is the first even one of k1.
    first, second, *rest = [sorted(call.offsets) for call in calls.calls()]
    assert (first, second) == ([0, 2, 4, 6, 8, 10], [1])
    assert sorted(offset for group in rest for offset in group) == [3, 5, 7, 9, 11]
    assert (tally.handled, tally.parked) == (6, 6)
    assert world.committed(app, topic) == world.ends(topic)


@pytest.mark.engine_neutral
def test_a_kind_that_loses_a_record_loses_nothing(world: World) -> None:
    """Nothing is called, all that it was given is parked with the reason, and the run ends."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.custom_handler(topic, kind=Forgetful(), size=10, within="2s", retry=Retry(attempts=2, backoff="20ms"))
    def handle(batch):
        with calls.call(*batch.records):
            pass

    world.produce(topic, [Row(b"k%d" % n, b"%d" % n) for n in range(10)])
    tally = world.run(app)

    assert calls.calls() == []
    parked = world.errors(app)
    assert sorted(record.raw or b"" for record in parked) == [b"%d" % n for n in range(10)]
    assert {record.header("laneway-error-type") for record in parked} == {b"laneway.errors.DeclarationError"}
    for record in parked:
        assert b"the kind Forgetful of handler 'handle' left out 1 of 10" in (
            record.header("laneway-error-message") or b""
        )
    assert (tally.handled, tally.parked, tally.retried) == (0, 10, 10)
    assert world.committed(app, topic) == world.ends(topic)


@pytest.mark.engine_neutral
def test_a_group_is_bisected(world: World) -> None:
    """A bad record costs neither the others of its group nor those of other groups."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.custom_handler(topic, kind=GroupedBy("customer.id"), size=100, within="20s", lanes=2, bisect=True)
    def bill(batch):
        with calls.call(*batch.records):
            if any(record.offset == 50 for record in batch):
                raise ValueError("bad record")

    world.produce(topic, [Row(b"k%d" % n, _row(n, n % 4).value) for n in range(100)])
    tally = world.run(app)

    assert [record.key for record in world.errors(app)] == [b"k50"]
    assert (tally.handled, tally.parked) == (99, 1)
    assert tally.calls == len(calls.calls()) <= 4 + 2 * 5
    assert world.committed(app, topic) == world.ends(topic)
