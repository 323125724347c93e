"""Handlers with processes of their own. On Spark and on the fake the declaration changes nothing that can be seen."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from laneway import Retry
from support import process_calls
from support.contract import Row

if TYPE_CHECKING:
    from pathlib import Path

    from support.contract import World


def test_a_handler_computes_in_other_processes(world: World, tmp_path: Path) -> None:
    """In key order, with retries and parking as ever; on the direct engine not in the engine's own process."""
    app, topic = world.app(), world.topic(4)
    app.handler(topic, processes=2, retry=Retry(attempts=2, backoff="10ms"))(process_calls.handle)
    own = (("folder", str(tmp_path).encode()),)
    rows = [Row(b"k%d" % (number % 9), b"bad" if number % 20 == 7 else b"%d" % number, own) for number in range(180)]
    world.produce(topic, rows)
    tally = world.run(app)
    assert (tally.handled, tally.parked, tally.retried) == (171, 9, 9)
    assert [record.raw for record in world.errors(app)] == [b"bad"] * 9
    calls = process_calls.calls(tmp_path)
    assert len(calls) == 189
    for key in {row.key for row in rows}:
        offsets = [(call.partition, call.offset) for call in calls if call.key == key]
        assert sorted(offsets) == offsets
    if world.has_lane_processes:
        assert os.getpid() not in {call.pid for call in calls}
        assert len({call.pid for call in calls}) <= 2
    assert world.committed(app, topic) == world.ends(topic)
