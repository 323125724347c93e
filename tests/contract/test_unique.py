"""Unique handlers, and orders other than the key's."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from laneway import Reject, Retry, by_field, by_header
from support.contract import Row

if TYPE_CHECKING:
    from support.contract import World


def test_only_the_newest_record_of_a_key_reaches_the_handler(world: World) -> None:
    """Older ones are superseded: finished with the newest, and counted; a tombstone can be the newest."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.unique_handler(topic, size=10, within="2s")
    def keep(batch):
        with calls.call(*batch.records):
            assert len({record.key for record in batch}) == len(batch)

    world.produce(topic, [Row(b"a", b"1"), Row(b"b", b"2"), Row(b"a", b"3"), Row(b"b", None), Row(b"c", b"5")])
    tally = world.run(app)
    assert sorted(offset for call in calls.calls() for offset in call.offsets) == [2, 3, 4]
    assert (tally.read, tally.handled, tally.superseded) == (5, 3, 2)
    assert world.committed(app, topic) == {0: 5}


@pytest.mark.engine_neutral
def test_a_newest_record_that_fails_is_parked_and_takes_the_older_ones_along(world: World) -> None:
    """Only the newest is copied to the error topic; what it superseded is finished with it."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.unique_handler(topic, size=10, within="2s", retry=Retry(attempts=2, backoff="20ms"))
    def keep(batch):
        with calls.call(*batch.records):
            for record in batch:
                if record.key == b"bad":
                    batch.retry(record)

    world.produce(topic, [Row(b"bad", b"1"), Row(b"good", b"2"), Row(b"bad", b"3"), Row(b"good", b"4")])
    tally = world.run(app)
    assert [record.raw for record in world.errors(app)] == [b"3"]
    assert (tally.handled, tally.parked, tally.superseded, tally.retried) == (1, 1, 2, 1)
    assert [sorted(call.offsets) for call in calls.calls()] == [[2, 3], [2]]


@pytest.mark.engine_neutral
def test_records_without_a_key_supersede_nothing(world: World) -> None:
    """They have no order, so none of them is newer."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.unique_handler(topic, size=10, within="2s")
    def keep(batch):
        with calls.call(*batch.records):
            pass

    world.produce(topic, [Row(None, b"1"), Row(None, b"2"), Row(b"", b"3"), Row(b"", b"4")])
    tally = world.run(app)
    assert (tally.handled, tally.superseded) == (3, 1)


@pytest.mark.engine_neutral
@pytest.mark.parametrize("by", ["header", "field"])
def test_records_are_ordered_by_something_else_than_their_key(world: World, by: str) -> None:
    """Records of one customer run one after the other although their keys differ; a poison record is parked as ever."""
    app, topic, calls = world.app(), world.topic(1), world.recorder
    order_by = by_header("customer") if by == "header" else by_field("customer.id")

    @app.handler(topic, lanes=8, order_by=order_by)
    async def handle(record):
        with calls.call(record):
            if record.raw == b"{":
                raise Reject("not JSON")

    rows = [
        Row(b"%d" % n, b'{"customer": {"id": %d}}' % (n % 3), headers=[("customer", b"%d" % (n % 3))])
        for n in range(60)
    ]
    world.produce(topic, [*rows, Row(b"x", b"{")])
    tally = world.run(app)
    assert (tally.handled, tally.parked) == (60, 1)
    for customer in range(3):
        mine = [call for call in calls.calls() if call.offsets[0] < 60 and call.offsets[0] % 3 == customer]
        assert [call.offsets[0] for call in mine] == list(range(customer, 60, 3))
        assert all(first.end <= second.start for first, second in pairwise(mine))
