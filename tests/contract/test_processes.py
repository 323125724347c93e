"""Handlers with processes of their own. On the fake the declaration changes nothing that can be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway import Retry
from support import process_calls
from support.contract import Row

if TYPE_CHECKING:
    from pathlib import Path

    from support.contract import World


def test_a_handler_computes_in_other_processes(world: World, tmp_path: Path) -> None:
    """In key order, with retries and parking as ever; so many below each process of the engine over all batches."""
    app, topic = world.app(), world.topic(4)
    app.handler(topic, processes=2, retry=Retry(attempts=2, backoff="10ms"))(process_calls.handle)
    own = (("folder", str(tmp_path).encode()),)
    rows = [Row(b"k%d" % (number % 9), b"bad" if number % 20 == 7 else b"%d" % number, own) for number in range(600)]
    world.produce(topic, rows)
    tally = world.run(app)
    assert (tally.handled, tally.parked, tally.retried) == (570, 30, 30)
    assert [record.raw for record in world.errors(app)] == [b"bad"] * 30
    calls = process_calls.calls(tmp_path)
    assert len(calls) == 630
    for key in {row.key for row in rows}:
        offsets = [(call.partition, call.offset) for call in calls if call.key == key]
        assert sorted(offsets) == offsets
    if world.has_lane_processes:
        assert all(call.is_child for call in calls)
        for parent in {call.parent for call in calls}:
            assert len({call.pid for call in calls if call.parent == parent}) <= 2
    assert world.committed(app, topic) == world.ends(topic)
